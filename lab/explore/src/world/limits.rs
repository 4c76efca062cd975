use peerlock_types::Span;

/// The number of requests, faults and other events in a world.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    pub slots: usize,
    /// Of each peer's clients.
    pub requests: u64,
    /// How many clients of a peer may wait or hold at a time.
    pub clients: usize,
    pub withdrawals: u32,
    pub losses: u32,
    pub duplications: u32,
    /// Expirations of timers. Ignored if time passes.
    pub timeouts: u32,
    /// How often time advances to the next pending timer. Timers then expire exactly when due, and all clocks agree.
    /// With 0, time does not pass, and a timer may expire at any moment.
    pub passes: u32,
    /// Timers set for longer never expire.
    ///
    /// Without time a lease never ends. A timer that guards a lease must not expire either: it would have no effect and
    /// use up a timeout.
    pub longest_timer: Span,
    /// The number of peers, from the first on, that are replicas: they have no clients and may be reset.
    pub replicas: usize,
    /// Replicas differ only in their number: states that are permutations of each other are merged, which loses no
    /// coverage. Requires [`Observe::digest`](peerlock_protocols::Observe::digest), replica i at the i-th peer, and
    /// unordered messages.
    pub alike: bool,
    /// Messages without effect ([`Observe::is_void`](peerlock_protocols::Observe::is_void)) are discarded, which loses
    /// no coverage.
    pub tidy: bool,
    pub resets: u32,
    /// Peers that leave for good once they have no clients. The next remaining peer takes over.
    pub retirements: u32,
    /// Suspicions of peers without waiting clients.
    pub suspicions: u32,
    /// How often a peer with waiting clients becomes unreachable from another. Each time ends at any moment.
    pub unreachable: u32,
    /// Tokens that return to their sender, because the receiver has no waiting clients.
    pub returns: u32,
    pub ordered: bool,
    /// `None` without a registry.
    pub faults: Option<FaultLimits>,
}

impl Limits {
    /// Returns limits of one request at each peer and a reliable network that reorders.
    pub fn new(slots: usize) -> Self {
        Self {
            slots,
            requests: 1,
            clients: 1,
            withdrawals: 0,
            losses: 0,
            duplications: 0,
            timeouts: 0,
            passes: 0,
            longest_timer: Span::from_nanos(u64::MAX),
            replicas: 0,
            alike: false,
            tidy: false,
            resets: 0,
            retirements: 0,
            suspicions: 0,
            unreachable: 0,
            returns: 0,
            ordered: false,
            faults: None,
        }
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct FaultLimits {
    /// The number of peers, from the first on, that are parties at the start.
    pub parties: usize,
    /// Peers that crash or fail to renew their session. The registry ends the session at any later moment.
    pub stops: u32,
    /// New sessions of stopped peers, before or after the end of the old one.
    pub sessions: u32,
    /// Processes that are killed and replaced at once, and whose clients continue.
    pub takeovers: u32,
    /// Evicted parties. Their clients may hold until they are notified.
    pub forces: u32,
    /// Parties that leave because the resource is unused.
    pub forgets: u32,
    pub removes: u32,
    /// Grants recorded in the registry: they outlive their peer.
    pub detached: u32,
    /// Detached grants renewed at a later process of their host. Only then may a process end a grant without notifying
    /// its client.
    pub renewals: u32,
    /// Registry messages and commands that are duplicated.
    pub repeats: u32,
    /// The numbers of slots that the resource gets in turn; 0 for none.
    pub resizes: [u32; 2],
    /// The registry may choose any party as coordinator, not only the first.
    pub any_coordinator: bool,
    pub mutation: Option<RegistryMutation>,
}

/// A mutation outside of the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RegistryMutation {
    /// R3: the end of a party opens no generation, unless it was the coordinator.
    EndUnnoticed,
    /// R8: a census also removes parties that joined after its generation was opened.
    CloseRemovesJoiners,
    /// A process that takes over has no record of its predecessor's grants.
    NoGrantFile,
    /// A takeover keeps the old session and opens no generation.
    TakeOverUnnoticed,
    /// R10: a party is removed on a request of an older generation, too.
    QuitsLate,
    /// R11: a resource is removed in spite of parties or a later generation.
    RemovesUsed,
    /// R11: a resource is removed while an evicted session has not been notified.
    RemovesForced,
    /// R11: the next resource of the name restarts at the first generation.
    ForgetsFloor,
    /// A duplicated eviction applies even after the session has joined again.
    EvictsLate,
    /// A duplicated resize applies even after another resize.
    ResizesLate,
    /// A grant that its process ends without its client: the slot is handed over before the registry confirms.
    HandsOnFirst,
    /// A session of the host can end a detached grant that a later one has renewed.
    AttachesRenewed,
}
