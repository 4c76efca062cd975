//! The borders of a world.

use peerlock_types::Span;

/// What clients and network may do: the borders of a world.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// How many may be inside at once.
    pub slots: usize,
    /// How many requests the clients of each peer make.
    pub requests: u64,
    /// How many of them may wait or be inside at a time, at one peer.
    pub clients: usize,
    /// How many waiting clients may withdraw, in all.
    pub withdrawals: u32,
    /// How many messages may get lost, in all.
    pub losses: u32,
    /// How many messages may be delivered twice, in all.
    pub duplications: u32,
    /// How often timers may run out, in all. Does not matter where time passes.
    pub timeouts: u32,
    /// How often time may pass, in all: each time to the next moment at which a timer is due. A timer then runs out
    /// neither before its time nor after, while messages may take as long as they like; and all clocks agree. With 0
    /// time stands still, and a timer may run out at any moment.
    pub passes: u32,
    /// Timers set for longer than this never run out.
    ///
    /// Where time stands still a lease never ends, neither where it was given nor where it is used; a timer that
    /// watches over one must not run out either, as it would find nothing to do and use up a time-out.
    pub longest_timer: Span,
    /// How many of the peers, the first ones, are replicas: they have no clients and may lose their memory.
    pub replicas: usize,
    /// Whether replicas differ in nothing but their number. Then states in which they have only changed places are
    /// taken for one, which leaves nothing out: each can do what the other can. The protocol must know
    /// [`Observe::digest`](peerlock_protocols::Observe::digest), replica i must be at the i-th peer, and messages must
    /// not be ordered.
    pub alike: bool,
    /// Whether messages are taken away as soon as they can do nothing any more
    /// ([`Observe::is_void`](peerlock_protocols::Observe::is_void)). It leaves nothing out: with such a message or
    /// without, the same can happen.
    pub tidy: bool,
    /// How often a replica may lose its memory, in all.
    pub resets: u32,
    /// How many peers may leave for good once they have no clients, in all. Each has the next that stays for its heir.
    pub retirements: u32,
    /// How often a peer without waiting clients may be taken for gone by another, in all.
    pub suspicions: u32,
    /// How often the waiters of a peer may be taken for unreachable by another, in all. Each time ends at any moment.
    pub unreachable: u32,
    /// How many tokens on their way to a peer without waiting clients may come back to who sent them, in all.
    pub returns: u32,
    /// Whether a message stays behind those that its sender sent to the same peer before.
    pub ordered: bool,
    /// What may happen to sessions and slots. `None` if there is no register.
    pub faults: Option<FaultLimits>,
}

impl Limits {
    /// One request of one client at each peer, and a network that reorders and is reliable otherwise.
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

/// What may happen where there is a register: how often, in all.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct FaultLimits {
    /// How many of the peers, the first ones, are parties of the resource at the beginning.
    pub parties: usize,
    /// Peers that die, or cannot renew their session, with all their clients. The register ends the session at any
    /// moment after that.
    pub stops: u32,
    /// New sessions of peers that have stopped, before or after the end of the old one.
    pub sessions: u32,
    /// Processes that are killed and whose clients stay inside, with another process in their place at once.
    pub takeovers: u32,
    /// Parties that are forced out, with clients that may stay inside until they hear of it.
    pub forces: u32,
    /// Parties that give up what they have, since nobody has used it for a while.
    pub forgets: u32,
    /// Times that somebody sees that nobody takes part in the resource, and wants it removed.
    pub removes: u32,
    /// Grants that the register is told the end of: their clients stay inside when their peer stops.
    pub detached: u32,
    /// Detached grants that are renewed at a later process of their host. Only with these may a process take one for
    /// over without its client hearing of that.
    pub renewals: u32,
    /// Words, wishes and orders that arrive twice.
    pub repeats: u32,
    /// The numbers of slots that the resource gets, one after the other; 0 stands for none.
    pub resizes: [u32; 2],
    /// Whether the register may name any party as coordinator. Else it names the first.
    pub any_coordinator: bool,
    /// What the register, or the host, does wrong.
    pub slip: Option<Slip>,
}

/// A mistake outside of the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Slip {
    /// R3: the end of a party opens no generation, unless it coordinates.
    EndUnnoticed,
    /// R8: a count removes also those who have joined since its generation was opened.
    CloseRemovesJoiners,
    /// A process that takes over does not know whose clients are inside.
    NoGrantFile,
    /// A process that takes over goes on as if it were the old one: no generation is opened.
    TakeOverUnnoticed,
    /// R10: a party is taken out also if its wish for that is of an older generation.
    QuitsLate,
    /// R11: the resource is removed whoever takes part in it, in whatever generation.
    RemovesUsed,
    /// R11: the resource is removed though somebody was forced out of it, who is not told any more.
    RemovesForced,
    /// R11: the next resource of the name begins in the first generation.
    ForgetsFloor,
    /// A second copy of an order to force a session out counts also when the session has joined again.
    ExpelsLate,
    /// A second copy of an order for a number of slots counts also when there was another one since.
    ResizesLate,
    /// A detached grant that its process takes for over, and its client does not: the slot goes on before the register
    /// has heard that it is.
    HandsOnFirst,
    /// A detached grant is over when a session of its host says so, also if a later one has renewed it.
    AttachesRenewed,
}
