//! What happens to sessions and slots where there is a register: deaths, new sessions, take-overs, force, detached
//! grants, other numbers of slots; and the words that travel because of it, late and in any order.

use std::fmt;
use std::sync::Arc;

use peerlock_base::{PeerId, Ticket};
use peerlock_protocols::register::{Detached, Fact, Session, Wish, Word};
use peerlock_protocols::{Effect, Grant, Input};

use super::register::Register;
use super::{Action, Explorable, Fates, Local, Node, Slip, World};
use crate::Violation;

/// Something between the register and a session, under way.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Post {
    /// From the register.
    Word(Word),
    /// To the register.
    Wish(Session, Wish),
    /// To the register: the resource is to be removed, in which somebody has seen nobody in this generation.
    Remove(u64),
    /// To the register: this session takes the detached grant for over that its client of this ticket has or had.
    Attach(Session, Ticket, Detached),
}

/// What an administrator has ordered, and the register has done: a copy may arrive later.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Order {
    /// To force out this session, which had been a party since that generation.
    Expel(Session, u64),
    /// To have so many slots, by who has looked in that generation.
    Resize(u32, u64),
    /// To take back the detached grant of this number.
    TakeBack(u64),
}

/// Something that may happen to a session or a slot. Where a generation is opened because of it, the last number says
/// which of the parties coordinates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// The word or wish at this place arrives.
    Hear(usize),
    /// The word or wish at this place will arrive twice.
    Repeat(usize),
    /// This peer dies, or could not renew its session: all that it had is gone.
    Stop(usize),
    /// The register ends the session of a peer that has stopped.
    End(Session, usize),
    /// A peer that has stopped begins anew.
    Begin(usize),
    /// The process at this peer is killed, and another takes over what its clients have, but for those that are
    /// detached: they stay inside by the register.
    TakeOver(usize, usize),
    /// The resource gets another number of slots.
    Resize(usize),
    /// This peer is forced out.
    Expel(usize, usize),
    /// Nobody at this peer has used the resource for a while.
    Forget(usize),
    /// Somebody sees that nobody takes part in the resource, and wants it removed.
    Remove,
    /// The register is told of the end of this grant.
    Detach(usize, Ticket),
    /// The client of a detached grant whose peer is gone leaves.
    LeaveAlone(usize),
    /// The register knows that the detached grant at this place is over.
    Expire(usize),
    /// The process at this peer takes the detached grant of this number for over, and its client does not hear of it.
    TakeBack(usize, u64),
    /// A client renews the detached grant at this place, at a later process of its host.
    Renew(usize),
    /// By force: the detached grant at this place, whose session is no party, is over.
    Free(usize),
    /// A copy of the order at this place arrives.
    Again(usize),
}

impl Fate {
    /// Whether it happens sooner or later. Anything else may never happen.
    pub(crate) fn is_certain(&self) -> bool {
        matches!(self, Self::Hear(_) | Self::End(..) | Self::LeaveAlone(_) | Self::Expire(_))
    }
}

/// The register and what belongs to it.
#[derive(Clone, PartialEq, Eq, Hash)]
pub(super) struct Cluster {
    pub(super) register: Register,
    /// What is under way, sorted.
    post: Vec<Post>,
    /// Detached clients that are inside by the register, and not by a token at their peer.
    pub(super) alone: Vec<(PeerId, Ticket, Grant)>,
    /// Detached clients that do not know that their grant was taken back, and by which session.
    pub(super) unaware: Vec<(Session, Ticket, Grant)>,
    /// Orders that were done and may arrive again, sorted.
    pub(super) orders: Vec<Order>,
    /// How often what may happen still may.
    pub(super) left: Fates,
    /// How often the number of slots has changed.
    resized: usize,
}

impl Cluster {
    pub(super) fn new(ids: &[PeerId], fates: &Fates, slots: usize) -> Self {
        Self {
            register: Register::new(ids, fates, slots as u32),
            post: Vec::new(),
            alone: Vec::new(),
            unaware: Vec::new(),
            orders: Vec::new(),
            left: *fates,
            resized: 0,
        }
    }

