//! Scenarios: a text file with commands and the trace that they must produce, in the format of
//! [goldenscript](goldenscript).
//!
//! | command | meaning |
//! | --- | --- |
//! | `peers …` | create the world; the protocol interprets the words |
//! | `request P` | a client of peer P requests |
//! | `leave P [T]` | the client with ticket T, or the first holder at P, releases |
//! | `withdraw P [T]` | the client with ticket T, or the first waiting at P, withdraws |
//! | `deliver P Q [KIND]` | the oldest message (of this kind) from P to Q arrives |
//! | `lose P Q` | all messages under way from P to Q are lost |
//! | `suspect P Q` | P suspects that Q has crashed |
//! | `timer P` | the first pending timer of P expires |
//! | `reset P` | the replica at P loses its memory |
//! | `stop P` | P crashes, or its session expires |
//! | `end P` | the registry ends a session of P, which has stopped |
//! | `begin P` | P, which has stopped, begins another session |
//! | `takeover P` | the process at P is killed, and another continues its clients' grants |
//! | `force P` | the registry evicts P |
//! | `forget P` | P leaves the parties of the resource |
//! | `resize` | the resource gets the next number of slots |
//! | `detach P` | the first grant at P is recorded in the registry |
//! | `expire` | a detached grant ends, for its client and then in the registry |
//! | `receive P` | the first event for P, or request from P, arrives |
//! | `stabilize` | events, requests and then messages arrive, oldest first, until none is under way |
//! | `state [P…]` | print the state of all or some peers, one line each |
//! | `network` | print the messages under way, oldest first |
//!
//! The checks of the exploration run after every event. A violation fails the scenario before its trace is compared
//! or, with `UPDATE_GOLDENFILES=1`, written. [`Scenario::of_defects`] shows known defects: it fails if the run ends
//! without a violation.

use std::error::Error;
use std::fmt::Display;

use goldenscript::{Argument, Command, Context};
use peerlock_protocols::Effect;
use peerlock_types::{PeerId, Ticket};

use crate::{Action, Explorable, Fault, Packet, Trace, World};

type Failure = Box<dyn Error>;

/// Plays the scenarios of one protocol.
///
/// ```
/// use peerlock_explore::{Limits, Scenario, World};
/// use peerlock_protocols::FairK;
/// use peerlock_protocols::fair_k::{Config, Layout};
/// use peerlock_types::PeerId;
///
/// fn alone(_words: &[&str]) -> Result<World<FairK>, String> {
///     let me = PeerId::new(0);
///     Ok(World::new(Limits::new(1), [(me, FairK::new(me, &Layout::printed(1, 1), Config::REPAIRED))]))
/// }
/// let trace = goldenscript::generate(&mut Scenario::new(alone), "peers 0..0\nrequest 0\n---\n")?;
/// assert!(trace.ends_with("0: request\n0: enter slot 0, fencing 1\n"));
/// # Ok::<(), std::io::Error>(())
/// ```
pub struct Scenario<P: Explorable> {
    world_of: fn(&[&str]) -> Result<World<P>, String>,
    world: Option<World<P>>,
    /// In sending order, which a world does not keep.
    sent: Vec<Packet<P::Message>>,
    is_defect: bool,
    broken: Option<String>,
}

impl<P: Explorable + Display> Scenario<P> {
    pub fn new(world_of: fn(&[&str]) -> Result<World<P>, String>) -> Self {
        Self { world_of, world: None, sent: Vec::new(), is_defect: false, broken: None }
    }

    /// Each trace ends with a violation.
    pub fn of_defects(world_of: fn(&[&str]) -> Result<World<P>, String>) -> Self {
        Self { is_defect: true, ..Self::new(world_of) }
    }

    fn world(&self) -> Result<&World<P>, Failure> {
        Ok(self.world.as_ref().ok_or("a scenario begins with `peers …`")?)
    }

    fn actions(&self) -> Result<Vec<Action<P::Timer>>, Failure> {
        let mut actions = Vec::new();
        self.world()?.actions(&mut actions);
        Ok(actions)
    }

    fn place(&self, text: Option<&&str>) -> Result<usize, Failure> {
        let text = text.ok_or("which peer?")?;
        let id = PeerId::new(text.parse().map_err(|_| format!("{text} is not a peer's number"))?);
        Ok(self.world()?.ids().binary_search(&id).map_err(|_| format!("there is no peer {id}"))?)
    }

