//! What one message costs, which everything else is held against.

use std::time::Duration;

use crate::crew::Worker;
use crate::statistics::Times;
use crate::{Error, clock};

/// As long as a slot of the semaphore's case is quiet.
const REST: Duration = Duration::from_millis(3);

/// Half of each round trip between two processes.
pub struct Floor {
    ping: Worker,
    pings: usize,
    times: Vec<u64>,
    /// The same where nothing was sent for a while: processes and processors have gone to sleep.
    rested: Vec<u64>,
}

impl Floor {
    pub fn new(ping: Worker, pings: usize) -> Self {
        Self { ping, pings, times: Vec::new(), rested: Vec::new() }
    }

    /// Some more round trips.
    pub async fn measure(&mut self) -> Result<(), Error> {
        let Self { ping, pings, times, rested } = self;
        for (rounds, pause, times) in [(*pings, Duration::ZERO, times), (*pings / 40, REST, rested)] {
            times.extend(self::ping(ping, rounds, pause).await?);
        }
        Ok(())
    }

    /// What they came to, at once and after a rest.
    pub fn times(self) -> (Times, Times) {
        (Times::of(self.times), Times::of(self.rested))
    }
}

/// Half of each of these round trips, with a pause before each.
pub async fn ping(ping: &mut Worker, rounds: usize, pause: Duration) -> Result<Vec<u64>, Error> {
    let answer = ping.ask(&format!("ping {rounds} {}", clock::nanos(pause))).await?;
    Ok(ping.numbers::<1>(&answer)?.into_iter().map(|[round]| round / 2).collect())
}
