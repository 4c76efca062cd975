//! Whether a peer stays awake after a message: a core that has gone to sleep takes longer to wake up than a message is
//! under way. Whoever waits awake gives way to other processes all the time.

use std::time::{Duration, Instant};

use tokio::runtime::{Handle, RuntimeFlavor};

/// If giving way takes longer than this, another process had the core meanwhile: it is not ours to wait on. Our choice:
/// several times what it takes where nobody else wants it, less than any process runs for.
const CROWDED: Duration = Duration::from_micros(10);

/// When to sleep.
pub struct Awake {
    /// For how long after a message, if at all.
    span: Option<Duration>,
    until: Instant,
}

impl Awake {
    /// For so long after each message. Where threads share the work another of them waits for messages, and this one
    /// would stay awake in vain.
    pub fn new(span: Duration) -> Self {
        let alone = Handle::current().runtime_flavor() == RuntimeFlavor::CurrentThread;
        Self { span: (alone && !span.is_zero()).then_some(span), until: Instant::now() }
    }

    /// A message has come.
    pub fn on_message(&mut self) {
        if let Some(span) = self.span {
            self.until = Instant::now() + span;
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
        std::thread::yield_now();
        if before.elapsed() > CROWDED {
            self.until = before;
        }
    }
}
