//! The product's peer as an actor: a node with its clients, data directory and connections.
//!
//! Clients differ, as real ones do: the peer renews most leases; some clients renew themselves, a few forget to, some
//! grants are detached. Most clients wait without limit, some for a while, some not at all.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::mem::take;

use peerlock_node::verb::{Evict, Remove, Resize, SetVoters};
use peerlock_node::{
    self as node, Answer, ClusterId, Error, Name, NetEvent, Node, Notice, Origin, Purpose, Setup, TicketId, Ttl, Wait,
    Wanted,
};
use peerlock_registry::Registry;
use peerlock_types::{PeerId, Rng, Span, Ticket, Time};

use self::connections::{BEAT, Change, Connections, Segment};
use super::{Actor, Cx, Effect, Hands, Input};
use crate::watch::Broken;

mod connections;
mod dir;

pub use dir::{Dir, Write};

pub struct Whole {
    node: Node,
    connections: Connections,
    visits: BTreeMap<Ticket, Visit>,
    tickets: BTreeMap<TicketId, Ticket>,
    slots: Option<u32>,
    is_patient: bool,
    wake: Option<Time>,
    /// Oldest first, with the input that confirms each.
    under_way: VecDeque<Option<node::Input>>,
    buffers: (Vec<node::Input>, Vec<node::Effect>),
}

#[derive(Clone, Copy, Debug)]
struct Visit {
    ticket: Option<TicketId>,
    is_inside: bool,
    renews: Option<Span>,
}

#[derive(Debug)]
pub enum Command {
    /// Connect to these hosts and to those in the directory.
    Start(Vec<PeerId>, Box<Dir>),
    /// A client of an earlier process resumes its grant.
    Resume(Ticket, usize),
    Drain,
    Resize(usize, u32),
    Remove(usize),
    Force(usize, PeerId),
    Voters(Option<Vec<PeerId>>),
    /// Clients wait without limit and have their leases renewed, so that all must be served.
    Patience(bool),
}

#[derive(Clone, Debug)]
pub enum Note {
    Joined,
    Left,
    /// The client neither holds nor waits.
    Notified(Ticket, Error),
    /// The node knows a client of an earlier process.
    Returned(Ticket),
    Resumed(Ticket),
    Removed,
    OtherCluster(Error),
    Notice(Notice),
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Timer {
    Wake,
    Beat,
    Renew(Ticket),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Creates the cluster if the directory is empty.
    Founder,
    /// Creates a cluster only once `expect` hosts are connected.
    Joiner { expect: Option<usize> },
    /// Has no data directory.
    Guest,
}

/// The number of first hosts that every host knows in a closed loop.
const KNOWN: u64 = 7;

/// No client's ticket has this number.
const ADMIN: u64 = u64::MAX;

/// Less the resource's number: deletions take a while, and must be distinguished.
const REMOVALS: u64 = ADMIN - 1;

pub fn name_of(resource: usize) -> Name {
    format!("r{resource}").parse().expect("a name")
}

pub fn address(peer: PeerId) -> String {
    format!("peer:{peer}")
}

fn peer_at(address: &str) -> Option<PeerId> {
    address.strip_prefix("peer:").and_then(|number| number.parse().ok()).map(PeerId::new)
}

fn as_input(change: Change) -> node::Input {
    node::Input::Net(match change {
        Change::Up(peer, epoch) => NetEvent::Up { peer, epoch, address: address(peer) },
        Change::Down(peer, epoch, why) => NetEvent::Down { peer, epoch, why: why.to_owned() },
        Change::Message(from, epoch, bytes) => NetEvent::Message { from, epoch, bytes },
        Change::Unreached(peer) => NetEvent::Unreached { address: address(peer), why: "no answer".to_owned() },
    })
}

impl Whole {
    /// Of its messages.
    pub const KINDS: &'static [&'static str] = &["resource", "register", "link"];