    pub(super) fn send(&mut self, post: Post) {
        let place = self.post.partition_point(|other| *other <= post);
        self.post.insert(place, post);
    }

    /// An order was done.
    pub(super) fn note_order(&mut self, order: Order) {
        if self.left.repeats > 0 {
            let place = self.orders.partition_point(|other| *other <= order);
            self.orders.insert(place, order);
        }
    }

    /// It arrives once more. It must not do anything.
    fn repeat_order(&mut self, at: usize, slip: Option<Slip>) -> Result<Option<Word>, Violation> {
        let order = self.orders.remove(at);
        self.left.repeats -= 1;
        if self.left.repeats == 0 {
            self.orders.clear();
        }
        match order {
            Order::Expel(session, since) => {
                let counts = self.register.since(session) == Some(since);
                if !counts && (slip != Some(Slip::ExpelsLate) || !self.register.is_party(session)) {
                    return Ok(None);
                }
                let [told, opened] = self.register.expel(session, 0);
                told.into_iter().for_each(|word| self.send(Post::Word(word)));
                Ok(opened)
            }
            Order::Resize(slots, _) if slots == self.register.slots => Ok(None),
            Order::Resize(_, looked) => match self.register.may_resize(looked) || slip == Some(Slip::ResizesLate) {
                true => Err(Violation::Undone(self.register.slots)),
                false => Ok(None),
            },
            Order::TakeBack(fencing) => match self.register.place_of(fencing) {
                Some(at) => Ok(self.register.expire(at)),
                None => Ok(None),
            },
        }
    }

    /// The register hears what a session wishes: the generation that it opens, if it does.
    fn on_wish(&mut self, from: Session, wish: Wish, slip: Option<Slip>) -> Option<Word> {
        let Wish::Quit { generation } = wish else { return self.register.grant(from, &wish, slip) };
        let [told, opened] = self.register.quit(from, generation, 0, slip);
        told.into_iter().for_each(|word| self.send(Post::Word(word)));
        opened
    }

    /// The register hears that a name is to be removed, and tells nobody of what it does not know.
    fn remove(&mut self, generation: u64, slip: Option<Slip>) {
        if self.register.remove(generation, slip) {
            self.post.retain(|post| !matches!(post, Post::Word(word) if word.fact == Fact::Expelled));
        }
    }
}

impl<P: Explorable> World<P> {
    pub(super) fn cluster_mut(&mut self) -> &mut Cluster {
        Arc::make_mut(self.cluster.as_mut().expect("fates are for worlds with a register"))
    }

    pub(super) fn session(&self, at: usize) -> Session {
        Session { peer: self.ids()[at], number: self.nodes[at].local.session }
    }

    /// Whether the peer at this place has not stopped.
    pub fn is_up(&self, at: usize) -> bool {
        self.nodes[at].local.is_up
    }

    /// The peer that something happens to; with none, the first.
    pub(super) fn actor_of(&self, fate: Fate) -> PeerId {
        match fate {
            Fate::LeaveAlone(_) | Fate::Expire(_) | Fate::Resize(_) | Fate::Remove => self.ids()[0],
            Fate::Again(at) => match self.orders()[at] {
                Order::Expel(session, _) => session.peer,
                Order::Resize(..) | Order::TakeBack(_) => self.ids()[0],
            },
            Fate::Hear(at) | Fate::Repeat(at) => match &self.post()[at] {
                Post::Word(word) => word.to.peer,
                Post::Wish(from, _) | Post::Attach(from, ..) => from.peer,
                Post::Remove(_) => self.ids()[0],
            },
            Fate::End(session, _) => session.peer,
            Fate::Renew(at) | Fate::Free(at) => self.detached()[at].0.peer,
            Fate::Stop(at) | Fate::Begin(at) | Fate::TakeOver(at, _) | Fate::Expel(at, _) => self.ids()[at],
            Fate::Forget(at) | Fate::Detach(at, _) | Fate::TakeBack(at, _) => self.ids()[at],
        }
    }

