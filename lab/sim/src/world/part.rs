//! One process's part of a world in real time, and the joint check of all parts. See `part.rs`.

use std::collections::BTreeMap;

use peerlock_types::{PeerId, Rng, Ticket, Time};

use super::check::caught;
use super::{Scheduled, Violation, World};
use crate::actor::Actor;
use crate::part::{Came, Counted, Outside, Record, RecordOf, Share};
use crate::watch::{Broken, Event, Mark};
use crate::workload::Workload;

/// Beyond all streams of a whole world.
const PARTS: u64 = 1000;

impl<A: Actor, L: Workload<A>> World<'_, A, L> {
    pub fn retain_only(&mut self, share: Share) {
        self.share = Some(share);
        self.watch.rules = None;
        for peer in (0..self.residents() as u64).map(PeerId::new) {
            if self.is_elsewhere(peer) {
                self.hosts.remove(peer);
            }
        }
        if let Some(own) = self.own_stream(&self.peers_rng) {
            self.peers_rng = own;
        }
    }

    pub fn has_turn(&self, number: usize) -> bool {
        self.share.as_ref().is_none_or(|share| number % share.processes() == share.me)
    }

    /// Returns a random stream of this process; `None` if there is only one, which draws as the simulator does.
    pub fn own_stream(&self, common: &Rng) -> Option<Rng> {
        let share = self.share.as_ref().filter(|share| share.processes() > 1)?;
        Some(Rng::stream(common.clone().bits(), PARTS + share.me as u64))
    }

    /// Runs this part in real time until it is stopped or a rule is broken. If it `resumes`, it replaces an ended
    /// process, and its peers start without state.
    pub fn play_part(&mut self, outside: &mut dyn Outside<A>, resumes: bool) -> Result<(), Violation> {
        caught(|| self.play_with(outside, resumes)).map_err(|what| Violation { at: self.now, what })
    }

    fn play_with(&mut self, outside: &mut dyn Outside<A>, resumes: bool) -> Result<(), Broken> {
        self.now = outside.now();
        if resumes {
            self.begin_again()?;
        } else {
            L::start(self)?;
            self.first_fault()?;
        }
        let mut was_served = false;
        loop {
            let played = self.play_what_is_due(outside)?;
            let is_served = L::is_served(self) || L::is_over(self, self.now);
            if is_served != was_served {
                outside.served(is_served);
                was_served = is_served;
            }
            if self.receive(outside, played.max(1))? {
                return Ok(());
            }
        }
    }

    /// Handles the events that are due now, but none that become due meanwhile: a process that lags would otherwise
    /// never receive.
    fn play_what_is_due(&mut self, outside: &mut dyn Outside<A>) -> Result<usize, Broken> {
        self.now = self.now.max(outside.now());
        let (due, mut played) = (self.now, 0);
        while self.queue.first().is_some_and(|at| at <= due) {
            (self.events, played) = (self.events + 1, played + 1);
            if let Some((from, to, message)) = self.queue.take_message() {
                outside.send(from, to, message);
            } else {
                match self.queue.take_first() {
                    Scheduled::Arrive { from, to, message } => outside.send(from, to, message),
                    event => self.happen(event)?,
                }
            }
            self.now = self.now.max(outside.now());
        }
        Ok(played)
    }

    /// Receives at most `most` messages. Without any, waits until the next event is due. Returns whether the run is
    /// over.
    fn receive(&mut self, outside: &mut dyn Outside<A>, most: usize) -> Result<bool, Broken> {
        let mut until = self.queue.first();
        for _ in 0..most {
            match outside.wait(until) {
                Came::Nothing => break,
                Came::Message { from, to, message } => {
                    self.now = self.now.max(outside.now());
                    self.events += 1;
                    self.arrive_apart(from, to, message)?;
                }
                Came::Gone(peers) => {
                    if let Some(after) = self.injector.faults.detection {
                        let at = self.now.max(outside.now()) + after;
                        peers.into_iter().for_each(|peer| self.queue.push(at, Scheduled::Gone(peer)));
                    }
                }
                Came::Stop => return Ok(true),
            }
            until = Some(self.now); // Only those already received.
        }
        Ok(false)
    }

    fn begin_again(&mut self) -> Result<(), Broken> {
        L::resume(self);
        let here: Vec<PeerId> = self.all_there().collect();
        for peer in here {
            self.hosts.remove(peer);
            self.restart(peer)?;
        }
        Ok(())
    }

    pub fn counted(&self) -> Counted {
        Counted { world: self.counts().into_iter().map(|(_, count)| count).collect(), load: self.load.counts() }
    }

    pub fn add_counted(&mut self, counted: &Counted) {
        self.counted.resize(counted.world.len(), 0);
        self.counted.iter_mut().zip(&counted.world).for_each(|(sum, count)| *sum += count);
        self.load.add_counts(&counted.load);
    }

    /// Passes the records of all processes to the watchers of this world, which has no peers.
    pub fn replay<'r>(&mut self, records: impl IntoIterator<Item = &'r (Time, RecordOf<A>)>) -> Result<(), Violation>
    where
        RecordOf<A>: 'r,
    {
        self.judge_all(records).map_err(|what| Violation { at: self.now, what })
    }

    fn judge_all<'r>(&mut self, records: impl IntoIterator<Item = &'r (Time, RecordOf<A>)>) -> Result<(), Broken>
    where
        RecordOf<A>: 'r,
    {
        let mut tickets = BTreeMap::new();
        for (at, record) in records {
            if !L::SERVES_ALL && L::is_over(self, *at) {
                return Ok(());
            }
            self.now = *at;
            self.events += 1;
            self.judge(record, &mut tickets)?;
        }
        if L::SERVES_ALL { self.watch.on(self.now, Event::End(&self.ledger)) } else { Ok(()) }
    }

    fn judge(&mut self, record: &RecordOf<A>, tickets: &mut BTreeMap<(PeerId, Ticket), Ticket>) -> Result<(), Broken> {
        let now = self.now;
        match record {
            &Record::Asked { peer, ticket, resource } => {
                let client = self.ledger.ask(peer, resource, now, false);
                tickets.insert((peer, ticket), client.ticket);
                self.watch.on(now, Event::Request(&client))
            }
            &Record::Entered { peer, ticket, grant } => {
                let known = tickets.get(&(peer, ticket)).copied();
                let Some(client) = known.and_then(|known| self.ledger.take(known)) else {
                    return Err(format!("peer {peer} grants {ticket:?}, which is not waiting there").into());
                };
                self.inside.push(client);
                self.watch.on(now, Event::Grant(&client, grant, &self.ledger))
            }
            &Record::Left { peer, ticket } => {
                match tickets.remove(&(peer, ticket)).and_then(|known| self.take_inside(known)) {
                    Some(client) => self.watch.on(now, Event::Leave(&client)),
                    None => Ok(()),
                }
            }
            &Record::GaveUp { peer, ticket } => {
                match tickets.remove(&(peer, ticket)).and_then(|known| self.ledger.take(known)) {
                    Some(client) => self.watch.on(now, Event::GiveUp(&client)),
                    None => Ok(()),
                }
            }
            &Record::Reset(peer) => self.watch.on(now, Event::Reset(peer)),
            &Record::Killed(peer) => self.judge_kill(peer),
            &Record::Crashed(peer) => self.watch.on(now, Event::Crash(peer)),
            Record::Sent { from, to, message } => self.watch.on(now, Event::Send { from: *from, to: *to, message }),
            &Record::OnWay { from, arrives } => self.watch.on(now, Event::OnWay { from, arrives }),
            Record::Delivered { from, to, message } => {
                self.watch.on(now, Event::Deliver { from: *from, to: *to, message })
            }
            Record::Noted { peer, note } => self.watch.on(now, Event::Note(*peer, note)),
            Record::Round(peers) => self.mark(Mark::Round(peers)),
            Record::Skipped => self.mark(Mark::Skipped),
            Record::Drain(peers) => self.mark(Mark::Drain(peers)),
        }
    }

    fn judge_kill(&mut self, peer: PeerId) -> Result<(), Broken> {
        self.tally.crashed += 1;
        let waiting: Vec<_> = self.ledger.iter().filter(|client| client.peer == peer).copied().collect();
        for client in waiting {
            self.ledger.take(client.ticket);
            self.watch.on(self.now, Event::GiveUp(&client))?;
        }
        let inside: Vec<_> = self.inside.iter().filter(|client| client.peer == peer).copied().collect();
        for client in inside {
            self.take_inside(client.ticket);
            self.watch.on(self.now, Event::Leave(&client))?;
        }
        self.watch.on(self.now, Event::Crash(peer))
    }
}
