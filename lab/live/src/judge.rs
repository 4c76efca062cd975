//! Passes the records of all processes to the simulator's watchers.

use peerlock_sim::{self as sim, Actor, Counted, Drive, Failure, Record, Report, Wire};
use peerlock_types::{PeerId, Time};

use crate::frame;

#[derive(Clone, Debug, Default)]
pub struct Trial {
    pub records: Vec<Vec<u8>>,
    pub counted: Vec<Counted>,
    pub deaths: Vec<(Time, PeerId)>,
}

pub struct Judge(pub Vec<Trial>);

impl Drive for Judge {
    type Output = Result<Result<Report, Box<Failure>>, String>;

    fn drive<S>(self, setting: &S, _trials: u32, seed: u64) -> Self::Output
    where
        S: sim::Trial<Actor: Actor<Message: Wire, Note: Wire + Clone>>,
    {
        let runs: Result<Vec<_>, String> = self.0.into_iter().map(read).collect();
        Ok(sim::judge(setting, &runs?, seed))
    }
}

/// Merges all records in the order of time. A round begins when it begins in the first process.
fn read<A: Actor<Message: Wire, Note: Wire>>(trial: Trial) -> Result<sim::Run<A>, String> {
    let mut rounds: Vec<(Time, sim::RecordOf<A>)> = Vec::new();
    let mut records: Vec<(Time, sim::RecordOf<A>)> = Vec::new();
    for bytes in trial.records {
        let (mut rest, mut started) = (&bytes[..], 0);
        while let Some((at, record)) = frame::read_value(&mut rest).map_err(|error| error.to_string())? {
            match record {
                Record::Round(_) | Record::Drain(_) => {
                    merge_round(&mut rounds, started, at, record);
                    started += 1;
                }
                record => records.push((at, record)),
            }
        }
    }
    records.splice(0..0, rounds);
    records.extend(trial.deaths.into_iter().map(|(at, peer)| (at, Record::Killed(peer))));
    // Stable: records of a process keep their order, and a death follows the events of its moment.
    records.sort_by_key(|(at, _)| *at);
    Ok(sim::Run { records, counted: trial.counted })
}

/// Merges the start of round `number` in a process; the earliest counts.
fn merge_round<M, N>(rounds: &mut Vec<(Time, Record<M, N>)>, number: usize, at: Time, record: Record<M, N>) {
    match (rounds.get_mut(number), record) {
        (Some((first, Record::Round(all) | Record::Drain(all))), Record::Round(here) | Record::Drain(here)) => {
            *first = at.min(*first);
            all.extend(here);
        }
        (_, record) => rounds.push((at, record)),
    }
}
