use peerlock_types::Span;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Limits {
    pub slots: usize,
    /// The number of requests at each peer.
    pub requests: u64,
    /// The clients of a peer that wait or hold at a time.
    pub clients: usize,
    pub withdrawals: u32,
    pub losses: u32,
    pub duplications: u32,
    /// How many timers may expire. Ignored if time passes.
    pub timeouts: u32,
    /// How often time advances to the next pending timer. Timers then expire exactly when due. With 0, time does not
    /// pass, and a timer may expire at any moment.
    pub passes: u32,
    /// Timers set for longer never expire. If time does not pass, this excludes the ends of leases.
    pub longest_timer: Span,
    /// The first peers, which have no clients and may be reset.
    pub replicas: usize,
    /// Merges states that are permutations of replicas. Requires
    /// [`Observe::digest`](peerlock_protocols::Observe::digest), replica i at the i-th peer, and unordered messages.
    pub alike: bool,
    /// Discards messages without effect: [`Observe::is_void`](peerlock_protocols::Observe::is_void).
    pub tidy: bool,
    pub resets: u32,
    /// Suspicions of peers without waiting clients.
    pub suspicions: u32,
    /// How often a peer with waiting clients becomes unreachable from another, for any time.
    pub unreachable: u32,
    pub ordered: bool,
    /// `None` without a registry.
    pub faults: Option<FaultLimits>,
}

impl Limits {
    /// One request at each peer, and a reliable network that reorders.
    pub fn new(slots: usize) -> Self {
        let longest_timer = Span::from_nanos(u64::MAX);
        Self { slots, requests: 1, clients: 1, longest_timer, ..Self::default() }
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct FaultLimits {
    /// The first peers, which are parties at the start.
    pub parties: usize,
    /// Crashes. The registry ends the session at any later moment.
    pub stops: u32,
    /// New sessions of stopped peers, before or after the end of the old one.
    pub sessions: u32,
    pub takeovers: u32,
    /// Evictions. Clients of an evicted party may hold until it is notified.
    pub forces: u32,
    pub forgets: u32,
    pub removes: u32,
    pub detached: u32,
    /// Renewals at a later process of the host. Only with these may a process end a grant without its client.
    pub renewals: u32,
    pub repeats: u32,
    /// The later numbers of slots, in turn; 0 for none.
    pub resizes: [u32; 2],
    /// Any party may be the coordinator; otherwise the first is.
    pub any_coordinator: bool,
    pub mutation: Option<RegistryMutation>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RegistryMutation {
    /// R3: the end of a party opens no generation, unless it was the coordinator.
    EndUnnoticed,
    /// R8: a census also removes parties that joined after its generation was opened.
    CloseRemovesJoiners,
    /// The new process has no record of its predecessor's grants.
    NoGrantFile,
    /// The old session stays, and no generation opens.
    TakeOverUnnoticed,
    /// R10: a party is removed on a request of an older generation, too.
    QuitsLate,
    /// R11: a resource is removed in spite of parties or a later generation.
    RemovesUsed,
    /// R11: a resource is removed while an evicted session has not been notified.
    RemovesForced,
    /// R11: the next resource of the name restarts at the first generation.
    ForgetsFloor,
    /// A late eviction applies to a session that has joined again.
    EvictsLate,
    /// A late resize applies after another one.
    ResizesLate,
    /// The slot of an ended detached grant is handed over before the registry confirms.
    HandsOnFirst,
    /// An earlier session can end a detached grant that a later one has renewed.
    AttachesRenewed,
}
