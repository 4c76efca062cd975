use peerlock_types::Span;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Limits {
    pub slots: usize,
    /// Of each peer's clients.
    pub requests: u64,
    /// Waiting or holding at a time.
    pub clients: usize,
    pub withdrawals: u32,
    pub losses: u32,
    pub duplications: u32,
    /// Ignored if time passes.
    pub timeouts: u32,
    /// How often time advances to the next pending timer. Timers then expire exactly when due. With 0, time does not
    /// pass, and a timer may expire at any moment.
    pub passes: u32,
    /// Timers set for longer never expire: without time a lease never ends, nor may a timer that guards one.
    pub longest_timer: Span,
    /// The first peers, which have no clients and may be reset.
    pub replicas: usize,
    /// Merges states that are permutations of replicas. Requires
    /// [`Observe::digest`](peerlock_protocols::Observe::digest), replica i at the i-th peer, and unordered messages.
    pub alike: bool,
    /// Discards messages without effect: [`Observe::is_void`](peerlock_protocols::Observe::is_void).
    pub tidy: bool,
    pub resets: u32,
    /// Of peers without clients, for good.
    pub retirements: u32,
    /// Of peers without waiting clients.
    pub suspicions: u32,
    /// Of a peer with waiting clients from another, for any time.
    pub unreachable: u32,
    /// Of tokens whose receiver has no waiting clients.
    pub returns: u32,
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
    /// The registry ends the session at any later moment.
    pub stops: u32,
    /// Of stopped peers, before or after the end of the old session.
    pub sessions: u32,
    pub takeovers: u32,
    /// Clients of evicted parties may hold until they are notified.
    pub forces: u32,
    pub forgets: u32,
    pub removes: u32,
    pub detached: u32,
    /// At a later process of the host. Only then may a process end a grant without notifying its client.
    pub renewals: u32,
    pub repeats: u32,
    /// In turn; 0 for none.
    pub resizes: [u32; 2],
    /// Otherwise the first party is the coordinator.
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
    /// After the session has joined again.
    EvictsLate,
    /// After another resize.
    ResizesLate,
    /// The slot of an ended detached grant is handed over before the registry confirms.
    HandsOnFirst,
    /// An earlier session can end a detached grant that a later one has renewed.
    AttachesRenewed,
}
