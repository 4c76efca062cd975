//! Cost of one message at the coordinator of late binding, by the number of waiters and slots.
//!
//! `cargo bench -p peerlock-protocols`. Each figure is the median of five. Tables: `docs/notes/2026-11-19-scale.md`.

use std::collections::{BTreeSet, VecDeque};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use peerlock_protocols::fair_k_late::{Config, Following, Message, Update};
use peerlock_protocols::token::{Claim, Layout};
use peerlock_protocols::{Cx, Effect, FairKLate, Protocol};
use peerlock_types::{PeerId, Rng, Ticket, Time};

const ROUNDS: usize = 5;
/// Enough for a clock resolution of four milliseconds.
const MESSAGES: u32 = 200_000;

const WAITING: [u64; 5] = [10, 100, 1000, 10_000, 100_000];
const SLOTS: [u32; 7] = [1, 3, 10, 30, 100, 300, 1000];

fn main() {
    let figures = WAITING.map(|waiting| SLOTS.map(|slots| figure(waiting, slots)));
    table("nanoseconds per message received by the coordinator", &figures, |(nanos, _)| format!("{nanos:.0}"));
    table("messages sent per message received", &figures, |(_, sent)| format!("{sent:.2}"));
}

/// Returns the nanoseconds and the sent messages per received message.
fn figure(waiting: u64, slots: u32) -> (f64, f64) {
    let mut stage = Stage::new(waiting, slots);
    let mut figures = [(); ROUNDS].map(|()| stage.play());
    figures.sort_by(|one, other| one.0.total_cmp(&other.0));
    figures[ROUNDS / 2]
}

fn table(of: &str, figures: &[[(f64, f64); SLOTS.len()]; WAITING.len()], show: impl Fn(&(f64, f64)) -> String) {
    let row = |cells: [String; SLOTS.len()]| cells.join(" | ");
    println!("\n{of}\n\n| waiting | {} |", row(SLOTS.map(|slots| format!("k = {slots}"))));
    println!("| ---: | {} |", row(SLOTS.map(|_| "---:".to_owned())));
    for (waiting, figures) in WAITING.iter().zip(figures) {
        println!("| {waiting} | {} |", row(figures.each_ref().map(&show)));
    }
}

/// A token, which is at another peer.
struct Token {
    stay: u64,
    user: Claim,
    following: Following,
    is_free: bool,
}

struct Stage {
    coordinator: FairKLate,
    tokens: Vec<Token>,
    holding: BTreeSet<Claim>,
    under_way: VecDeque<Update>,
    rng: Rng,
    effects: Vec<Effect<Message, peerlock_protocols::Never>>,
    sent: u64,
}

const HOME: PeerId = PeerId::new(0);

impl Stage {
    /// Starts with all tokens in use elsewhere.
    fn new(waiting: u64, slots: u32) -> Self {
        let claim = |peer: u64| Claim { peer: PeerId::new(peer), ticket: Ticket::new(1) };
        let users: Vec<Claim> = (1..=u64::from(slots)).map(claim).collect();
        let layout = Layout { root: HOME, tokens: users.iter().map(|user| user.peer).collect() };
        let coordinator = FairKLate::new(HOME, &layout, Config { term: u32::MAX, ..Config::default() });
        let token = |&user| Token { stay: 0, user, following: Following::default(), is_free: false };
        let (tokens, holding) = (users.iter().map(token).collect(), users.iter().copied().collect());
        let (under_way, effects, rng) = (VecDeque::new(), Vec::new(), Rng::new(1));
        let mut stage = Self { coordinator, tokens, holding, under_way, rng, effects, sent: 0 };
        for slot in 0..slots {
            stage.feed(Update::Busy { slot, stay: 0, report: 1 });
        }
        for peer in 0..waiting {
            stage.feed(Update::Request(claim(u64::from(slots) + 1 + peer)));
        }
        stage
    }

    /// Delays an update: each release sends two.
    fn send(&mut self, update: Update) {
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
            self.sent += 1;
            let token = &mut self.tokens[slot as usize];
            let (known, last) = (token.following.turn, token.stay + token.following.claims.len() as u64);
            match () {
                // The message is for a previous stay, or of an earlier turn.
                () if stay < token.stay || following.turn < known => {}
                () if token.stay == stay && (replaces || following.turn == known) => token.following = following,
                () if stay == last && following.turn == known => token.following.claims.extend(following.claims),
                () => {}
            }
            if token.is_free {
                self.leave(slot);
            }
        }
    }

    /// Hands the token over, and its user requests again. Returns the number of updates.
    fn leave(&mut self, slot: u32) -> u32 {
        let token = &mut self.tokens[slot as usize];
        let (stay, turn, user) = (token.stay, token.following.turn, token.user);
        if token.following.claims.is_empty() {
            if std::mem::replace(&mut token.is_free, true) {
                return 0;
            }
            self.send(Update::Free { slot, stay, report: 2 });
            return 1;
        }
        let to = token.following.claims.remove(0);
        (token.stay, token.user, token.is_free) = (stay + 1, to, false);
        self.holding.remove(&user);
        let is_served = !self.holding.insert(to);
        self.send(Update::Left { slot, stay, to, turn });
        let again = Claim { peer: user.peer, ticket: Ticket::new(user.ticket.get() + 1) };
        self.send(Update::Request(again));
        if is_served { 2 + self.leave(slot) } else { 2 }
    }

    fn play(&mut self) -> (f64, f64) {
        let (start, before, mut messages) = (spent(), self.sent, 0);
        while messages < MESSAGES {
            let slot = self.rng.below(self.tokens.len() as u64) as u32;
            messages += self.leave(slot);
        }
        let per = |total: f64| total / f64::from(messages);
        (per((spent() - start).as_nanos() as f64), per((self.sent - before) as f64))
    }
}

/// The processor time of this thread, or else the elapsed time.
fn spent() -> Duration {
    static STARTED: OnceLock<Instant> = OnceLock::new();
    let notified = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    let nanos = notified.split(' ').next().and_then(|nanos| nanos.parse().ok());
    nanos.map_or_else(|| STARTED.get_or_init(Instant::now).elapsed(), Duration::from_nanos)
}
