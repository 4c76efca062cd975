use peerlock_base::Span;

/// How patient a peer is. Every default is our choice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Config {
    /// A peer is routed around after this long without a connection. 3 s: more than a redial takes.
    pub suspect: Span,
    /// After this long its clients lose their places in line, and tokens on their way to it come back. 10 s: a third of
    /// the default lease.
    pub gone: Span,
    /// After this long it does not count any more when a majority is needed. 10 min: who is cut off for longer and
    /// comes back may have founded resources of its own.
    pub forget: Span,
    /// How often to look for a peer to join through. 500 ms.
    pub join_patience: Span,
    /// How long to look for one. 10 s.
    pub join_timeout: Span,
    /// How long to wait when leaving for others to confirm what they were given. 5 s.
    pub leave_patience: Span,
    /// For this long after a message the peer stays awake, where it has a thread of its own: the
    /// next message often follows, and a core that sleeps takes longer to wake up than a message is under way. Whoever
    /// else wants the core gets it. 0 unless said otherwise; on the real network 200 µs.
    pub awake: Span,
    /// How many clients may wait or hold a slot here. 100,000.
    pub most_clients: usize,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            suspect: Span::from_secs(3),
            gone: Span::from_secs(10),
            forget: Span::from_secs(600),
            join_patience: Span::from_millis(500),
            join_timeout: Span::from_secs(10),
            leave_patience: Span::from_secs(5),
            awake: Span::ZERO,
            most_clients: 100_000,
        }
    }
}
