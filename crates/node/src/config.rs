use peerlock_registry::Versions;
use peerlock_types::Span;

/// Timeouts and limits of a peer. Every default is our choice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Config {
    /// How long to look for a member of a cluster. 10 s.
    pub join_timeout: Span,
    /// How long to wait for the end of the session when leaving. 5 s: an election with a margin.
    pub leave_patience: Span,
    /// An unneeded connection is closed after this long without a message. 60 s.
    pub idle: Span,
    /// A resource that is not used here is quit after this long. 10 min: longer than the interval of a job that runs
    /// every few minutes.
    pub unused: Span,
    /// How long a peer's own thread spins after a message: waking a sleeping core takes longer than one. 0 by default;
    /// 200 µs on the real network.
    pub awake: Span,
    /// The maximum number of waiting and holding clients. 100,000.
    pub most_clients: usize,
    /// The maximum number of items stored for one host. Its further updates are treated as lost. 250,000: more than
    /// twice what its clients can cause.
    pub ration: usize,
    /// The supported versions. Tests change it to simulate a later program.
    pub versions: Versions,
    /// The registry's configuration.
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
