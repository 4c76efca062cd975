//! The door to a node: what goes in, and what comes out.

use std::time::Duration;

use peerlock_protocol::Grant;
use peerlock_registry::ClusterId;
use peerlock_registry::disk::Write;
use peerlock_types::{PeerId, Time};

use crate::clients::{TicketId, Wanted};
use crate::{ClusterView, Error, Event, JournalEntry, Listing, Name, Notice, Progress, ResourceDetails, ResourceView};

/// Everything that can happen to a node.
#[derive(Clone, Debug)]
pub enum Input {
    /// Begin, and look for peers at these addresses: those that a person gave, and those of all members as the last
    /// [`Effect::Members`] told them. Comes first, and once. Answered by [`Effect::Joined`] when the first session
    /// stands, or by [`Effect::NotJoined`].
    Start {
        /// Where to look for peers. An own address among them does no harm.
        join: Vec<String>,
    },
    /// Of the network.
    Net(NetEvent),
    /// The time has come that [`Node::next_wake`](crate::Node::next_wake) told.
    Wake,
    /// The [`Effect::Write`] with this number is done, for good. They are answered in order. After a failed write the
    /// process must end: nobody knows what the file says then.
    Written(u64),
    /// [`Effect::Belongs`] is written down.
    ClusterRecorded,
    /// A client asks. The same request of the same session for the same resource gets the same ticket, granted or not.
    Acquire {
        /// Whom to answer with [`Answer::Ticket`].
        call: u64,
        /// What it asks for.
        wanted: Wanted,
    },
    /// A client leaves, or does not want to wait any more. Fails if it was inside and its lease has ended, or if there
    /// is no such ticket.
    Release {
        /// Whom to answer with [`Answer::Released`], if anybody.
        call: Option<u64>,
        /// As it was told by [`Answer::Ticket`], or by [`Effect::Returned`].
        ticket: TicketId,
    },
    /// A client renews its lease. Fails if that does not stand any more. A detached one is renewed in the register, so
    /// that the answer takes a moment.
    Renew {
        /// Whom to answer with [`Answer::Renewed`].
        call: u64,
        /// As it was told by [`Answer::Ticket`], or by [`Effect::Returned`].
        ticket: TicketId,
    },
    /// A client that an earlier process of this host has let in goes on here. Answered when our first session stands;
    /// [`Effect::Granted`] follows the first time, with its end. Fails if its end has come.
    Resume {
        /// Whom to answer with [`Answer::Ticket`].
        call: u64,
        /// Whose slot it has.
        name: Name,
        /// What it calls its grant: [`Wanted::taken_over_as`].
        note: String,
    },
    /// Nobody waits any more for the answer to [`Input::Resume`], which does not come then. What it was about stands as
    /// it did, until its end.
    GiveUp {
        /// Whom it was to be answered to.
        call: u64,
    },
    /// Somebody wants to see a resource in the whole cluster.
    Show {
        /// Whom to answer with [`Answer::Shown`].
        call: u64,
        /// The resource to show.
        name: Name,
    },
    /// Somebody wants to see the cluster: who its members are, who votes, who has a session.
    Look {
        /// Whom to answer with [`Answer::Found`].
        call: u64,
    },
    /// Somebody wants to see the names of the resources that there are, a page at a time.
    List {
        /// Whom to answer with [`Answer::Listed`].
        call: u64,
        /// Where the page begins and how long it is.
        listing: Listing,
    },
    /// A resource is to have this many slots from now on. Those that are too many go when they are left.
    Resize {
        /// Whom to answer with [`Answer::Resized`].
        call: u64,
        /// The resource to change.
        name: Name,
        /// How many slots it is to have.
        slots: u32,
    },
    /// A resource that nobody uses is to be forgotten, with its name and its number of slots. Who has a part in it is
    /// asked to give that up; if anybody is inside or waits, nothing has changed.
    Remove {
        /// Whom to answer with [`Answer::Removed`].
        call: u64,
        /// The resource to forget.
        name: Name,
    },
    /// A host loses all that it has of a resource, at once and by force: what it holds is given to others though its
    /// clients may still be inside. Who is inside there hears it when it can be reached; only its lower fencing number
    /// protects until then.
    Expel {
        /// Whom to answer with [`Answer::Expelled`].
        call: u64,
        /// Of this resource, and of no other.
        name: Name,
        /// The host that loses it.
        peer: PeerId,
    },
    /// Whoever is inside with this fencing number is to stop, as if its lease could not be renewed: its host tells it
    /// so, and the slot goes on when it has stopped, or at the end of its lease. What is detached has nobody to tell,
    /// and ends at once; also if its host is away.
    Revoke {
        /// Whom to answer with [`Answer::Revoked`].
        call: u64,
        /// What its slot is of.
        name: Name,
        /// The host whose client it is.
        peer: PeerId,
        /// Which grant.
        fencing: u64,
    },
    /// These hosts are to vote from now on, and nobody else; or as many as fit, chosen by the register.
    SetVoters {
        /// Whom to answer with [`Answer::Seated`].
        call: u64,
        /// The hosts; `None` for the register's own choice.
        hosts: Option<Vec<PeerId>>,
    },
    /// No more clients: those who wait are sent away, and those who are inside must stop. Their leases stand to the end
    /// all the same, for those who do not hear of it. What is detached stays. Answered by [`Effect::Drained`].
    Drain,
    /// No more clients: those who wait are sent away, and those who are inside stay for as long as they like. Answered
    /// by [`Effect::Drained`] when the last of them has left; what is detached is not waited for.
    Close,
    /// End the session and stop. Clients here lose what they have, but for what is detached, so [`Input::Drain`] comes
    /// before it. Answered by [`Effect::Left`] when the register has ended the session, so that nobody waits for its
    /// time to run out; or after a while without that.
    Leave,
}

