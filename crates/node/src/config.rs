use peerlock_registry::Versions;
use peerlock_types::Span;

/// How patient a peer is. Every default is our choice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Config {
    /// How long to look for somebody who knows a cluster before [`Effect::NotJoined`](crate::Effect::NotJoined). 10 s.
    pub join_timeout: Span,
    /// How long to wait when leaving for the register to end the session. 5 s: an election, and some more.
    pub leave_patience: Span,
    /// A connection on which nothing was said for this long ends, if nobody needs it. 60 s.
    pub idle: Span,
    /// What nobody here has used for this long, and nobody elsewhere has said anything of, is given up here: the
    /// register keeps it. 10 min: longer than from one use to the next where there is one every few minutes.
    pub unused: Span,
    /// For this long after a message the peer stays awake, where it has a thread of its own: the
    /// next message often follows, and a core that sleeps takes longer to wake up than a message is under way. Whoever
    /// else wants the core gets it. 0 unless said otherwise; on the real network 200 µs.
    pub awake: Span,
    /// How many clients may wait or hold a slot here. 100,000.
    pub most_clients: usize,
    /// How many items are kept of what one host has said about all resources: requests, early updates, answers. Above
    /// this its updates are taken for lost. 250,000: more than twice what its clients can cause.
    pub ration: usize,
    /// The versions of peerlock's messages and entries that this program understands. Others in tests, which play the
    /// next program.
    pub versions: Versions,
    /// How patient the register is.
    pub registry: peerlock_registry::Config,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            join_timeout: Span::from_secs(10),
            leave_patience: Span::from_secs(5),
            idle: Span::from_secs(60),
            unused: Span::from_secs(600),
            awake: Span::ZERO,
            most_clients: 100_000,
            ration: 250_000,
            versions: Versions::OURS,
            registry: peerlock_registry::Config::default(),
        }
    }
}
