use std::fmt;

use peerlock_protocols::Effect;
use peerlock_types::{PeerId, Ticket};

use crate::world::Effects;
use crate::{Action, Explorable, Fault, Packet, Violation, World};

/// A readable trace: an arrow is a message that arrived, other lines are events of clients and peers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Trace(String);

impl Trace {
    pub fn step<P: Explorable>(
        &mut self,
        world: &mut World<P>,
        action: &Action<P::Timer>,
        effects: &mut Effects<P>,
    ) -> Option<Violation> {
        self.action(world, action);
        let peer = world.actor(action);
        let violation = world.apply(action, effects);
        for effect in effects {
            match effect {
                Effect::Grant { ticket, grant } => {
                    let client = name(peer, *ticket);
                    self.push(format_args!("{client}: enter slot {}, fencing {}", grant.slot, grant.fencing));
                }
                Effect::Lost { ticket } => self.push(format_args!("{}: lost", name(peer, *ticket))),
                Effect::Refused { ticket } => self.push(format_args!("{}: refused", name(peer, *ticket))),
                Effect::Unexpected { why } => self.push(format_args!("{peer}: unexpected, {why}")),
                Effect::Send { .. }
                | Effect::Route { .. }
                | Effect::Forward { .. }
                | Effect::RegistryRequest(_)
                | Effect::SetTimer { .. }
                | Effect::CancelTimer { .. } => {}
            }
        }
        violation
    }

    fn action<P: Explorable>(&mut self, world: &World<P>, action: &Action<P::Timer>) {
        let client = |ticket: Ticket| name(world.actor(action), ticket);
        match *action {
            Action::Request(at) => self.push(format_args!("{}: request", client(world.newest(at).next()))),
            Action::Leave(_, ticket) => self.push(format_args!("{}: leave", client(ticket))),
            Action::Withdraw(_, ticket) => self.push(format_args!("{}: withdraw", client(ticket))),
            Action::Deliver(at) if !world.is_up(world.place(world.packet(at).to)) => {
                self.push(format_args!("{} (receiver stopped)", world.packet(at)));
            }
            Action::Deliver(at) => self.push(world.packet(at)),
            Action::Lose(at) => self.push(format_args!("{} (lost)", world.packet(at))),
            Action::Duplicate(at) => self.push(format_args!("{} (will arrive twice)", world.packet(at))),
            Action::Fire(_, ref timer) => self.push(format_args!("{}: timer {timer:?}", world.actor(action))),
            Action::Pass => {
                let mut world = world.clone();
                world.apply(action, &mut Vec::new());
                self.push(format_args!("at {}:", world.now()));
            }
            Action::Reset(_) => self.push(format_args!("{}: reset", world.actor(action))),
            Action::Suspect(_, target) => {
                self.push(format_args!("{}: {} is gone", world.actor(action), world.ids()[target]));
            }
            Action::Miss(_, target) => {
                self.push(format_args!("{}: {} cannot be reached", world.actor(action), world.ids()[target]));
            }
            Action::Find(_, target) => {
                self.push(format_args!("{}: {} can be reached again", world.actor(action), world.ids()[target]));
            }
            Action::Fault(fault) => self.fault(world, action, fault),
        }
    }

    fn fault<P: Explorable>(&mut self, world: &World<P>, action: &Action<P::Timer>, fault: Fault) {
        let peer = world.actor(action);
        match fault {
            Fault::Receive(at) => self.push(&world.registry_messages()[at]),
            Fault::Repeat(at) => self.push(format_args!("{} (will arrive twice)", world.registry_messages()[at])),
            Fault::Stop(_) => self.push(format_args!("{peer}: stop")),
            Fault::End(session, _) => self.push(format_args!("registry: {session} ends")),
            Fault::Begin(..) => self.push(format_args!("{peer}: another session")),
            Fault::TakeOver(..) => self.push(format_args!("{peer}: another process takes over")),
            Fault::Resize(_) => self.push(format_args!("registry: {} slots", world.next_slots())),
            Fault::Evict(..) => self.push(format_args!("registry: {peer} is evicted")),
            Fault::Forget(_) => self.push(format_args!("{peer}: forget")),
            Fault::Remove => self.push("remove the unused resource"),
            Fault::Detach(_, ticket) => self.push(format_args!("{}: detach", name(peer, ticket))),
            Fault::LeaveAlone(_) => self.push("a detached client leaves"),
            Fault::Expire(_) => self.push("registry: a detached grant expired"),
            Fault::EndDetached(_, fencing) => {
                self.push(format_args!("{peer}: ends detached {fencing} without its client"));
            }
            Fault::Renew(at) => {
                let fencing = world.detached()[at].1.fencing;
                self.push(format_args!("{peer}: a client renews detached {fencing} of an earlier process"));
            }
            Fault::Free(at) => {
                let fencing = world.detached()[at].1.fencing;
                self.push(format_args!("registry: detached {fencing} is revoked"));
            }
            Fault::Again(at) => self.push(format_args!("{} (duplicate)", world.admin_commands()[at])),
        }
    }

    pub fn push(&mut self, row: impl fmt::Display) {
        self.0 += &format!("{row}\n");
    }
}

impl fmt::Display for Trace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl<M: fmt::Display> fmt::Display for Packet<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} → {}  {}", self.from, self.to, self.message)
    }
}

/// A client is its peer's number, and from its second ticket on also the ticket's.
fn name(peer: PeerId, ticket: Ticket) -> String {
    if ticket <= Ticket::new(1) { peer.to_string() } else { format!("{peer}#{ticket}") }
}
