//! The product's own peer as an actor: a whole node, on connections made of single messages.

use std::collections::BTreeMap;
use std::fmt;
use std::marker::PhantomData;

use peerlock_base::{PeerId, Rng, Span, Ticket, Time};
use peerlock_mutex::Never;
use peerlock_node::{self as node, Answer, Birth, Error, Guard, Node, Notice, SessionId, TicketId, Wait, Wanted};

use self::links::{BEAT, Connections, Part};
use super::{Actor, Cx, Effect, Input};

mod links;

pub use links::address;

/// The product's own peer, with its clients and its connections.
///
/// Clients differ, as real ones do: most have their lease renewed by the peer, some renew it themselves, a few forget
/// to; most wait as long as it takes, some for a while, some not at all.
pub struct Whole<P: Guard, O: node::Routing> {
    node: Node<P, O>,
    connections: Connections,
    visits: BTreeMap<Ticket, Visit>,
    tickets: BTreeMap<TicketId, Ticket>,
    slots: u32,
    /// Clients wait as long as it takes.
    is_patient: bool,
    /// When the node was last told to be woken.
    wake: Option<Time>,
}

/// One request of a client, from when it asks until it is out again.
#[derive(Clone, Copy, Debug)]
struct Visit {
    ticket: Option<TicketId>,
    is_inside: bool,
    /// How often it renews its lease by itself.
    renews: Option<Span>,
}

/// What a node may be told beside requests and releases.
#[derive(Debug)]
pub enum Command {
    /// Join these peers, or begin alone if there are none.
    Start(Vec<PeerId>),
    /// Hand over what it has, and go.
    Leave,
    /// From now on clients here wait as long as it takes and have their leases renewed, so that they are to be served;
    /// or they differ again.
    Patience(bool),
}

/// What happens at a node beside what becomes of its clients.
#[derive(Clone, Debug)]
pub enum Note {
    /// It is in the cluster.
    Joined,
    /// It found nobody to join.
    NotJoined,
    /// It has left in good order.
    Left,
    /// A client was told this, and holds and waits for nothing any more.
    Told(Ticket, Error),
}

/// The names of the timers.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Timer {
    /// The node wants to be woken.
    Wake,
    /// Connections are to be looked after.
    Beat,
    /// A client renews its lease.
    Renew(Ticket),
}

impl<P: Guard, O: node::Routing> Whole<P, O> {
    /// A peer in its nth life, for resources with `slots` slots. Everything that is random about it is in `seed`.
    pub fn new(me: PeerId, life: u64, seed: u64, slots: u32) -> Self {
        let birth = Birth { process: life, micros: 0, rng: Rng::stream(seed, life) };
        Self {
            node: Node::new(me, vec![address(me)], birth, node::Config::default()),
            connections: Connections::default(),
            visits: BTreeMap::new(),
            tickets: BTreeMap::new(),
            slots,
            is_patient: true,
            wake: None,
        }
    }

    /// A client's wishes, drawn at random.
    fn wanted(&self, resource: usize, ticket: Ticket, rng: &mut Rng) -> (Wanted, Option<Span>) {
        if self.is_patient {
            return (self.wish(resource, ticket, Span::from_secs(30), Wait::Forever, true), None);
        }
        let ttl = Span::from_secs([5, 12, 30][rng.below(3) as usize]);
        let wait = match rng.below(10) {
            0 => Wait::Try,
            1 | 2 => Wait::For(rng.between(Span::from_secs(1), Span::from_secs(20))),
            _ => Wait::Forever,
        };
        let kept = rng.chance(0.7);
        let renews = (!kept && rng.chance(0.7)).then_some(ttl / 3);
        (self.wish(resource, ticket, ttl, wait, kept), renews)
    }

    fn wish(&self, resource: usize, ticket: Ticket, ttl: Span, wait: Wait, kept: bool) -> Wanted {
        let name = format!("r{resource}").parse().expect("a name");
        let (grace, session, slots) = (ttl / 5, SessionId(ticket.get()), Some(self.slots));
        Wanted { name, slots, ttl, grace, kept, wait, label: String::new(), session, request: None }
    }

