//! The cost of one message, the baseline of all other numbers.
//!
//! It depends on where the kernel schedules the two processes. On one core, a message is a write, a context switch and
//! a read; on two cores, the other core must be woken, which takes several times as long. The kernel keeps one
//! placement for minutes, so both are measured with pinned processes.

use std::time::Duration;

use serde::Serialize;

use crate::crew::{Crew, Worker, said};
use crate::statistics::Times;
use crate::{Error, clock};

/// As long as a slot is idle in the semaphore case.
const REST: Duration = Duration::from_millis(3);

/// The cost of one message: half a round trip of 128 bytes on a blocking TCP connection between two processes.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Messages {
    /// Both processes on one core.
    pub one_core: Times,
    /// The same after 3 ms of rest: processes and processors sleep, as between the entries of clients with a hold time.
    pub one_core_after_rest: Times,
    /// Each on its own core, asleep until woken. The same as `one_core` on a machine with one core.
    pub two_cores: Times,
    /// The same after a rest.
    pub two_cores_after_rest: Times,
}

/// Two pairs of processes, with half of each round trip.
pub struct Floor {
    one_core: Pair,
    two_cores: Pair,
    pings: usize,
}

struct Pair {
    ping: Worker,
    _echo: Worker,
    times: Vec<u64>,
    rested: Vec<u64>,
}

impl Pair {
    async fn start(crew: &Crew<'_>, cores: [&str; 2]) -> Result<Self, Error> {
        let (echo, address) = crew.start(&["echo", cores[1]]).await?;
        let (ping, _) = crew.start(&["ping", said(&address), cores[0]]).await?;
        Ok(Self { ping, _echo: echo, times: Vec::new(), rested: Vec::new() })
    }

    async fn measure(&mut self, pings: usize) -> Result<(), Error> {
        let Self { ping, times, rested, .. } = self;
        for (rounds, pause, times) in [(pings, Duration::ZERO, times), (pings / 40, REST, rested)] {
            times.extend(self::ping(ping, rounds, pause).await?);
        }
        Ok(())
    }
}

impl Floor {
    pub async fn start(crew: &Crew<'_>, pings: usize) -> Result<Self, Error> {
        let one_core = Pair::start(crew, ["0", "0"]).await?;
        Ok(Self { one_core, two_cores: Pair::start(crew, ["0", "1"]).await?, pings })
    }

    /// Measures more round trips.
    pub async fn measure(&mut self) -> Result<(), Error> {
        self.one_core.measure(self.pings).await?;
        self.two_cores.measure(self.pings).await
    }

    /// Returns the results.
    pub fn times(self) -> Messages {
        Messages {
            one_core: Times::of(self.one_core.times),
            one_core_after_rest: Times::of(self.one_core.rested),
            two_cores: Times::of(self.two_cores.times),
            two_cores_after_rest: Times::of(self.two_cores.rested),
        }
    }
}

/// Measures half of each round trip, with a pause before each.
pub async fn ping(ping: &mut Worker, rounds: usize, pause: Duration) -> Result<Vec<u64>, Error> {
    let answer = ping.ask(&format!("ping {rounds} {}", clock::nanos(pause))).await?;
    Ok(ping.numbers::<1>(&answer)?.into_iter().map(|[round]| round / 2).collect())
}
