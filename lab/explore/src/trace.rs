//! What happened, in words: one line per event.

use std::fmt;

use peerlock_base::{PeerId, Ticket};
use peerlock_protocols::Effect;

use crate::{Action, Explorable, Fate, Letter, Violation, World};

/// A run as one would tell it: arrows are messages that arrived, everything else is what a client saw.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Trace(String);

impl Trace {
    /// Makes `action` happen in `world` and writes it down.
    pub fn step<P: Explorable>(
        &mut self,
        world: &mut World<P>,
        action: &Action<P::Timer>,
        effects: &mut Vec<Effect<P::Message, P::Timer>>,
    ) -> Option<Violation> {
        self.action(world, action);
        let peer = world.actor(action);
        let violation = world.apply(action, effects);
        for effect in effects {
            match effect {
                Effect::Grant { ticket, grant } => {
                    let client = name(peer, *ticket);
                    self.line(format_args!("{client}: enter slot {}, fencing {}", grant.slot, grant.fencing));
                }
                Effect::Lost { ticket } => self.line(format_args!("{}: lost", name(peer, *ticket))),
                Effect::Refused { ticket } => self.line(format_args!("{}: refused", name(peer, *ticket))),
                Effect::Strange { why } => self.line(format_args!("{peer}: strange, {why}")),
                Effect::Send { .. }
                | Effect::Route { .. }
                | Effect::Forward { .. }
                | Effect::Wish(_)
                | Effect::SetTimer { .. }
                | Effect::CancelTimer { .. } => {}
            }
        }
        violation
    }

    fn action<P: Explorable>(&mut self, world: &World<P>, action: &Action<P::Timer>) {
        let client = |ticket: Ticket| name(world.actor(action), ticket);
        match *action {
            Action::Request(at) => self.line(format_args!("{}: request", client(world.newest(at).next()))),
            Action::Leave(_, ticket) => self.line(format_args!("{}: leave", client(ticket))),
            Action::Withdraw(_, ticket) => self.line(format_args!("{}: withdraw", client(ticket))),
            Action::Deliver(at) if !world.is_up(world.place(world.letter(at).to)) => {
                self.line(format_args!("{} (nobody is there)", world.letter(at)));
            }
            Action::Deliver(at) => self.line(world.letter(at)),
            Action::Lose(at) => self.line(format_args!("{} (lost)", world.letter(at))),
            Action::Duplicate(at) => self.line(format_args!("{} (will arrive twice)", world.letter(at))),
            Action::Return(at) => self.line(format_args!("{} (comes back)", world.letter(at))),
            Action::Fire(_, ref timer) => self.line(format_args!("{}: timer {timer:?}", world.actor(action))),
            Action::Pass => {
                let mut world = world.clone();
                world.apply(action, &mut Vec::new());
                self.line(format_args!("at {}:", world.now()));
            }
            Action::Reset(_) => self.line(format_args!("{}: reset", world.actor(action))),
            Action::Retire(_) => self.line(format_args!("{}: retire", world.actor(action))),
            Action::Suspect(_, whom) => {
                self.line(format_args!("{}: {} is gone", world.actor(action), world.ids()[whom]));
            }
            Action::Miss(_, whom) => {
                self.line(format_args!("{}: {} cannot be reached", world.actor(action), world.ids()[whom]));
            }
            Action::Find(_, whom) => {
                self.line(format_args!("{}: {} can be reached again", world.actor(action), world.ids()[whom]));
            }
            Action::Fate(fate) => self.fate(world, action, fate),
        }
    }

    fn fate<P: Explorable>(&mut self, world: &World<P>, action: &Action<P::Timer>, fate: Fate) {
        let peer = world.actor(action);
        match fate {
            Fate::Hear(at) => self.line(&world.post()[at]),
            Fate::Repeat(at) => self.line(format_args!("{} (will arrive twice)", world.post()[at])),
            Fate::Stop(_) => self.line(format_args!("{peer}: stop")),
            Fate::End(session, _) => self.line(format_args!("register: {session} ends")),
            Fate::Begin(..) => self.line(format_args!("{peer}: another session")),
            Fate::TakeOver(..) => self.line(format_args!("{peer}: another process takes over")),
            Fate::Resize(_) => self.line(format_args!("register: {} slots", world.next_slots())),
            Fate::Expel(..) => self.line(format_args!("register: {peer} is forced out")),
            Fate::Forget(_) => self.line(format_args!("{peer}: nobody has used it for a while")),
            Fate::Remove => self.line("somebody sees that nobody takes part, and wants it removed"),
            Fate::Detach(_, ticket) => self.line(format_args!("{}: detach", name(peer, ticket))),
            Fate::LeaveAlone(_) => self.line("a detached client leaves"),
            Fate::Expire(_) => self.line("register: a detached grant is over"),
            Fate::TakeBack(_, fencing) => {
                self.line(format_args!("{peer}: takes detached {fencing} for over, unheard by its client"));
            }
            Fate::Renew(at) => {
                let fencing = world.detached()[at].1.fencing;
                self.line(format_args!("{peer}: a client renews detached {fencing} from before"));
            }
            Fate::Free(at) => {
                let fencing = world.detached()[at].1.fencing;
                self.line(format_args!("register: detached {fencing} is taken back"));
            }
            Fate::Again(at) => self.line(format_args!("{} (once more)", world.orders()[at])),
        }
    }

    /// Adds a line of other text.
    pub fn line(&mut self, line: impl fmt::Display) {
        self.0 += &format!("{line}\n");
    }
}

impl fmt::Display for Trace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl<M: fmt::Display> fmt::Display for Letter<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} → {}  {}", self.from, self.to, self.message)
    }
}

/// A client: the peer's number, and from its second ticket on, the ticket's, too.
fn name(peer: PeerId, ticket: Ticket) -> String {
    if ticket <= Ticket::new(1) { peer.to_string() } else { format!("{peer}#{ticket}") }
}
