//! The cost of one message, the baseline of all numbers.
//!
//! On one core, a message is a write, a context switch and a read. On two, the other core must be woken, which takes
//! several times as long. The kernel keeps a placement for minutes, so both are measured with pinned processes.

use std::time::Duration;

use serde::Serialize;

use crate::statistics::Times;
use crate::worker::{Launcher, Worker, first};
use crate::{Error, clock};

const REST: Duration = Duration::from_millis(3);

/// The cost of one message: half a round trip of 128 bytes on a blocking TCP connection between two processes.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Messages {
    pub one_core: Times,
    pub one_core_after_rest: Times,
    /// The processes have a core each, and sleep until woken. As `one_core` on a machine with one core.
    pub two_cores: Times,
    pub two_cores_after_rest: Times,
}

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
    async fn start(launcher: &Launcher<'_>, cores: [&str; 2]) -> Result<Self, Error> {
        let (echo, address) = launcher.start(&["echo", cores[1]]).await?;
        let (ping, _) = launcher.start(&["ping", first(&address), cores[0]]).await?;
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
    pub async fn start(launcher: &Launcher<'_>, pings: usize) -> Result<Self, Error> {
        let one_core = Pair::start(launcher, ["0", "0"]).await?;
        Ok(Self { one_core, two_cores: Pair::start(launcher, ["0", "1"]).await?, pings })
    }

    pub async fn measure(&mut self) -> Result<(), Error> {
        self.one_core.measure(self.pings).await?;
        self.two_cores.measure(self.pings).await
    }

    pub fn times(self) -> Messages {
        Messages {
            one_core: Times::of(self.one_core.times),
            one_core_after_rest: Times::of(self.one_core.rested),
            two_cores: Times::of(self.two_cores.times),
            two_cores_after_rest: Times::of(self.two_cores.rested),
        }
    }
}

/// Returns half of each round trip in nanoseconds, with a pause before each.
pub async fn ping(ping: &mut Worker, rounds: usize, pause: Duration) -> Result<Vec<u64>, Error> {
    let answer = ping.ask(&format!("ping {rounds} {}", clock::nanos(pause))).await?;
    Ok(ping.numbers::<1>(&answer)?.into_iter().map(|[round]| round / 2).collect())
}