    /// How many slots the resource has when it is next resized.
    pub(crate) fn next_slots(&self) -> u32 {
        let resized = self.cluster.as_ref().map_or(0, |cluster| cluster.resized);
        self.rules.limits.fates.map_or(0, |fates| fates.resizes[resized])
    }

    /// The words and wishes under way.
    pub fn post(&self) -> &[Post] {
        self.cluster.as_ref().map_or(&[], |cluster| &cluster.post)
    }

    /// The orders that were done and may arrive again.
    pub fn orders(&self) -> &[Order] {
        self.cluster.as_ref().map_or(&[], |cluster| &cluster.orders)
    }

    /// Takes a wish to the register on its way; what is wrong if there is none.
    pub(super) fn wish(&mut self, at: usize, wish: &Wish) -> Option<Violation> {
        if self.cluster.is_none() {
            return Some(Violation::Strange(self.ids()[at], "a wish to the register, and there is none in this world"));
        }
        let post = Post::Wish(self.session(at), wish.clone());
        self.cluster_mut().send(post);
        None
    }

    /// Everything that may happen to sessions and slots next.
    pub(super) fn fates(&self, actions: &mut Vec<Action<P::Timer>>) {
        let (Some(cluster), Some(fates)) = (&self.cluster, self.rules.limits.fates) else { return };
        let register = &cluster.register;
        let choices = || 0..register.choices(fates.any_coordinator);
        let mut add = |fate| actions.push(Action::Fate(fate));
        let is_new = |at: &usize| *at == 0 || cluster.post[*at] != cluster.post[*at - 1];
        (0..cluster.post.len()).filter(is_new).for_each(|at| add(Fate::Hear(at)));
        if cluster.left.repeats > 0 {
            (0..cluster.post.len()).filter(is_new).for_each(|at| add(Fate::Repeat(at)));
            let is_new = |at: &usize| *at == 0 || cluster.orders[*at] != cluster.orders[*at - 1];
            (0..cluster.orders.len()).filter(is_new).for_each(|at| add(Fate::Again(at)));
        }
        for (at, node) in self.nodes.iter().enumerate() {
            let (local, session) = (&node.local, self.session(at));
            // Who was forced out is mostly one that has died.
            if cluster.left.forces > 0 && register.is_party(session) {
                choices().for_each(|choice| add(Fate::Expel(at, choice)));
            }
            if !local.is_up {
                if cluster.left.sessions > 0 {
                    add(Fate::Begin(at));
                }
                continue;
            }
            if cluster.left.stops > 0 {
                add(Fate::Stop(at));
            }
            if cluster.left.takeovers > 0 {
                choices().for_each(|choice| add(Fate::TakeOver(at, choice)));
            }
            if cluster.left.forgets > 0 && local.inside.is_empty() && local.waiting.is_empty() {
                add(Fate::Forget(at));
            }
        }
        let has_stopped = |session: &Session| {
            let local = &self.nodes[self.place(session.peer)].local;
            !local.is_up || local.session != session.number
        };
        for session in register.sessions().filter(has_stopped) {
            choices().for_each(|choice| add(Fate::End(session, choice)));
        }
        if fates.resizes.get(cluster.resized).is_some_and(|&slots| slots > 0) {
            choices().for_each(|choice| add(Fate::Resize(choice)));
        }
        if cluster.left.removes > 0 && register.is_left() {
            add(Fate::Remove);
        }
        self.fates_of_detached(cluster, add);
    }