    fn step(&mut self, action: &Action<P::Timer>, trace: &mut Trace) -> Result<(), Failure> {
        let world = self.world.as_mut().ok_or("a scenario begins with `peers …`")?;
        if let Action::Deliver(at) = *action {
            let packet = world.packet(at);
            let sent = self.sent.iter().position(|sent| sent == packet).ok_or("a message that no peer sent")?;
            self.sent.remove(sent);
        }
        let from = world.actor(action);
        let mut effects = Vec::new();
        let violation = trace.step(world, action, &mut effects);
        // A world discards messages that can have no effect.
        self.sent.retain(|sent| world.packets().any(|packet| packet == sent));
        self.sent.extend(effects.into_iter().filter_map(|effect| match effect {
            Effect::Send { to, message } => Some(Packet { from, to, message }),
            _ => None,
        }));
        match violation {
            Some(violation) if self.is_defect => {
                trace.push(format_args!("violation: {violation}"));
                self.broken = Some(violation.to_string());
                Ok(())
            }
            Some(violation) => Err(format!("violation: {violation}, after\n{trace}").into()),
            None => Ok(()),
        }
    }

    /// Delivers the oldest message that is `wanted`. Returns false if there is none.
    fn deliver(&mut self, wanted: impl Fn(&Packet<P::Message>) -> bool, trace: &mut Trace) -> Result<bool, Failure> {
        let (world, actions) = (self.world()?, self.actions()?);
        let age = |packet| self.sent.iter().position(|sent| sent == packet);
        let deliverable = actions.into_iter().filter_map(|action| match action {
            Action::Deliver(at) if wanted(world.packet(at)) => Some((age(world.packet(at)), action)),
            _ => None,
        });
        match deliverable.min_by_key(|(age, _)| *age) {
            Some((_, action)) => self.step(&action, trace).map(|()| true),
            None => Ok(false),
        }
    }

    fn inject(&mut self, wanted: impl Fn(&World<P>, Fault) -> bool, trace: &mut Trace) -> Result<bool, Failure> {
        let (world, actions) = (self.world()?, self.actions()?);
        let is_it = |action: &Action<P::Timer>| matches!(action, Action::Fault(fault) if wanted(world, *fault));
        match actions.into_iter().find(is_it) {
            Some(action) => self.step(&action, trace).map(|()| true),
            None => Ok(false),
        }
    }

    fn fault(&mut self, name: &str, words: &[&str], trace: &mut Trace) -> Result<(), Failure> {
        let (is_done, why_not) = match name {
            "resize" => {
                let is_done = self.inject(|_, fault| matches!(fault, Fault::Resize(_)), trace)?;
                (is_done, "there is no other number of slots")
            }
            "expire" => {
                self.inject(|_, fault| matches!(fault, Fault::LeaveAlone(_)), trace)?;
                let is_done = self.inject(|_, fault| matches!(fault, Fault::Expire(_)), trace)?;
                (is_done, "no detached grant has expired")
            }
            _ => {
                let at = self.place(words.first())?;
                let is_done = self.inject(|world, fault| is_named(name, world, fault, at), trace)?;
                (is_done, "not possible there now")
            }
        };
        if is_done { Ok(()) } else { Err(why_not.into()) }
    }

    fn command(&mut self, name: &str, words: &[&str]) -> Result<Trace, Failure> {
        let mut trace = Trace::default();
        if let Some(broken) = &self.broken {
            return Err(format!("nothing comes after a violation: {broken}").into());
        }
        let at = self.place(words.first());
        match name {
            "peers" => {
                self.world = Some((self.world_of)(words)?);
                self.sent.clear();
            }
            "request" => self.step(&Action::Request(at?), &mut trace)?,
            "leave" => {
                let at = at?;
                let inside = self.world()?.inside(at).iter().map(|&(ticket, _)| ticket);
                let ticket = pick(inside, words.get(1)).ok_or("no such client holds there")?;
                self.step(&Action::Leave(at, ticket), &mut trace)?;
            }
            "withdraw" => {
                let at = at?;
                let waiting = self.world()?.waiting(at).iter().copied();
                let ticket = pick(waiting, words.get(1)).ok_or("no such client waits there")?;
                self.step(&Action::Withdraw(at, ticket), &mut trace)?;
            }
            "deliver" => {
                let (from, to) = self.ends(words)?;
                let kind = words.get(2).copied();
                let is_kind = |message: &P::Message| kind.is_none_or(|kind| P::KINDS[P::kind(message)] == kind);
                let wanted =
                    |packet: &Packet<P::Message>| packet.from == from && packet.to == to && is_kind(&packet.message);
                if !self.deliver(wanted, &mut trace)? {
                    return Err(format!("no such message from {from} to {to} can be delivered now").into());
                }
            }
            "lose" => self.lose(self.ends(words)?, &mut trace)?,
            "suspect" => self.step(&Action::Suspect(at?, self.place(words.get(1))?), &mut trace)?,
            "timer" => {
                let at = at?;
                let timer =
                    self.actions()?.into_iter().find(|action| matches!(action, Action::Fire(of, _) if *of == at));
                self.step(&timer.ok_or("no timer is pending there")?, &mut trace)?;
            }
            "reset" => {
                let reset = Action::Reset(at?);
                if !self.actions()?.contains(&reset) {
                    return Err("there is no replica that may lose its memory".into());
                }
                self.step(&reset, &mut trace)?;
            }
            "stop" | "end" | "begin" | "takeover" | "force" | "forget" | "detach" | "receive" | "resize" | "expire" => {
                self.fault(name, words, &mut trace)?;
            }
            "stabilize" => {
                while self.broken.is_none()
                    && (self.inject(|_, fault| matches!(fault, Fault::Receive(_)), &mut trace)?
                        || self.deliver(|_| true, &mut trace)?)
                {}
            }
            "state" => self.show(words, &mut trace)?,
            "network" => self.sent.iter().for_each(|packet| trace.push(packet)),
            _ => return Err("there is no such command".into()),
        }
        Ok(trace)
    }

