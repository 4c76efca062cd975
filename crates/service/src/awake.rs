//! Decides when a peer's thread polls instead of sleeping: waking a sleeping core takes longer than a message does.
//!
//! A polling thread yields to other processes all the time. A process that computes then keeps the core until the next
//! tick of the kernel's clock, the time of 200 hand-overs, while a sleeping thread is scheduled as soon as something
//! arrives. Beside such a process the peer sleeps.

use std::future::poll_fn;
use std::ops::RangeInclusive;
use std::task::Poll;
use std::time::{Duration, Instant};

use tokio::runtime::{Handle, RuntimeFlavor};

/// A yield that takes longer than this found another process on the core. Our choice: several times the cost of
/// yielding an uncontended core, less than any process runs for.
const CROWDED: Duration = Duration::from_micros(10);

/// A process that has used the core for longer than this was preempted at a tick, of which there are 100 to 1000 a
/// second: it computes. Our choice: longer than polling peers use the core, since they yield.
const COMPUTES: Duration = Duration::from_micros(2500);
/// How long the peer then sleeps instead of polling: twice as long each time, since each attempt may cost a tick.
const RESTS: RangeInclusive<Duration> = Duration::from_millis(20)..=Duration::from_secs(1);

pub struct Awake {
    /// How long to poll after a message, if at all.
    span: Option<Duration>,
    until: Instant,
    /// Poll after a client's command, too.
    for_clients: bool,
    /// Another process has used the core at the last yield.
    crowded: bool,
    /// The core is not yielded before this while there is work.
    ours_until: Instant,
    /// A process computes here: no polling before this.
    asleep_until: Instant,
    /// The length of the last such pause; zero if the last yield found no such process.
    rest: Duration,
}

impl Awake {
    /// Polls for `span` after each message. Polls after each command too if the clients are other processes, whose next
    /// command follows soon. In a multi-threaded runtime it never polls, since another thread waits for messages.
    pub fn new(span: Duration, for_clients: bool) -> Self {
        let alone = Handle::current().runtime_flavor() == RuntimeFlavor::CurrentThread;
        let now = Instant::now();
        let span = (alone && !span.is_zero()).then_some(span);
        let rest = Duration::ZERO;
        Self { span, until: now, for_clients, crowded: false, ours_until: now, asleep_until: now, rest }
    }

    pub fn on_message(&mut self) {
        if let Some(span) = self.span {
            self.until = Instant::now() + span;
        }
    }

    pub fn on_command(&mut self) {
        if self.for_clients {
            self.on_message();
        }
    }

    pub fn waits(&self) -> bool {
        self.span.is_some() && Instant::now() < self.until
    }

    /// Yields the core, and stops polling if another process has used it.
    pub fn give_way(&mut self) {
        let before = Instant::now();
        if before >= self.asleep_until {
            std::thread::yield_now();
            let after = Instant::now();
            self.on_away(after - before, after);
        }
        if self.crowded {
            self.until = before;
        }
    }

    /// Decides from the length of a yield whether the core is contended, and whether to sleep for a while.
    fn on_away(&mut self, away: Duration, now: Instant) {
        self.crowded = away > CROWDED;
        self.rest = if away > COMPUTES { (2 * self.rest).clamp(*RESTS.start(), *RESTS.end()) } else { Duration::ZERO };
        self.asleep_until = now + self.rest;
    }

    /// Flushes and yields after a message was sent if the core is contended: its receiver may wait for this core.
    pub async fn on_said(&mut self) {
        if self.crowded {
            behind_others().await;
            self.give_way();
        }
    }

    /// Yields while there is work, for at most half of the time, so that busy clients here do not keep the core from
    /// processes that have messages for this peer.
    pub fn share(&mut self) {
        let before = Instant::now();
        if self.span.is_some() && before >= self.ours_until {
            std::thread::yield_now();
            let after = Instant::now();
            self.ours_until = after + (after - before);
        }
    }
}

/// Runs every ready task once. Unlike tokio's `yield_now`, does not poll the sockets.
async fn behind_others() {
    let mut has_waited = false;
    poll_fn(|context| {
        if std::mem::replace(&mut has_waited, true) {
            return Poll::Ready(());
        }
        context.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn peer_polls_after_messages_and_remote_commands() {
        let hour = Duration::from_secs(3600);
        for (span, for_clients, expected) in
            [(Duration::ZERO, true, (false, false)), (hour, false, (false, true)), (hour, true, (true, true))]
        {
            let mut awake = Awake::new(span, for_clients);
            assert!(!awake.waits());
            awake.on_command();
            let after_command = awake.waits();
            awake.on_message();
            assert_eq!((after_command, awake.waits()), expected, "{span:?} {for_clients}");
        }
    }

    #[tokio::test]
    async fn core_is_not_yielded_again_at_once() {
        let mut awake = Awake::new(Duration::from_secs(3600), false);
        awake.share();
        let persistent = Instant::now() + Duration::from_secs(3600);
        awake.ours_until = persistent;
        awake.share();
        assert_eq!(awake.ours_until, persistent);
        awake.on_message();
        awake.crowded = true;
        awake.on_said().await;
        assert_eq!(awake.waits(), !awake.crowded);
    }

    #[tokio::test]
    async fn pause_beside_a_computing_process_doubles() {
        let mut awake = Awake::new(Duration::from_secs(3600), false);
        let mut now = Instant::now();
        for (away, rest) in [(1, 0), (4, 20), (4, 40), (8, 80), (1, 0), (4, 20)] {
            awake.on_away(Duration::from_millis(away), now);
            assert_eq!(awake.asleep_until - now, Duration::from_millis(rest), "{away} ms");
            now += Duration::from_secs(1);
        }
        (0..10).for_each(|_| awake.on_away(Duration::from_millis(4), now));
        assert_eq!(awake.asleep_until - now, Duration::from_secs(1), "the upper bound");
        // While it sleeps, it flushes without yielding.
        awake.asleep_until = Instant::now() + Duration::from_secs(3600);
        awake.on_message();
        assert!(awake.waits(), "checked when it yields");
        awake.on_said().await;
        assert_eq!((awake.waits(), awake.crowded, awake.rest), (false, true, Duration::from_secs(1)));
        let before = Instant::now();
        awake.asleep_until = before;
        awake.give_way();
        assert!(awake.asleep_until > before);
    }

    #[tokio::test]
    async fn ready_tasks_run_first() {
        let (turn, mut taken) = tokio::sync::oneshot::channel();
        tokio::spawn(async move { turn.send(()) });
        behind_others().await;
        assert_eq!(taken.try_recv(), Ok(()));
    }
}