    /// Makes it happen.
    pub(super) fn befall(&mut self, fate: Fate, effects: &mut Vec<Effect<P::Message, P::Timer>>) -> Option<Violation> {
        let slip = self.rules.limits.fates.and_then(|fates| fates.slip);
        let word = match fate {
            Fate::Hear(at) => match self.cluster_mut().post.remove(at) {
                Post::Word(word) => {
                    let at = self.place(word.to.peer);
                    let local = self.nodes[at].local.clone();
                    return if local.is_up { self.step(at, local, Input::Word(word), effects) } else { None };
                }
                Post::Wish(from, wish) => self.cluster_mut().on_wish(from, wish, slip),
                Post::Remove(generation) => {
                    self.cluster_mut().remove(generation, slip);
                    None
                }
                Post::Attach(from, ticket, it) => return self.attach(from, ticket, it, effects),
            },
            Fate::Repeat(at) => {
                let cluster = self.cluster_mut();
                cluster.left.repeats -= 1;
                if cluster.left.repeats == 0 {
                    cluster.orders.clear();
                }
                cluster.post.insert(at, cluster.post[at].clone());
                None
            }
            Fate::Again(at) => match self.cluster_mut().repeat_order(at, slip) {
                Ok(word) => word,
                Err(violation) => return Some(violation),
            },
            Fate::Stop(at) => {
                self.stop(at);
                None
            }
            Fate::End(session, choice) => {
                let register = &mut self.cluster_mut().register;
                let is_asked = register.is_party(session) && register.coordinator != Some(session);
                if slip == Some(Slip::EndUnnoticed) && is_asked {
                    register.forget(session)
                } else {
                    register.end(session, choice)
                }
            }
            Fate::Begin(at) => {
                self.begin(at);
                None
            }
            Fate::TakeOver(at, choice) => self.take_over(at, choice, slip),
            Fate::Resize(choice) => {
                let slots = self.next_slots();
                let cluster = self.cluster_mut();
                cluster.resized += 1;
                let looked = cluster.register.generation;
                let word = cluster.register.resize(slots, choice);
                if cluster.left.repeats > 0 {
                    cluster.register.note_resized();
                    cluster.note_order(Order::Resize(slots, looked));
                }
                word
            }
            Fate::Expel(at, choice) => self.expel(at, choice),
            Fate::Forget(at) => {
                self.cluster_mut().left.forgets -= 1;
                return self.step(at, self.nodes[at].local.clone(), Input::Forget, effects);
            }
            Fate::Remove => {
                let cluster = self.cluster_mut();
                cluster.left.removes -= 1;
                cluster.send(Post::Remove(cluster.register.generation));
                None
            }
            Fate::TakeBack(at, fencing) => return self.take_back(at, fencing, effects),
            Fate::Detach(..) | Fate::LeaveAlone(_) | Fate::Expire(_) | Fate::Renew(_) | Fate::Free(_) => {
                self.befall_detached(fate);
                None
            }
        };
        if let Some(word) = word {
            self.cluster_mut().send(Post::Word(word));
        }
        self.forget_undeliverable();
        None
    }

    pub(super) fn set(&mut self, at: usize, local: Local<P>) {
        self.nodes[at] = Arc::new(Node::new(local, &self.rules.ids, &self.rules.limits));
    }

    fn successor(&self, at: usize, inside: &[(Ticket, Grant)]) -> P {
        let Local { peer, session, .. } = &self.nodes[at].local;
        peer.successor(session + 1, inside).expect("only protocols that know sessions can lose them")
    }

    fn stop(&mut self, at: usize) {
        let me = self.ids()[at];
        let Local { asked, retired, session, ref inside, .. } = self.nodes[at].local;
        let inside = inside.clone();
        let (peer, timers, waiting) = (self.successor(at, &[]), Vec::new(), Vec::new());
        let (is_up, is_forced) = (false, false);
        self.set(at, Local { peer, timers, asked, waiting, inside: Vec::new(), retired, session, is_up, is_forced });
        let cluster = self.cluster_mut();
        cluster.left.stops -= 1;
        cluster.leave_alone(me, inside);
    }

    fn begin(&mut self, at: usize) {
        let (peer, session) = (self.successor(at, &[]), self.nodes[at].local.session + 1);
        self.set(at, Local { peer, session, is_up: true, ..self.nodes[at].local.clone() });
        let new = self.session(at);
        let cluster = self.cluster_mut();
        cluster.left.sessions -= 1;
        cluster.register.begin(new);
    }