    fn ask(&mut self, ticket: Ticket, wanted: Wanted, renews: Option<Span>) -> node::Input {
        self.visits.insert(ticket, Visit { ticket: None, is_inside: false, renews });
        node::Input::Acquire { call: ticket.get(), wanted }
    }

    /// A client is done, whatever comes of it: its node's ticket.
    fn forget(&mut self, ticket: Ticket) -> Option<TicketId> {
        let id = self.visits.remove(&ticket)?.ticket?;
        self.tickets.remove(&id);
        Some(id)
    }

    /// Hands what has happened to the node, and does what it wants done.
    fn settle(&mut self, input: Option<node::Input>, cx: &mut Cx<'_>, out: &mut Vec<Effect<Self>>) {
        let mut inputs: Vec<node::Input> = input.into_iter().collect();
        inputs.extend(self.connections.events.drain(..).rev().map(node::Input::Net));
        while let Some(input) = inputs.pop() {
            let mut effects = Vec::new();
            self.node.step(input, cx.now, &mut effects);
            for effect in effects {
                self.carry_out(effect, cx, &mut inputs, out);
            }
            inputs.extend(self.connections.events.drain(..).rev().map(node::Input::Net));
        }
        for (to, packet) in self.connections.packets.drain(..) {
            out.push(Effect::Send { to, message: Packet(packet, PhantomData) });
        }
        let wake = self.node.next_wake();
        if let Some(at) = wake.filter(|_| wake != self.wake) {
            out.push(Effect::SetTimer { timer: Timer::Wake, after: at.since(cx.now) });
        }
        self.wake = wake;
    }

    fn carry_out(
        &mut self,
        effect: node::Effect,
        cx: &mut Cx<'_>,
        inputs: &mut Vec<node::Input>,
        out: &mut Vec<Effect<Self>>,
    ) {
        match effect {
            node::Effect::Send { to, epoch, bytes } => self.connections.send(to, epoch, bytes),
            node::Effect::HangUp(peer) => self.connections.hang_up(peer, "we hang up"),
            node::Effect::Dial(address) => self.connections.dial(&address, cx.me, cx.now),
            node::Effect::Joined => out.push(Effect::Note(Note::Joined)),
            node::Effect::NotJoined => out.push(Effect::Note(Note::NotJoined)),
            node::Effect::Left => out.push(Effect::Note(Note::Left)),
            node::Effect::Answer { call, answer } => self.on_answer(Ticket::new(call), answer, out),
            node::Effect::Granted { ticket: id, .. } => {
                let (Some(&ticket), Some((grant, _))) = (self.tickets.get(&id), self.node.grant(id)) else { return };
                let visit = self.visits.get_mut(&ticket).expect("a ticket is a client's");
                visit.is_inside = true;
                if let Some(after) = visit.renews {
                    out.push(Effect::SetTimer { timer: Timer::Renew(ticket), after });
                }
                out.push(Effect::Grant { ticket, grant });
            }
            node::Effect::Lost(id) => {
                let Some(ticket) = self.tickets.get(&id).copied() else { return };
                self.forget(ticket);
                out.push(Effect::Lost { ticket });
                // Half of them say so, the others leave it to the end of the lease.
                if cx.rng.chance(0.5) {
                    inputs.push(node::Input::Release { call: None, ticket: id });
                }
            }
            node::Effect::Ended(id, error) => {
                let Some(ticket) = self.tickets.get(&id).copied() else { return };
                let inside = self.visits.get(&ticket).is_some_and(|visit| visit.is_inside);
                self.forget(ticket);
                out.push(Effect::Note(Note::Told(ticket, error)));
                out.push(if inside { Effect::Lost { ticket } } else { Effect::Refused { ticket } });
            }
            node::Effect::Notice(Notice::FoundedTwice { .. }) => {
                out.push(Effect::Impossible { what: "hears of a resource that was founded twice" });
            }
            node::Effect::Notice(Notice::Strange(why)) => out.push(Effect::Strange { why }),
            node::Effect::Notice(_)
            | node::Effect::Renewed { .. }
            | node::Effect::Progress(..)
            | node::Effect::Event(_)
            | node::Effect::Drained => {}
        }
    }

