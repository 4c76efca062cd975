//! What one message costs the coordinator of late binding, by how many wait and how many slots there are.
//!
//! `cargo bench -p peerlock-protocol`. A coordinator alone, and all others played here: a holder chosen by chance leaves,
//! its token goes to whom it was told, and it asks again. What the coordinator is told comes so late that a tenth of
//! the holders have left meanwhile. Each figure is the median of five, in processor time where the kernel tells it, so
//! that others on the machine matter less; compare them within one run. Tables: `docs/notes/2026-11-19-scale.md`.

use std::collections::{BTreeSet, VecDeque};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use peerlock_protocols::fair_k_late::{Config, Following, Message, Update};
use peerlock_protocols::token::{Claim, Layout};
use peerlock_protocols::{Cx, Effect, FairKLate, Protocol};
use peerlock_types::{PeerId, Rng, Ticket, Time};

const ROUNDS: usize = 5;
/// So many that what the kernel rounds to, four milliseconds, does not show.
const MESSAGES: u32 = 200_000;

const WAITING: [u64; 5] = [10, 100, 1000, 10_000, 100_000];
const SLOTS: [u32; 7] = [1, 3, 10, 30, 100, 300, 1000];

fn main() {
    let figures = WAITING.map(|waiting| SLOTS.map(|slots| figure(waiting, slots)));
    table("nanoseconds for each message that the coordinator gets", &figures, |(nanos, _)| format!("{nanos:.0}"));
    table("words of the coordinator for each of them", &figures, |(_, words)| format!("{words:.2}"));
}

/// Nanoseconds and words for each message to the coordinator, where so many wait for so many slots.
fn figure(waiting: u64, slots: u32) -> (f64, f64) {
    let mut stage = Stage::new(waiting, slots);
    let mut figures = [(); ROUNDS].map(|()| stage.play());
    figures.sort_by(|one, other| one.0.total_cmp(&other.0));
    figures[ROUNDS / 2]
}

/// As documents have it: a row for each length of the line, a column for each number of slots.
fn table(of: &str, figures: &[[(f64, f64); SLOTS.len()]; WAITING.len()], show: impl Fn(&(f64, f64)) -> String) {
    let row = |cells: [String; SLOTS.len()]| cells.join(" | ");
    println!("\n{of}\n\n| waiting | {} |", row(SLOTS.map(|slots| format!("k = {slots}"))));
    println!("| ---: | {} |", row(SLOTS.map(|_| "---:".to_owned())));
    for (waiting, figures) in WAITING.iter().zip(figures) {
        println!("| {waiting} | {} |", row(figures.each_ref().map(&show)));
    }
}

/// A token that is somewhere else.
struct Token {
    stay: u64,
    user: Claim,
    following: Following,
    /// It was reported free.
    lies: bool,
}

struct Stage {
    coordinator: FairKLate,
    tokens: Vec<Token>,
    inside: BTreeSet<Claim>,
    under_way: VecDeque<Update>,
    rng: Rng,
    effects: Vec<Effect<Message, peerlock_protocols::Never>>,
    words: u64,
}

const HOME: PeerId = PeerId::new(0);

impl Stage {
    /// All tokens are in use elsewhere, and this many wait.
    fn new(waiting: u64, slots: u32) -> Self {
        let claim = |peer: u64| Claim { peer: PeerId::new(peer), ticket: Ticket::new(1) };
        let users: Vec<Claim> = (1..=u64::from(slots)).map(claim).collect();
        let layout = Layout { root: HOME, tokens: users.iter().map(|user| user.peer).collect() };
        let coordinator = FairKLate::new(HOME, &layout, Config { term: u32::MAX, ..Config::default() });
        let token = |&user| Token { stay: 0, user, following: Following::default(), lies: false };
        let (tokens, inside) = (users.iter().map(token).collect(), users.iter().copied().collect());
        let (under_way, effects, rng) = (VecDeque::new(), Vec::new(), Rng::new(1));
        let mut stage = Self { coordinator, tokens, inside, under_way, rng, effects, words: 0 };
        for slot in 0..slots {
            stage.feed(Update::Busy { slot, stay: 0, report: 1 });
        }
        for peer in 0..waiting {
            stage.feed(Update::Request(claim(u64::from(slots) + 1 + peer)));
        }
        stage
    }

    /// Each who leaves says two things.
    fn say(&mut self, update: Update) {
        self.under_way.push_back(update);
        while self.under_way.len() > self.tokens.len() / 5 {
            let Some(update) = self.under_way.pop_front() else { return };
            self.feed(update);
        }
    }

    fn feed(&mut self, update: Update) {
        let mut cx = Cx::new(HOME, Time::ZERO, &mut self.rng, &mut self.effects);
        self.coordinator.on_message(PeerId::new(1), Message::Update { epoch: 0, update }, &mut cx);
        while let Some(effect) = self.effects.pop() {
            let Effect::Send { message: Message::Next { slot, stay, following, replaces, .. }, .. } = effect else {
                continue;
            };
            self.words += 1;
            let token = &mut self.tokens[slot as usize];
            let (known, last) = (token.following.turn, token.stay + token.following.claims.len() as u64);
            match () {
                // For a stay that is over, or of an earlier turn.
                () if stay < token.stay || following.turn < known => {}
                () if token.stay == stay && (replaces || following.turn == known) => token.following = following,
                () if stay == last && following.turn == known => token.following.claims.extend(following.claims),
                () => {}
            }
            if token.lies {
                self.leave(slot);
            }
        }
    }

    /// The token goes on, and who had it asks again. If nobody is known to come after, it lies there.
    fn leave(&mut self, slot: u32) -> u32 {
        let token = &mut self.tokens[slot as usize];
        let (stay, turn, user) = (token.stay, token.following.turn, token.user);
        if token.following.claims.is_empty() {
            if std::mem::replace(&mut token.lies, true) {
                return 0;
            }
            self.say(Update::Free { slot, stay, report: 2 });
            return 1;
        }
        let to = token.following.claims.remove(0);
        (token.stay, token.user, token.lies) = (stay + 1, to, false);
        self.inside.remove(&user);
        let is_astray = !self.inside.insert(to);
        self.say(Update::Left { slot, stay, to, turn });
        let again = Claim { peer: user.peer, ticket: Ticket::new(user.ticket.get() + 1) };
        self.say(Update::Request(again));
        if is_astray { 2 + self.leave(slot) } else { 2 }
    }

    /// Nanoseconds and words for each message to the coordinator.
    fn play(&mut self) -> (f64, f64) {
        let (start, before, mut messages) = (spent(), self.words, 0);
        while messages < MESSAGES {
            let slot = self.rng.below(self.tokens.len() as u64) as u32;
            messages += self.leave(slot);
        }
        let per = |total: f64| total / f64::from(messages);
        (per((spent() - start).as_nanos() as f64), per((self.words - before) as f64))
    }
}

/// The processor time of this thread, or else the time that has passed.
fn spent() -> Duration {
    static STARTED: OnceLock<Instant> = OnceLock::new();
    let notified = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    let nanos = notified.split(' ').next().and_then(|nanos| nanos.parse().ok());
    nanos.map_or_else(|| STARTED.get_or_init(Instant::now).elapsed(), Duration::from_nanos)
}