    /// Creates the `life`-th process of a run on a host. All its randomness comes from `seed`.
    ///
    /// # Panics
    /// If the registry file is damaged: no crash causes that.
    pub fn new(me: PeerId, role: Role, dir: &Dir, life: u64, seed: u64, setting: NodeSetting) -> Self {
        let mut rng = Rng::stream(seed, 1000 + life);
        let fresh = ClusterId::new(u128::from(rng.bits()) << 64 | u128::from(rng.bits()));
        let origin = match (role, dir.cluster, &dir.registry) {
            (Role::Guest, ..) => Origin::Seeks { expect: None },
            (_, _, Some(file)) => Origin::Votes(file.clone()),
            (_, Some(cluster), None) => Origin::Belongs(cluster),
            (Role::Founder, None, _) if !dir.was_lost => Origin::Founds(fresh),
            (Role::Founder, None, _) => Origin::Seeks { expect: None },
            (Role::Joiner { expect }, None, _) => Origin::Seeks { expect: expect.map(|hosts| (hosts, fresh)) },
        };
        let NodeSetting { slots, session, config } = setting;
        let (name, keeps) = (format!("host-{me}"), role != Role::Guest);
        let (boot, predecessor) = (dir.boot(), dir.predecessor.clone());
        let setup = Setup { process: life, rng, name, keeps, session, origin, boot, predecessor };
        let node = Node::new(me, vec![address(me)], setup, config);
        Self {
            node: node.unwrap_or_else(|damage| panic!("host {me} cannot read its file: {damage}")),
            connections: Connections::default(),
            visits: BTreeMap::new(),
            tickets: BTreeMap::new(),
            slots,
            is_patient: false,
            wake: None,
            under_way: VecDeque::new(),
            buffers: <_>::default(),
        }
    }

    pub fn registry(&self) -> Option<&Registry> {
        self.node.registry()
    }

    fn wanted(&self, resource: usize, ticket: Ticket, rng: &mut Rng) -> (Wanted, Option<Span>) {
        if self.is_patient {
            let taken_over_as = Some(ticket.get().to_string());
            return (Wanted { taken_over_as, ..self.request(resource, Span::from_secs(5), Wait::Forever, true) }, None);
        }
        let ttl = Span::from_millis([1000, 3000, 8000][rng.below(3) as usize]);
        let wait = match rng.below(10) {
            0 => Wait::Try,
            1 | 2 => Wait::For(rng.between(Span::from_millis(300), Span::from_secs(8))),
            _ => Wait::Forever,
        };
        let detached = rng.chance(0.15).then(|| ticket.get().to_string());
        let auto_renew = detached.is_none() && rng.chance(0.7);
        let renews = (!auto_renew && rng.chance(0.7)).then_some(ttl / 3);
        let taken_over_as = detached.is_none().then(|| ticket.get().to_string());
        (Wanted { detached, taken_over_as, ..self.request(resource, ttl, wait, auto_renew) }, renews)
    }

    fn request(&self, resource: usize, ttl: Span, wait: Wait, auto_renew: bool) -> Wanted {
        Wanted {
            name: name_of(resource),
            slots: self.slots,
            ttl,
            grace: ttl / 5,
            auto_renew,
            detached: None,
            taken_over_as: None,
            wait,
            label: String::new(),
            pid: None,
            request: None,
        }
    }

    fn forget(&mut self, ticket: Ticket) -> Option<TicketId> {
        let id = self.visits.remove(&ticket)?.ticket?;
        self.tickets.remove(&id);
        Some(id)
    }

