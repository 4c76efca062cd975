//! What protocols with replicas have in common: where the replicas are, how to reach them, and how long a lease is good
//! for at the other end.

use alloc::collections::VecDeque;
use alloc::sync::Arc;

use peerlock_base::{PeerId, Span};

use crate::{Cx, Protocol, Quorum};

/// Where the replicas are, and how many of them must agree. All peers of a resource have the same.
///
/// Sigma derives the place of replica i from a key, "/foo/bar:i" (§2). Here it is a table: whoever resolves keys fills
/// it in.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Replicas {
    hosts: Arc<[PeerId]>,
    quorum: Quorum,
}

impl Replicas {
    /// `votes` of the replicas at these peers; a peer may host several.
    ///
    /// # Panics
    /// As [`Quorum::new`].
    pub fn new(hosts: impl IntoIterator<Item = PeerId>, votes: u32) -> Self {
        let hosts: Arc<[PeerId]> = hosts.into_iter().collect();
        let quorum = Quorum::new(u32::try_from(hosts.len()).unwrap_or(u32::MAX), votes);
        Self { hosts, quorum }
    }

    /// One replica at each of the first peers, for drivers that number peers from 0.
    pub fn first(quorum: Quorum) -> Self {
        Self::new((0..u64::from(quorum.replicas())).map(PeerId::new), quorum.votes())
    }

    /// How many replicas, and how many votes.
    pub fn quorum(&self) -> Quorum {
        self.quorum
    }

    /// The peer that hosts a replica.
    pub fn host(&self, replica: u32) -> PeerId {
        self.hosts[replica as usize]
    }

    /// The replicas that a peer hosts.
    pub fn hosted_by(&self, peer: PeerId) -> impl Iterator<Item = u32> {
        (0..).zip(&*self.hosts).filter(move |&(_, &host)| host == peer).map(|(index, _)| index)
    }
}

/// The way to peers that may be ourselves: what a peer tells itself is no message, and is kept for the end of the step.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Post<M> {
    me: PeerId,
    /// Empty between two steps.
    here: VecDeque<M>,
}

impl<M> Post<M> {
    pub fn new(me: PeerId) -> Self {
        Self { me, here: VecDeque::new() }
    }

    pub fn me(&self) -> PeerId {
        self.me
    }

    pub fn send<P: Protocol<Message = M>>(&mut self, to: PeerId, message: M, cx: &mut Cx<'_, P>) {
        if to == self.me {
            self.here.push_back(message);
        } else {
            cx.send(to, message);
        }
    }

    /// The next thing that we have told ourselves.
    pub fn take(&mut self) -> Option<M> {
        self.here.pop_front()
    }
}

/// What is surely left by any honest clock when another has shown `span`. Rates may differ by one part in a thousand:
/// our choice, ten times what quartz does.
pub(crate) fn by_any_clock(span: Span) -> Span {
    span - span / 1000
}