    fn expel(&mut self, at: usize, choice: usize) -> Option<Word> {
        let session = self.session(at);
        let local = self.nodes[at].local.clone();
        // Who has stopped has nothing.
        let local = Local { is_forced: local.is_up, ..local };
        self.set(at, local);
        let may_be_removed = self.rules.limits.fates.is_some_and(|fates| fates.removes > 0);
        let cluster = self.cluster_mut();
        cluster.left.forces -= 1;
        if let Some(since) = cluster.register.since(session) {
            cluster.note_order(Order::Expel(session, since));
        }
        let [told, opened] = cluster.register.expel(session, choice);
        if may_be_removed {
            cluster.register.note_forced(session);
        }
        told.into_iter().for_each(|word| cluster.send(Post::Word(word)));
        cluster.forget_forced();
        opened
    }

    fn take_over(&mut self, at: usize, choice: usize, slip: Option<Slip>) -> Option<Word> {
        let old = self.session(at);
        let inside = self.nodes[at].local.inside.clone();
        let inside = self.cluster_mut().leave_alone(old.peer, inside);
        let known = if slip == Some(Slip::NoGrantFile) { &[] } else { &inside[..] };
        let (peer, has_clients) = (self.successor(at, known), !known.is_empty());
        let Local { asked, retired, session, is_forced, .. } = self.nodes[at].local;
        let (timers, waiting, session, is_up) = (Vec::new(), Vec::new(), session + 1, true);
        self.set(at, Local { peer, timers, asked, waiting, inside, retired, session, is_up, is_forced });
        let new = self.session(at);
        let cluster = self.cluster_mut();
        cluster.left.takeovers -= 1;
        if slip == Some(Slip::TakeOverUnnoticed) {
            cluster.register.replace(old, new);
            return None;
        }
        cluster.register.take_over(old, new, has_clients, choice)
    }

    /// Whether a peer that was forced out takes part again, with nothing from before: it is watched like all others.
    pub(super) fn is_back(&self, at: usize, local: &Local<P>) -> bool {
        let Some(register) = self.cluster.as_ref().map(|cluster| &cluster.register) else { return false };
        let is_there = register.is_party(self.session(at)) && local.peer.generation() == register.generation;
        is_there && local.inside.is_empty() && local.peer.tokens() == 0
    }

    /// How many slots there are, if nothing is under way or about to happen by itself, and nobody has stopped or was
    /// forced out: then none of them may be empty while somebody waits.
    pub(super) fn slots_when_calm(&self) -> Option<usize> {
        let cluster = self.cluster.as_ref()?;
        let is_calm = |node: &Arc<Node<P>>| node.local.is_up && !node.local.is_forced && node.local.timers.is_empty();
        let nobody_is_alone = self.detached().is_empty() && cluster.unaware.is_empty();
        let is_used = |session: Session| self.session(self.place(session.peer)) == session;
        let is_known = cluster.post.is_empty() && cluster.register.sessions().all(is_used);
        let is_calm = is_known && nobody_is_alone && self.nodes.iter().all(is_calm);
        is_calm.then_some(cluster.register.slots as usize)
    }

    /// Whether the register's word to this peer that it was forced out is still under way.
    pub(super) fn is_to_be_expelled(&self, peer: PeerId) -> bool {
        let is_it =
            |post: &Post| matches!(post, Post::Word(word) if word.to.peer == peer && word.fact == Fact::Expelled);
        self.post().iter().any(is_it)
    }