    fn ends(&self, words: &[&str]) -> Result<(PeerId, PeerId), Failure> {
        let ids = self.world()?.ids();
        Ok((ids[self.place(words.first())?], ids[self.place(words.get(1))?]))
    }

    fn lose(&mut self, ends: (PeerId, PeerId), trace: &mut Trace) -> Result<(), Failure> {
        let world = self.world()?;
        let is_lost = |action: &Action<P::Timer>| match *action {
            Action::Lose(at) => (world.packet(at).from, world.packet(at).to) == ends,
            _ => false,
        };
        let lost: Vec<Action<P::Timer>> = self.actions()?.into_iter().filter(is_lost).collect();
        // From the last one on: a removal shifts the indices behind it.
        for action in lost.iter().rev() {
            self.step(action, trace)?;
        }
        Ok(())
    }

    fn show(&self, words: &[&str], trace: &mut Trace) -> Result<(), Failure> {
        let some: Vec<usize> = words.iter().map(|text| self.place(Some(text))).collect::<Result<_, _>>()?;
        let world = self.world()?;
        let all = (0..world.ids().len()).filter(|at| some.is_empty() || some.contains(at));
        all.for_each(|at| match world.is_up(at) {
            true => trace.push(format_args!("{}: {}", world.ids()[at], world.peer(at))),
            false => trace.push(format_args!("{}: stopped", world.ids()[at])),
        });
        Ok(())
    }
}

fn is_named<P: Explorable>(name: &str, world: &World<P>, fault: Fault, at: usize) -> bool {
    match fault {
        Fault::Stop(of) => name == "stop" && of == at,
        Fault::End(session, _) => name == "end" && world.place(session.peer) == at,
        Fault::Begin(of) => name == "begin" && of == at,
        Fault::TakeOver(of, _) => name == "takeover" && of == at,
        Fault::Evict(of, _) => name == "force" && of == at,
        Fault::Forget(of) => name == "forget" && of == at,
        Fault::Detach(of, _) => name == "detach" && of == at,
        Fault::Receive(_) => name == "receive" && world.actor(&Action::Fault(fault)) == world.ids()[at],
        Fault::Resize(_) | Fault::Remove | Fault::LeaveAlone(_) | Fault::Expire(_) | Fault::Repeat(_) => false,
        Fault::EndDetached(..) | Fault::Renew(_) | Fault::Free(_) | Fault::Again(_) => false,
    }
}

fn pick(mut tickets: impl Iterator<Item = Ticket>, text: Option<&&str>) -> Option<Ticket> {
    match text {
        Some(text) => tickets.find(|ticket| ticket.to_string() == **text),
        None => tickets.next(),
    }
}

fn text(argument: &Argument) -> Result<&str, String> {
    match argument {
        Argument::Positional(text) => Ok(text),
        other => Err(format!("{other} is not a word")),
    }
}

impl<P: Explorable + Display> goldenscript::Runner for Scenario<P> {
    type Command = Command;

    fn start_command(&mut self, _: &Command, context: &Context) -> Result<String, Failure> {
        if context.fail {
            return Err("a scenario cannot expect failure: `!` could hide a violation".into());
        }
        Ok(String::new())
    }

    fn end_script(&mut self) -> Result<(), Failure> {
        match self.is_defect && self.broken.is_none() {
            true => Err("the scenario of a defect ends without a violation".into()),
            false => Ok(()),
        }
    }

    fn run(&mut self, command: &Command, _: &Context) -> Result<String, Failure> {
        let words = command.args.iter().map(text).collect::<Result<Vec<_>, _>>()?;
        Ok(self.command(&command.name, &words)?.to_string())
    }
}