    fn on_answer(&mut self, ticket: Ticket, answer: Result<Answer, Error>, out: &mut Vec<Effect<Self>>) {
        match answer {
            Ok(Answer::Ticket(id)) => {
                self.tickets.insert(id, ticket);
                self.visits.get_mut(&ticket).expect("it has just asked").ticket = Some(id);
            }
            Err(error) => {
                let waited = self.visits.get(&ticket).is_some_and(|visit| visit.ticket.is_none());
                if waited {
                    self.visits.remove(&ticket);
                    out.push(Effect::Note(Note::Told(ticket, error)));
                    out.push(Effect::Refused { ticket });
                }
            }
            Ok(Answer::Released | Answer::Renewed(_) | Answer::Shown(_)) => {}
        }
    }
}

/// A message between nodes.
pub struct Packet<P, O>(links::Packet, PhantomData<fn() -> (P, O)>);

impl<P, O> Clone for Packet<P, O> {
    fn clone(&self) -> Self {
        Self(self.0.clone(), PhantomData)
    }
}

impl<P: Guard, O: node::Routing> fmt::Debug for Packet<P, O> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0.part {
            Part::Data(number, bytes) => write!(f, "#{number}: {}", node::describe::<P, O>(bytes)),
            part => write!(f, "{part:?}"),
        }
    }
}

/// What a node wants done, in order.
pub struct Buffers<A: Actor>(Vec<Effect<A>>);

impl<A: Actor> Default for Buffers<A> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<P: Guard, O: node::Routing> Actor for Whole<P, O> {
    type Message = Packet<P, O>;
    type Timer = Timer;
    type Command = Command;
    type Note = Note;
    type Disk = ();
    type Write = Never;
    type Buffers = Buffers<Self>;

    const KINDS: &'static [&'static str] = &["data"];

    /// What keeps connections up is upkeep.
    fn kind(message: &Self::Message) -> Option<usize> {
        matches!(message.0.part, Part::Data(..)).then_some(0)
    }

    fn step(&mut self, input: Input<Self>, mut cx: Cx<'_>, Buffers(out): &mut Self::Buffers) {
        let now = cx.now;
        let input = match input {
            Input::Request { resource, ticket } => {
                let (wanted, renews) = self.wanted(resource, ticket, cx.rng);
                self.ask(ticket, wanted, renews)
            }
            Input::Release { ticket, .. } => {
                let Some(ticket) = self.forget(ticket) else { return };
                node::Input::Release { call: None, ticket }
            }
            Input::Message { from, message } => {
                self.connections.on_packet(from, message.0, cx.me, now);
                return self.settle(None, &mut cx, out);
            }
            Input::Timer(Timer::Wake) => {
                self.wake = None;
                node::Input::Wake
            }
            Input::Timer(Timer::Beat) => {
                self.connections.beat(cx.me, now);
                out.push(Effect::SetTimer { timer: Timer::Beat, after: BEAT });
                return self.settle(None, &mut cx, out);
            }
            Input::Timer(Timer::Renew(ticket)) => {
                let Some(&Visit { ticket: Some(id), renews: Some(after), .. }) = self.visits.get(&ticket) else {
                    return;
                };
                out.push(Effect::SetTimer { timer: Timer::Renew(ticket), after });
                node::Input::Renew { call: ticket.get(), ticket: id }
            }
            Input::Reset { .. } => return,
            Input::Written => unreachable!("a node writes nothing yet"),
            Input::Command(Command::Start(via)) => {
                out.push(Effect::SetTimer { timer: Timer::Beat, after: cx.rng.between(Span::ZERO, BEAT) });
                node::Input::Start { join: via.into_iter().map(address).collect() }
            }
            Input::Command(Command::Leave) => node::Input::Leave,
            Input::Command(Command::Patience(is_patient)) => {
                self.is_patient = is_patient;
                return;
            }
        };
        self.settle(Some(input), &mut cx, out);
    }

    fn effects<E>(
        Buffers(out): &mut Self::Buffers,
        carry_out: impl FnMut(Effect<Self>) -> Result<(), E>,
    ) -> Result<(), E> {
        out.drain(..).try_for_each(carry_out)
    }
}