    /// Takes away what is under way and can do nothing any more: to a peer that has stopped for good, or where the
    /// limits want it, from or to a session that is over, or about a generation that the register has left behind.
    pub(super) fn forget_undeliverable(&mut self) {
        let Some(cluster) = &self.cluster else { return };
        let is_down = |peer: PeerId| cluster.left.sessions == 0 && !self.nodes[self.place(peer)].local.is_up;
        let is_over = |session: Session| self.session(self.place(session.peer)) != session;
        let is_tidy = self.rules.limits.tidy;
        let is_lost = |post: &Post| match post {
            Post::Word(word) => is_down(word.to.peer) || is_tidy && is_over(word.to),
            Post::Wish(from, _) if is_tidy && !cluster.register.stands(*from) => true,
            Post::Wish(_, Wish::Close { generation, .. } | Wish::Renumber { generation }) => {
                is_tidy && *generation < cluster.register.generation
            }
            Post::Attach(from, ..) if is_tidy && !cluster.register.stands(*from) => true,
            Post::Wish(_, Wish::Join | Wish::Quit { .. }) | Post::Remove(_) | Post::Attach(..) => false,
        };
        let post = cluster.post.iter().any(is_lost).then(|| {
            let kept = cluster.post.iter().filter(|post| !is_lost(post));
            kept.cloned().collect()
        });
        let is_any_down = cluster.left.sessions == 0 && self.nodes.iter().any(|node| !node.local.is_up);
        if is_any_down {
            let mut letters = std::mem::take(&mut self.letters);
            letters.retain(|sealed| self.nodes[self.place(sealed.letter.to)].local.is_up);
            self.letters = letters;
        }
        if let Some(post) = post {
            self.cluster_mut().post = post;
        }
    }

    /// Whether everything is over that happens by itself: whoever waits now waits for ever, unless something happens
    /// that need not happen.
    pub(crate) fn is_at_rest(&self, actions: &[Action<P::Timer>]) -> bool {
        let may_wait = |action: &Action<P::Timer>| match action {
            Action::Fate(fate) => !fate.is_certain(),
            Action::Request(_) | Action::Withdraw(..) => self.cluster.is_some(),
            _ => false,
        };
        actions.iter().all(may_wait)
    }

    /// What must not be when everything is over.
    pub(crate) fn wrong_at_rest(&self) -> Option<Violation> {
        if self.has_timers() {
            return None;
        }
        let waiting = self.all_waiting();
        if waiting.is_empty() { self.lost_slot() } else { Some(Violation::Stuck(waiting)) }
    }

    /// A slot that nobody has.
    fn lost_slot(&self) -> Option<Violation> {
        let Register { coordinator, slots, .. } = self.cluster.as_ref()?.register;
        coordinator?;
        let is_here = |slot: &u32| self.nodes.iter().any(|node| node.facts.slots().contains(slot));
        (0..slots).find(|slot| !is_here(slot)).map(Violation::SlotLost)
    }

    /// A slot whose token is at two peers, or twice at one. What was forced out does not count.
    pub(super) fn slot_twice(&self) -> Option<Violation> {
        let cluster = self.cluster.as_ref()?;
        let honest = || self.nodes.iter().filter(|node| !node.local.is_forced);
        let slots = || honest().flat_map(|node| node.facts.slots()).copied();
        let alone = |slot: u32| cluster.alone.iter().filter(|(_, _, grant)| grant.slot == slot).count();
        let count = |slot: u32| slots().filter(|other| *other == slot).count() + alone(slot);
        let taken_alone = cluster.alone.iter().map(|(_, _, grant)| grant.slot);
        slots().chain(taken_alone).find(|&slot| count(slot) > 1).map(Violation::SlotTwice)
    }
}

/// `→ register  expel(2.1, party since 3)`.
impl fmt::Display for Order {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Expel(session, since) => write!(f, "→ register  expel({session}, party since {since})"),
            Self::Resize(slots, looked) => write!(f, "→ register  resize(slots {slots}, seen in generation {looked})"),
            Self::TakeBack(fencing) => write!(f, "→ register  take_back({fencing})"),
        }
    }
}

/// `register → 0  opened(…)`, `2.1 → register  join`.
impl fmt::Display for Post {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Word(word) => write!(f, "register → {}  {word}", word.to),
            Self::Wish(from, wish) => write!(f, "{from} → register  {wish}"),
            Self::Remove(generation) => write!(f, "→ register  remove(generation {generation})"),
            Self::Attach(from, _, Detached { slot, fencing }) => {
                write!(f, "{from} → register  attach(slot {slot} detached as {fencing})")
            }
        }
    }
}
