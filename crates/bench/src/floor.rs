//! What one message costs, which everything else is held against.
//!
//! That hangs on where the kernel puts the two processes: on one core the message is a write, a switch to the other and
//! a read; on two, the other core has to be woken, which takes several times as long. Left to itself the kernel does
//! the one or the other, for minutes. So both are measured, by processes that stay where they are put.

use std::time::Duration;

use serde::Serialize;

use crate::crew::{Crew, Worker, said};
use crate::statistics::Times;
use crate::{Error, clock};

/// As long as a slot of the semaphore's case is quiet.
const REST: Duration = Duration::from_millis(3);

/// What one message costs: half a round trip of 128 bytes on a bare, blocking TCP connection between two processes.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Messages {
    /// Both are on one core.
    pub one_core: Times,
    /// The same after 3 ms of rest each: processes and processors have gone to sleep, as they have between the entries
    /// of clients that stay inside.
    pub one_core_after_rest: Times,
    /// Each is on a core of its own, and sleeps until it is woken. As with one core, where there is only one.
    pub two_cores: Times,
    /// The same after a rest.
    pub two_cores_after_rest: Times,
}

/// Two pairs of processes, and half of each round trip between them.
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

    /// Some more round trips.
    pub async fn measure(&mut self) -> Result<(), Error> {
        self.one_core.measure(self.pings).await?;
        self.two_cores.measure(self.pings).await
    }

    /// What they came to.
    pub fn times(self) -> Messages {
        Messages {
            one_core: Times::of(self.one_core.times),
            one_core_after_rest: Times::of(self.one_core.rested),
            two_cores: Times::of(self.two_cores.times),
            two_cores_after_rest: Times::of(self.two_cores.rested),
        }
    }
}

/// Half of each of these round trips, with a pause before each.
pub async fn ping(ping: &mut Worker, rounds: usize, pause: Duration) -> Result<Vec<u64>, Error> {
    let answer = ping.ask(&format!("ping {rounds} {}", clock::nanos(pause))).await?;
    Ok(ping.numbers::<1>(&answer)?.into_iter().map(|[round]| round / 2).collect())
}
