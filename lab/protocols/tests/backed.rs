//! Backups on a ring, with seeded orders of deliveries. Each survivor is notified of a crash after everything that the
//! dead peer has sent it has arrived. Then at most k clients hold and every survivor is served.

use std::collections::BTreeMap;

use peerlock_protocols::backed::{Backable, Config, Message, Ring};
use peerlock_protocols::token::Layout;
use peerlock_protocols::{
    Backed, Bv95, Cx, Effect, FairK, FairKLate, Grant, Input, Never, bv95, fair_k, fair_k_late, step,
};
use peerlock_types::{PeerId, Rng, Ticket, Time};

type Client = (PeerId, Ticket);

struct World<P: Backable> {
    peers: BTreeMap<PeerId, Backed<P>>,
    slots: usize,
    under_way: Vec<(PeerId, PeerId, Message<P>)>,
    /// The receiver, and the dead peer.
    unreported: Vec<(PeerId, PeerId)>,
    waiting: Vec<Client>,
    holding: BTreeMap<Client, Grant>,
    fencing: Vec<u64>,
    tickets: BTreeMap<PeerId, Ticket>,
    rng: Rng,
}

impl<P: Backable> World<P> {
    fn new(peers: u64, slots: u32, config: Config, seed: u64, part: impl Fn(PeerId, &Layout) -> P) -> Self {
        let layout = Layout::printed(peers, slots);
        let ids = || (0..peers).map(PeerId::new);
        let ring = Ring::mixed(ids());
        Self {
            peers: ids().map(|me| (me, Backed::new(me, &ring, config, |whose| part(whose, &layout)))).collect(),
            slots: slots as usize,
            under_way: Vec::new(),
            unreported: Vec::new(),
            waiting: Vec::new(),
            holding: BTreeMap::new(),
            fencing: vec![0; slots as usize],
            tickets: ids().map(|id| (id, Ticket::NONE)).collect(),
            rng: Rng::new(seed),
        }
    }

    fn below(&mut self, bound: usize) -> usize {
        self.rng.below(bound as u64) as usize
    }

    fn any_peer(&mut self) -> PeerId {
        let at = self.below(self.peers.len());
        *self.peers.keys().nth(at).expect("a live peer")
    }

    fn run(&mut self, mut requests: usize, mut deaths: usize) {
        for _ in 0..200_000 {
            match self.below(10) {
                0 | 1 if requests > 0 => {
                    requests -= 1;
                    let peer = self.any_peer();
                    let ticket = self.tickets[&peer].next();
                    self.tickets.insert(peer, ticket);
                    self.waiting.push((peer, ticket));
                    self.step(peer, Input::Request(ticket));
                }
                2 if deaths > 0 && self.below(4) == 0 => {
                    deaths -= 1;
                    let dead = self.any_peer();
                    self.die(dead);
                }
                3 if !self.unreported.is_empty() => {
                    let at = self.below(self.unreported.len());
                    let (peer, dead) = self.unreported[at];
                    if !self.under_way.iter().any(|&(from, to, _)| (from, to) == (dead, peer)) {
                        self.unreported.swap_remove(at);
                        self.step(peer, Input::PeerDown(dead));
                    }
                }
                4 if !self.holding.is_empty() => {
                    let at = self.below(self.holding.len());
                    let client = *self.holding.keys().nth(at).expect("counted above");
                    self.holding.remove(&client);
                    self.step(client.0, Input::Release(client.1));
                }
                5.. if !self.under_way.is_empty() => {
                    let at = self.below(self.under_way.len());
                    let (from, to, message) = self.under_way.swap_remove(at);
                    self.step(to, Input::Message { from, message });
                }
                _ => {}
            }
            assert!(self.holding.len() <= self.slots, "too many holders: {:?}", self.holding);
            let is_quiet = self.under_way.is_empty() && self.unreported.is_empty() && self.holding.is_empty();
            if is_quiet && requests == 0 && deaths == 0 {
                return assert_eq!(self.waiting, [], "no event is pending, but clients wait");
            }
        }
        panic!("the run does not end: {} wait, {} messages are in flight", self.waiting.len(), self.under_way.len());
    }

    fn die(&mut self, dead: PeerId) {
        self.peers.remove(&dead);
        self.waiting.retain(|client| client.0 != dead);
        self.holding.retain(|client, _| client.0 != dead);
        self.unreported.retain(|notified| notified.0 != dead);
        self.unreported.extend(self.peers.keys().map(|&peer| (peer, dead)));
    }

