//! One case: clients that acquire and release without a pause.

use std::time::Duration;

use tokio::time::sleep;

use crate::child::STAGGER;
use crate::report::{Case, cores};
use crate::statistics::{Ahead, Entry, Times, Turn, spread, turn};
use crate::worker::{PATIENCE, Worker, answers};
use crate::{Error, clock};

/// The number of peers. Cases use as many as there are cores, at least two; oversubscribed cases use all.
pub const PEERS: usize = 8;
/// The messages of a hand-over, as an upper limit for the warm-up.
const SLOW_HANDOVER: u32 = 10;

pub struct Setting {
    pub system: &'static str,
    pub what: &'static str,
    pub clients: usize,
    pub processes: usize,
    pub slots: u32,
    /// Slots that other clients hold throughout.
    pub occupied: u32,
    pub hold: Duration,
    pub delay: Duration,
    pub group: usize,
    pub turns: Vec<Turn>,
}

impl Setting {
    pub fn handover(group: usize, system: &'static str, what: &'static str, clients: usize) -> Self {
        let processes = cores().clamp(2, PEERS).min(clients);
        let (hold, delay) = (Duration::ZERO, Duration::ZERO);
        Self { system, what, clients, processes, slots: 1, occupied: 0, hold, delay, group, turns: Vec::new() }
    }

    pub fn oversubscribed(self) -> Self {
        Self { processes: self.clients.min(PEERS), ..self }
    }

    pub fn hold(self, hold: Duration) -> Self {
        Self { hold, ..self }
    }

    fn name(&self) -> String {
        let Self { system, clients, processes, slots, .. } = self;
        format!("bench-{system}-{clients}-{processes}-{slots}-{}", self.hold.as_micros())
    }

    /// Returns the time until every client has been queued once.
    fn warm_up(&self) -> Duration {
        let clients = u32::try_from(self.clients).unwrap_or(u32::MAX);
        let stay = self.hold / (self.slots - self.occupied) + self.delay * SLOW_HANDOVER;
        (STAGGER + stay) * clients + Duration::from_millis(50)
    }

    pub async fn contend(&mut self, workers: &mut [Worker], length: Duration) -> Result<(), Error> {
        let (name, slots, processes) = (self.name(), self.slots, self.processes);
        workers[0].ask(&format!("create {name} {slots}")).await?;
        for worker in &mut workers[..processes] {
            worker.ask(&format!("join {name} {slots}")).await?;
        }
        for number in 0..self.occupied as usize {
            workers[number % processes].ask(&format!("occupy {name} {slots}")).await?;
        }
        let begin = clock::now() + clock::nanos(Duration::from_millis(100));
        let start = begin + clock::nanos(self.warm_up());
        let end = start + clock::nanos(length);
        let over = end + clock::nanos(self.warm_up());
        let hold = clock::nanos(self.hold);
        for (process, worker) in workers[..processes].iter_mut().enumerate() {
            let clients = (self.clients + processes - 1 - process) / processes;
            worker
                .send(&format!("contend {name} {slots} {clients} {process} {processes} {hold} {begin} {over}"))
                .await?;
        }
        // Reading the answers earlier would compete with the clients for cores.
        sleep(clock::until(over)).await;
        let mut entries = Vec::new();
        let answers = answers(&mut workers[..processes], PATIENCE).await?;
        for (process, (worker, answer)) in workers.iter().zip(&answers).enumerate() {
            for [slot, fencing, asked, sent, entered, left] in worker.numbers(answer)? {
                entries.push(Entry { process, slot: slot as u32, fencing, asked, sent, entered, left });
            }
        }
        if self.occupied > 0 {
            for worker in &mut workers[..processes] {
                worker.ask("vacate").await?;
            }
        }
        let turn = turn(entries, start, end);
        self.turns.push(turn.map_err(|what| Error::Broken { system: self.system.to_owned(), what })?);
        Ok(())
    }

    /// Returns the results of all turns, given the cost of a message on one core and on two.
    pub fn case(self, (one_core, two_cores): (Times, Times)) -> Case {
        let all = |part: fn(&Turn) -> &Vec<u64>| self.turns.iter().flat_map(part).copied().collect::<Vec<u64>>();
        let (waits, gap) = (all(|turn| &turn.waits), Times::of(all(|turn| &turn.gaps)));
        let ahead = || self.turns.iter().flat_map(|turn| turn.ahead.iter().copied());
        let entries: usize = self.turns.iter().map(|turn| turn.entries).sum();
        let seconds = self.turns.iter().map(|turn| turn.nanos).sum::<u64>() as f64 / 1e9;
        let (spread_ms, mean_wait_ms) = spread(&waits);
        let per_second = entries as f64 / seconds;
        let ideal = (!self.hold.is_zero()).then(|| f64::from(self.slots - self.occupied) / self.hold.as_secs_f64());
        let bare = (two_cores.p50_us * 1e3) as u64;
        Case {
            system: self.system,
            what: self.what,
            clients: self.clients,
            processes: self.processes,
            slots: self.slots,
            occupied: self.occupied,
            hold_ms: self.hold.as_secs_f64() * 1e3,
            delay_ms: self.delay.as_secs_f64() * 1e3,
            gap,
            gap_in_messages: gap.p50_us / one_core.p50_us,
            gap_in_messages_between_cores: gap.p50_us / two_cores.p50_us,
            gaps_per_second: gap.count as f64 / seconds,
            handed_over_within_a_process: self.turns.iter().map(|turn| turn.gaps_within).sum(),
            entries,
            entries_per_second: per_second,
            share_of_ideal: ideal.map(|ideal| per_second / ideal),
            held: Times::of(all(|turn| &turn.holds)),
            longest_wait_over_mean: if waits.is_empty() { 0.0 } else { 1.0 + spread_ms / mean_wait_ms },
            out_of_order: ahead().filter(|ahead: &Ahead| ahead.is_out_of_order(bare)).count(),
            most_ahead_ms: ahead().map(|ahead| ahead.nanos).max().map_or(0.0, |most| most as f64 / 1e6),
            wait: Times::of(waits),
            mean_wait_ms,
            spread_ms,
        }
    }
}
