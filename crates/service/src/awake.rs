//! Whether a peer stays awake after a message: a core that has gone to sleep takes longer to wake up than a message
//! is under way. Whoever waits awake gives way to other processes all the time. To one that computes it gives way
//! until a tick of the kernel's clock, which is 200 hand-overs, while who sleeps has the core as soon as something
//! comes: beside such a process a peer does not stay awake.

use std::future::poll_fn;
use std::ops::RangeInclusive;
use std::task::Poll;
use std::time::{Duration, Instant};

use tokio::runtime::{Handle, RuntimeFlavor};

/// If giving way takes longer than this, another process had the core meanwhile. Our choice: several times what it
/// takes where nobody else wants it, less than any process runs for.
const CROWDED: Duration = Duration::from_micros(10);

/// Whoever had the core for longer than this computes: it gave it back at a tick, of which there are 100 to 1000 in a
/// second. Our choice: longer than processes of ours have it, who give way themselves.
const COMPUTES: Duration = Duration::from_micros(2500);
/// For so long nobody stays awake then: twice as long each time it is found again, since it costs a tick to find out.
const RESTS: RangeInclusive<Duration> = Duration::from_millis(20)..=Duration::from_secs(1);

/// When to sleep, and when to let others have the core.
pub struct Awake {
    /// For how long after a message, if at all.
    span: Option<Duration>,
    until: Instant,
    /// Whether also after what a client wants.
    for_clients: bool,
    /// Whether another process had the core when we last gave way.
    crowded: bool,
    /// While there is work the core is not given away before this.
    ours_until: Instant,
    /// Somebody computes here: until this nobody waits awake.
    asleep_until: Instant,
    /// For how long that was found the last time; zero if it was not.
    rest: Duration,
}

impl Awake {
    /// For so long after each message, and if clients are other processes also after each of their wishes: the next
    /// comes soon. Where threads share the work another of them waits for messages, and this one would stay awake in
    /// vain.
    pub fn new(span: Duration, for_clients: bool) -> Self {
        let alone = Handle::current().runtime_flavor() == RuntimeFlavor::CurrentThread;
        let now = Instant::now();
        let span = (alone && !span.is_zero()).then_some(span);
        let rest = Duration::ZERO;
        Self { span, until: now, for_clients, crowded: false, ours_until: now, asleep_until: now, rest }
    }

    /// A message has come.
    pub fn on_message(&mut self) {
        if let Some(span) = self.span {
            self.until = Instant::now() + span;
        }
    }

    /// A client has said something.
    pub fn on_command(&mut self) {
        if self.for_clients {
            self.on_message();
        }
    }

    /// Whether another message may come soon, so that it is waited for awake.
    pub fn waits(&self) -> bool {
        self.span.is_some() && Instant::now() < self.until
    }

    /// Lets others have the core for a moment. As many may wait awake as there are cores; whoever is one too many
    /// sleeps until it is woken.
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

    /// Others had the core for so long.
    fn on_away(&mut self, away: Duration, now: Instant) {
        self.crowded = away > CROWDED;
        self.rest = if away > COMPUTES { (2 * self.rest).clamp(*RESTS.start(), *RESTS.end()) } else { Duration::ZERO };
        self.asleep_until = now + self.rest;
    }

    /// Something was said that others wait for. Where more want to run than there are cores, whoever waits may have to
    /// wait for ours, too: then it is written at once, and the core is theirs.
    pub async fn on_said(&mut self) {
        if self.crowded {
            behind_others().await;
            self.give_way();
        }
    }

    /// As [`give_way`](Self::give_way), with work at hand: what clients of ours want again and again must not keep from
    /// the core who could tell us that others wait. At most half of the time is given away.
    pub fn share(&mut self) {
        let before = Instant::now();
        if self.span.is_some() && before >= self.ours_until {
            std::thread::yield_now();
            let after = Instant::now();
            self.ours_until = after + (after - before);
        }
    }
}

/// Lets every task have a turn that is ready now, and does not look at the sockets, as tokio's `yield_now` does.
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
    async fn it_stays_awake_after_messages_and_after_what_clients_elsewhere_want() {
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
    async fn who_was_kept_from_the_core_does_not_give_it_away_at_once() {
        let mut awake = Awake::new(Duration::from_secs(3600), false);
        awake.share();
        let persistent = Instant::now() + Duration::from_secs(3600);
        awake.ours_until = persistent;
        awake.share();
        assert_eq!(awake.ours_until, persistent);
        // Who waits awake, and finds the core taken, sleeps until it is woken.
        awake.on_message();
        awake.crowded = true;
        awake.on_said().await;
        assert_eq!(awake.waits(), !awake.crowded);
    }

    #[tokio::test]
    async fn beside_who_computes_it_sleeps_longer_each_time_until_nobody_does() {
        let mut awake = Awake::new(Duration::from_secs(3600), false);
        let mut now = Instant::now();
        for (away, rest) in [(1, 0), (4, 20), (4, 40), (8, 80), (1, 0), (4, 20)] {
            awake.on_away(Duration::from_millis(away), now);
            assert_eq!(awake.asleep_until - now, Duration::from_millis(rest), "{away} ms");
            now += Duration::from_secs(1);
        }
        (0..10).for_each(|_| awake.on_away(Duration::from_millis(4), now));
        assert_eq!(awake.asleep_until - now, Duration::from_secs(1), "and no longer than that");
        // Meanwhile it does not wait awake, and writes at once what others wait for, without giving the core away.
        awake.asleep_until = Instant::now() + Duration::from_secs(3600);
        awake.on_message();
        assert!(awake.waits(), "it does not look before it would give way");
        awake.on_said().await;
        assert_eq!((awake.waits(), awake.crowded, awake.rest), (false, true, Duration::from_secs(1)));
        // Then it tries again.
        let before = Instant::now();
        awake.asleep_until = before;
        awake.give_way();
        assert!(awake.asleep_until > before);
    }

    #[tokio::test]
    async fn others_have_a_turn_before_we_go_on() {
        let (turn, mut taken) = tokio::sync::oneshot::channel();
        tokio::spawn(async move { turn.send(()) });
        behind_others().await;
        assert_eq!(taken.try_recv(), Ok(()));
    }
}