/// What a network reports. Each connection to a peer is an *epoch*: see `Transport` in `peerlock-service` for what it
/// promises.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NetEvent {
    /// A connection to this peer begins.
    Up {
        /// The host at the other end.
        peer: PeerId,
        /// The number of this connection among all to that host; later ones have higher numbers.
        epoch: u64,
        /// Where it was reached, or where it says that it listens.
        address: String,
    },
    /// It has ended.
    Down {
        /// The host at the other end.
        peer: PeerId,
        /// The number of the connection.
        epoch: u64,
        /// Why, in words.
        why: String,
    },
    /// Bytes of one `send`.
    Message {
        /// The host that sent them.
        from: PeerId,
        /// The number of the connection.
        epoch: u64,
        /// What was sent.
        bytes: Vec<u8>,
    },
    /// Nobody could be reached where we dialled; it is tried again.
    Unreached {
        /// The address that was dialled.
        address: String,
        /// Why, in words.
        why: String,
    },
}

/// Why a connection is ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Parting {
    /// What came on it made no sense.
    Nonsense,
    /// Neither side needs it.
    Unneeded,
    /// It is taken for broken.
    Broken,
}

/// What a node wants done, in this order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Send bytes on a connection that is up.
    Send {
        /// The host at the other end.
        to: PeerId,
        /// The number of the connection.
        epoch: u64,
        /// What to send.
        bytes: Vec<u8>,
    },
    /// End the connection to this host, for another to begin. What was sent before still goes, if it can.
    HangUp(PeerId, Parting),
    /// Connect to whoever listens there, and reconnect whenever that ends.
    Dial(String),
    /// Do not dial this address any more; a connection that there is stays.
    Forget(String),
    /// Change the voter's file. Answered by [`Input::Written`]; never waited for on the peer's own thread. A driver
    /// without a folder keeps it in memory, or nowhere, and answers at once.
    Write {
        /// To be named in the answer; one more than that of the write before.
        number: u64,
        /// Bytes to add to the file, or to put in its place.
        write: Write,
    },
    /// This process belongs to this cluster from now on: to be written down for the next one. Answered by
    /// [`Input::ClusterRecorded`]; before that it opens no session and tells nobody. Said once by [`Origin::Seeks`], and by
    /// [`Origin::Founds`] when the voter's file is there; who founds by `expect` says it then, too.
    ///
    /// [`Origin::Seeks`]: crate::Origin::Seeks
    /// [`Origin::Founds`]: crate::Origin::Founds
    Belongs(ClusterId),
    /// To be written down for the next process of this host, where that outlives this one but not the machine: at once,
    /// and before what follows in the same step. Not answered. Whoever drives a node whose clients all die with it need
    /// not.
    Record(JournalEntry),
    /// Where all members listen, whenever that has changed: to be written down for the next process, which hands them
    /// to [`Input::Start`]. Not answered.
    Members(Vec<String>),
    /// The first session stands: we are in the cluster. Said once.
    Joined,
    /// For a while ([`Config::join_timeout`](crate::Config::join_timeout)) nobody was met who knows a cluster, where we
    /// know none and do not found one. Said once; we go on looking, and `Joined` may still come. Who does not want that
    /// throws the node away.
    NotJoined,
    /// To whoever has called.
    Answer {
        /// As it was in the input.
        call: u64,
        /// Of the kind that the input names, or why there is none.
        answer: Result<Answer, Error>,
    },
    /// A ticket is inside, until then unless that is renewed.
    Granted {
        /// As its client was told by [`Answer::Ticket`].
        ticket: TicketId,
        /// When its lease ends, or the session of this process if that is earlier.
        until: Time,
    },
    /// A ticket stands for longer than was told: its lease was renewed, or the session.
    Renewed {
        /// The ticket whose lease it is.
        ticket: TicketId,
        /// When its lease ends now.
        until: Time,
    },
    /// It must stop, and why: mostly since its end comes closer than its grace ([`Error::Lost`]).
    Lost(TicketId, Error),
    /// Its place in line.
    Progress(TicketId, Progress),
    /// Nothing is left of a ticket, and why: [`Error::Lost`] if its client has given it back.
    Ended(TicketId, Error),
    /// A detached grant that an earlier process of this host has given, as the register knows it. It can be renewed and
    /// released by this ticket from now on.
    Returned {
        /// What it is called here.
        ticket: TicketId,
        /// Of which resource it has a slot.
        name: Name,
        /// What its client calls it: [`Wanted::detached`] as it was then.
        note: String,
        /// Its slot and fencing number.
        grant: Grant,
        /// It stands no longer than this unless it is renewed, and may have less: when it was last renewed is not known
        /// here.
        ttl: Duration,
    },
    /// We answer for a grant of an earlier process of this host. It can be renewed and released by this ticket from now
    /// on, and its client may [go on](Input::Resume) with it.
    Inherited {
        /// What it is called here.
        ticket: TicketId,
        /// What its client calls it.
        note: String,
    },
    /// For whoever watches this peer.
    Event(Event),
    /// For whoever keeps a log.
    Notice(Notice),
    /// After [`Input::Drain`] or [`Input::Close`]: nobody is here any more.
    Drained,
    /// After [`Input::Leave`].
    Left {
        /// Whether the register has ended its session. If not, nobody could be told, and others wait for its end.
        confirmed: bool,
    },
}

/// What is answered to a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// To [`Input::Acquire`] and [`Input::Resume`]: the ticket. If it is inside already, nothing else will say so: ask
    /// [`Node::grant`](crate::Node::grant).
    Ticket(TicketId),
    /// To [`Input::Release`]: it stood until then.
    Released,
    /// To [`Input::Renew`]: until when it stands.
    Renewed(Time),
    /// To [`Input::Show`].
    Shown(ResourceDetails),
    /// To [`Input::Look`].
    Found(ClusterView),
    /// To [`Input::List`]: the next resources in the order of their names; none if there are no more.
    Listed(Vec<ResourceView>),
    /// To [`Input::Resize`]: it has as many from now on.
    Resized,
    /// To [`Input::Remove`]: there is no such resource any more.
    Removed,
    /// To [`Input::Expel`]: the host has no part in it any more.
    Expelled,
    /// To [`Input::Revoke`]: nobody is inside with it any more.
    Revoked,
    /// To [`Input::SetVoters`]: it is decided; the change itself takes a moment.
    Seated,
}