    fn settle(&mut self, input: Option<node::Input>, cx: &mut Cx<'_>, out: &mut Vec<Effect<Self>>) {
        let (mut inputs, mut effects) = take(&mut self.buffers);
        inputs.extend(input);
        inputs.extend(self.connections.take_changes().rev().map(as_input));
        while let Some(input) = inputs.pop() {
            self.node.step(input, cx.now, &mut effects);
            for effect in effects.drain(..) {
                self.carry_out(effect, cx, &mut inputs, out);
            }
            inputs.extend(self.connections.take_changes().rev().map(as_input));
        }
        self.buffers = (inputs, effects);
        for (to, packet) in self.connections.take_packets() {
            out.push(Effect::Send { to, message: Packet(packet) });
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
            node::Effect::Send { to, epoch, bytes } => self.connections.send(to, epoch, bytes, cx.now),
            node::Effect::HangUp { peer, .. } => self.connections.hang_up(peer, "closed here"),
            node::Effect::Dial(address) => {
                if let Some(peer) = peer_at(&address).filter(|peer| *peer != cx.me) {
                    self.connections.want(peer, cx.me, cx.now);
                }
            }
            node::Effect::Write { number, write } => {
                self.write(Write::Registry(number, write), Some(node::Input::Written(number)), out);
            }
            node::Effect::Belongs(cluster) => {
                self.write(Write::Cluster(cluster), Some(node::Input::ClusterRecorded), out)
            }
            node::Effect::Record(entry) => out.push(Effect::WriteUnsynced(Write::Journal(entry))),
            node::Effect::Members(members) => self.write(Write::Members(members), None, out),
            node::Effect::Joined => out.push(Effect::Note(Note::Joined)),
            node::Effect::Drained => inputs.push(node::Input::Leave),
            node::Effect::Forget(address) => {
                if let Some(peer) = peer_at(&address) {
                    self.connections.let_go(peer);
                }
            }
            node::Effect::Left { .. } => out.push(Effect::Note(Note::Left)),
            node::Effect::Answer { call, answer } => self.on_answer(Ticket::new(call), answer, out),
            node::Effect::Granted { ticket, until } => self.on_granted(ticket, until, out),
            node::Effect::Renewed { ticket, until } => {
                if let Some(&ticket) = self.tickets.get(&ticket) {
                    out.push(Effect::Until { ticket, until });
                }
            }
            node::Effect::Lost(id, _) => {
                // A client that loses its slot before it has the grant is notified next.
                if cx.rng.chance(0.5)
                    && let Some(&ticket) = self.tickets.get(&id)
                    && self.visits.get(&ticket).is_some_and(|visit| visit.is_inside)
                {
                    self.forget(ticket);
                    out.push(Effect::Lost { ticket });
                    inputs.push(node::Input::Release { call: None, ticket: id });
                }
            }
            node::Effect::Ended(id, error) => self.on_ended(id, error, out),
            node::Effect::Returned { ticket, note, .. } => self.on_returned(ticket, &note, inputs, out),
            node::Effect::Notice(Notice::Problem(error @ Error::OtherCluster { .. })) => {
                out.push(Effect::Note(Note::OtherCluster(error)));
            }
            node::Effect::Notice(Notice::Unexpected(why)) => out.push(Effect::Unexpected { why }),
            node::Effect::NotJoined
            | node::Effect::Concluded(_)
            | node::Effect::Inherited { .. }
            | node::Effect::Notice(_)
            | node::Effect::Progress(..)
            | node::Effect::Event(_) => {}
        }
    }

    fn on_returned(&mut self, id: TicketId, note: &str, inputs: &mut Vec<node::Input>, out: &mut Vec<Effect<Self>>) {
        let ticket = Ticket::new(note.parse().expect("it was written here"));
        if self.visits.contains_key(&ticket) {
            // Its client never received the grant, and has requested again.
            return inputs.push(node::Input::Release { call: None, ticket: id });
        }
        self.tickets.insert(id, ticket);
        self.visits.insert(ticket, Visit { ticket: Some(id), is_inside: true, renews: None });
        out.push(Effect::Note(Note::Returned(ticket)));
    }

    fn on_ended(&mut self, id: TicketId, error: node::Error, out: &mut Vec<Effect<Self>>) {
        let Some(ticket) = self.tickets.get(&id).copied() else { return };
        let inside = self.visits.get(&ticket).is_some_and(|visit| visit.is_inside);
        self.forget(ticket);
        out.push(Effect::Note(Note::Notified(ticket, error)));
        out.push(if inside { Effect::Lost { ticket } } else { Effect::Refused { ticket } });
    }

    fn write(&mut self, write: Write, answer: Option<node::Input>, out: &mut Vec<Effect<Self>>) {
        self.under_way.push_back(answer);
        out.push(Effect::Write(write));
    }

    fn on_granted(&mut self, id: TicketId, until: Time, out: &mut Vec<Effect<Self>>) {
        let (Some(&ticket), Some((grant, _))) = (self.tickets.get(&id), self.node.grant(id)) else { return };
        let visit = self.visits.get_mut(&ticket).expect("every ticket has a client");
        if std::mem::replace(&mut visit.is_inside, true) {
            out.push(Effect::Note(Note::Resumed(ticket)));
            return out.push(Effect::Until { ticket, until });
        }
        if let Some(after) = visit.renews {
            out.push(Effect::SetTimer { timer: Timer::Renew(ticket), after });
        }
        out.push(Effect::Grant { ticket, grant });
        out.push(Effect::Until { ticket, until });
    }