    fn step(&mut self, at: PeerId, input: Input<Message<P>, Never>) {
        let Some(peer) = self.peers.get_mut(&at) else { return };
        let mut effects = Vec::new();
        step(peer, input, &mut Cx::new(at, Time::ZERO, &mut self.rng, &mut effects));
        for effect in effects {
            match effect {
                Effect::Send { to, message } => self.under_way.push((at, to, message)),
                Effect::Grant { ticket, grant } => {
                    let waited = self.waiting.iter().position(|&client| client == (at, ticket));
                    self.waiting.remove(waited.unwrap_or_else(|| panic!("{at:?} {ticket:?} did not wait")));
                    let last = &mut self.fencing[grant.slot as usize];
                    assert!(grant.fencing > *last, "fencing numbers of a slot increase: {last} before {grant:?}");
                    *last = grant.fencing;
                    self.holding.insert((at, ticket), grant);
                }
                // For example, a late copy of a state for which its receiver already acts.
                Effect::Unexpected { .. } => {}
                other => panic!("{other:?}"),
            }
        }
    }
}

struct Named(String);

impl Drop for Named {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("failed with {}", self.0);
        }
    }
}

fn survives<P: Backable>(name: &str, config: Config, deaths: usize, part: impl Fn(PeerId, &Layout) -> P) {
    for (peers, slots, seed) in [(4, 1), (6, 2), (8, 3)].into_iter().flat_map(|(n, k)| (0..150).map(move |s| (n, k, s)))
    {
        let _named = Named(format!("{name}, {config:?}, {peers} peers, {slots} slots, seed {seed}"));
        World::new(peers, slots, config, seed, &part).run(4 * peers as usize, deaths);
    }
}

#[test]
fn crashes_up_to_number_of_backups_are_survived() {
    for deaths in [0, 1, 2] {
        let config = Config { backups: deaths, recovers: false };
        survives("fair-k", config, deaths, |me, layout| FairK::new(me, layout, fair_k::Config::PRINTED));
        survives("late", config, deaths, |me, layout| FairKLate::new(me, layout, fair_k_late::Config::default()));
        survives("bv95", config, deaths, |me, layout| Bv95::new(me, layout, bv95::Config::default()));
    }
}

#[test]
fn request_in_parent_cycle_at_one_peer_is_given_up() {
    let [me, one, two, three] = [0, 1, 2, 3].map(PeerId::new);
    let (ring, config) = (Ring::in_order([one, two, me, three]), Config { backups: 2, recovers: false });
    let part = |whose, root| {
        let layout = Layout { root, tokens: vec![PeerId::new(9)] };
        FairK::new(whose, &layout, fair_k::Config::PRINTED)
    };
    let mut rng = Rng::new(1);
    let mut did = |peer: &mut Backed<FairK>, at, input| {
        let mut effects = Vec::new();
        step(peer, input, &mut Cx::new(at, Time::ZERO, &mut rng, &mut effects));
        effects
    };
    let say = |effects: Vec<Effect<Message<FairK>, Never>>| {
        let mut say = effects.into_iter().filter_map(|effect| match effect {
            Effect::Send { message: message @ Message::Say { .. }, .. } => Some(message),
            _ => None,
        });
        say.next().expect("a request to the parent")
    };
    // Peer 1 requests at 3, which forwards to 2. Peer 0 then acts for both 1 and 2, and in its copies each is the
    // parent of the other.
    let mut requester = Backed::new(one, &ring, config, |whose| part(whose, three));
    let message = say(did(&mut requester, one, Input::Request(Ticket::new(1))));
    let mut forwarder = Backed::new(three, &ring, config, |whose| part(whose, two));
    let message = say(did(&mut forwarder, three, Input::Message { from: one, message }));
    let mut peer = Backed::new(me, &ring, config, |whose| part(whose, if whose == one { two } else { one }));
    did(&mut peer, me, Input::PeerDown(one));
    did(&mut peer, me, Input::PeerDown(two));
    let effects = did(&mut peer, me, Input::Message { from: three, message });
    let unexpected =
        effects.iter().filter(|effect| matches!(effect, Effect::Unexpected { why } if why.contains("cycle")));
    assert_eq!(unexpected.count(), 1, "{} effects", effects.len());
    assert_eq!(did(&mut peer, me, Input::Release(Ticket::new(9))).len(), 0, "no state is left");
}
