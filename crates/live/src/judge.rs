//! Reads what the processes have left behind, and has it judged.

use peerlock_base::{PeerId, Time};
use peerlock_sim::{self as sim, Actor, Counted, Drive, Failure, Record, Report, Trial, Wire};

use crate::frame;

/// What is left of one trial, as bytes.
#[derive(Clone, Debug, Default)]
pub struct Left {
    /// What each process has sent, in its own order.
    pub records: Vec<Vec<u8>>,
    /// Of those that lived to tell.
    pub counted: Vec<Counted>,
    /// Who was killed, and when.
    pub deaths: Vec<(Time, PeerId)>,
}

/// Judges all trials of whatever setting it is.
pub struct Judge(pub Vec<Left>);

impl Drive for Judge {
    /// Or why the records make no sense.
    type Output = Result<Result<Report, Box<Failure>>, String>;

    fn drive<S>(self, setting: &S, _trials: u32, seed: u64) -> Self::Output
    where
        S: Trial<Actor: Actor<Message: Wire, Note: Wire + Clone>>,
    {
        let runs: Result<Vec<_>, String> = self.0.into_iter().map(read).collect();
        Ok(sim::judge(setting, &runs?, seed))
    }
}

/// All records in the order of time.
fn read<A: Actor<Message: Wire, Note: Wire>>(left: Left) -> Result<sim::Run<A>, String> {
    let mut records: Vec<(Time, sim::RecordOf<A>)> = Vec::new();
    for bytes in left.records {
        let mut rest = &bytes[..];
        while let Some(record) = frame::read_thing(&mut rest).map_err(|error| error.to_string())? {
            records.push(record);
        }
    }
    records.extend(left.deaths.into_iter().map(|(at, peer)| (at, Record::Crashed(peer))));
    // What one process wrote at one moment stays in its order; a death comes after all that was done before it.
    records.sort_by_key(|(at, _)| *at);
    Ok(sim::Run { records, counted: left.counted })
}
