//! Merges the records of all processes and passes them to the simulator's watchers.

use peerlock_sim::{self as sim, Actor, Counted, Drive, Failure, Record, Report, Trial, Wire};
use peerlock_types::{PeerId, Time};

use crate::frame;

/// The serialized results of one trial.
#[derive(Clone, Debug, Default)]
pub struct Left {
    /// The records of each process, in its own order.
    pub records: Vec<Vec<u8>>,
    /// The counters of the processes that have not been killed.
    pub counted: Vec<Counted>,
    /// The killed peers, with times.
    pub deaths: Vec<(Time, PeerId)>,
}

/// Judges all trials of any setting.
pub struct Judge(pub Vec<Left>);

impl Drive for Judge {
    /// The report, the first violation, or why the records cannot be read.
    type Output = Result<Result<Report, Box<Failure>>, String>;

    fn drive<S>(self, setting: &S, _trials: u32, seed: u64) -> Self::Output
    where
        S: Trial<Actor: Actor<Message: Wire, Note: Wire + Clone>>,
    {
        let runs: Result<Vec<_>, String> = self.0.into_iter().map(read).collect();
        Ok(sim::judge(setting, &runs?, seed))
    }
}

/// Merges all records in the order of time. A round begins when it begins in the first process, with the peers of all.
fn read<A: Actor<Message: Wire, Note: Wire>>(left: Left) -> Result<sim::Run<A>, String> {
    let mut rounds: Vec<(Time, sim::RecordOf<A>)> = Vec::new();
    let mut records: Vec<(Time, sim::RecordOf<A>)> = Vec::new();
    for bytes in left.records {
        let (mut rest, mut started) = (&bytes[..], 0);
        while let Some((at, record)) = frame::read_thing(&mut rest).map_err(|error| error.to_string())? {
            match record {
                Record::Round(_) | Record::Drain(_) => {
                    begin(&mut rounds, started, at, record);
                    started += 1;
                }
                record => records.push((at, record)),
            }
        }
    }
    records.splice(0..0, rounds);
    records.extend(left.deaths.into_iter().map(|(at, peer)| (at, Record::Killed(peer))));
    // Records of one process with equal times keep their order; a death follows the acts of its moment.
    records.sort_by_key(|(at, _)| *at);
    Ok(sim::Run { records, counted: left.counted })
}

/// Merges the beginning of round `number` in one process: the earliest beginning counts.
fn begin<M, N>(rounds: &mut Vec<(Time, Record<M, N>)>, number: usize, at: Time, record: Record<M, N>) {
    match (rounds.get_mut(number), record) {
        (Some((first, Record::Round(all) | Record::Drain(all))), Record::Round(here) | Record::Drain(here)) => {
            *first = at.min(*first);
            all.extend(here);
        }
        (_, record) => rounds.push((at, record)),
    }
}