    fn on_answer(&mut self, ticket: Ticket, answer: Result<Answer, Error>, out: &mut Vec<Effect<Self>>) {
        match answer {
            Ok(Answer::Ticket(id)) => {
                self.tickets.insert(id, ticket);
                self.visits.get_mut(&ticket).expect("it has just requested").ticket = Some(id);
            }
            Ok(Answer::Done) if ticket != Ticket::new(ADMIN) => out.push(Effect::Note(Note::Removed)),
            Ok(Answer::Renewed(until)) => out.push(Effect::Until { ticket, until }),
            Ok(_) => {}
            Err(_) if self.visits.get(&ticket).is_some_and(|visit| visit.is_inside && visit.ticket.is_none()) => {
                self.visits.remove(&ticket);
                out.push(Effect::Lost { ticket });
            }
            Err(error) => {
                let waited = self.visits.get(&ticket).is_some_and(|visit| visit.ticket.is_none());
                if waited {
                    self.visits.remove(&ticket);
                    out.push(Effect::Note(Note::Notified(ticket, error)));
                    out.push(Effect::Refused { ticket });
                }
            }
        }
    }
}

#[derive(Clone, Copy, Debug)]
pub struct NodeSetting {
    /// `None` if administrators resize.
    pub slots: Option<u32>,
    pub session: Ttl,
    pub config: node::Config,
}

#[derive(Clone)]
pub struct Packet(connections::Packet);

impl fmt::Debug for Packet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0.segment {
            Segment::Data(number, bytes) => write!(f, "#{number}: {}", node::describe(bytes)),
            part => write!(f, "{part:?}"),
        }
    }
}

impl Actor for Whole {
    type Message = Packet;
    type Timer = Timer;
    type Command = Command;
    type Note = Note;
    type Disk = Dir;
    type Write = Write;
    type Structure = ();
    type Buffers = Vec<Effect<Self>>;

    const REPORTS_ENDS: bool = true;

    fn kind(message: &Self::Message) -> Option<usize> {
        match &message.0.segment {
            Segment::Data(_, bytes) => Some(match node::purpose(bytes) {
                Purpose::Resource => 0,
                Purpose::Registry => 1,
                Purpose::Link => 2,
            }),
            _ => None,
        }
    }

    fn step(&mut self, input: Input<Self>, mut cx: Cx<'_>, out: &mut Self::Buffers) {
        let now = cx.now;
        let input = match input {
            Input::Request { resource, ticket } => {
                let (wanted, renews) = self.wanted(resource, ticket, cx.rng);
                self.visits.insert(ticket, Visit { ticket: None, is_inside: false, renews });
                node::Input::Acquire { call: ticket.get(), wanted }
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
            Input::Written => match self.under_way.pop_front().expect("a completed write was started") {
                Some(answer) => answer,
                None => return,
            },
            Input::Command(Command::Start(via, dir)) => {
                out.push(Effect::SetTimer { timer: Timer::Beat, after: cx.rng.between(Span::ZERO, BEAT) });
                let join = via.into_iter().map(address).chain(dir.members).collect();
                node::Input::Start { join }
            }
            Input::Command(Command::Resume(ticket, resource)) => {
                self.visits.insert(ticket, Visit { ticket: None, is_inside: true, renews: None });
                let (name, note) = (name_of(resource), ticket.get().to_string());
                node::Input::Resume { call: ticket.get(), name, note }
            }
            Input::Command(Command::Drain) => node::Input::Drain,
            Input::Command(Command::Resize(resource, slots)) => {
                node::Input::call(ADMIN, Resize { name: name_of(resource), slots })
            }
            Input::Command(Command::Remove(resource)) => {
                node::Input::call(REMOVALS - resource as u64, Remove { name: name_of(resource) })
            }
            Input::Command(Command::Force(resource, peer)) => {
                node::Input::call(ADMIN, Evict { name: name_of(resource), peer })
            }
            Input::Command(Command::Voters(hosts)) => node::Input::call(ADMIN, SetVoters { hosts }),
            Input::Command(Command::Patience(is_patient)) => {
                self.is_patient = is_patient;
                return;
            }
        };
        self.settle(Some(input), &mut cx, out);
    }

    fn effects(out: &mut Self::Buffers, hands: &mut impl Hands<Self>) -> Result<(), Broken> {
        out.drain(..).try_for_each(|effect| hands.carry_out(effect))
    }

    fn begin(me: PeerId, dir: &Dir) -> Vec<Command> {
        let via = (0..KNOWN).map(PeerId::new).filter(|host| *host != me).collect();
        vec![Command::Start(via, Box::new(dir.clone())), Command::Patience(true)]
    }

    fn write(dir: &mut Dir, write: Write) {
        dir.write(write);
    }

    fn tear(dir: &mut Dir, write: Write, rng: &mut Rng) {
        dir.tear(write, rng);
    }

    fn reboot(dir: &mut Dir) {
        dir.reboot();
    }

    fn lose(dir: &mut Dir) {
        *dir = Dir { was_lost: true, ..Dir::default() };
    }
}
