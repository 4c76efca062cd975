//! The placement of replicas, and messages to them.

use alloc::collections::VecDeque;
use alloc::format;
use alloc::sync::Arc;
use core::fmt::{self, Display};

use peerlock_types::{Key, PeerId, Span};

use crate::{Cx, Protocol, Quorum};

/// The places of the replicas and the quorum.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Replicas {
    places: Places,
    quorum: Quorum,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Places {
    Hosts(Arc<[PeerId]>),
    /// The owners of these keys host the replicas.
    Keys(Arc<[Key]>),
}

impl Replicas {
    /// Places replicas at these peers; one may host several.
    ///
    /// # Panics
    /// As [`Quorum::new`].
    pub fn new(hosts: impl IntoIterator<Item = PeerId>, votes: u32) -> Self {
        let hosts: Arc<[PeerId]> = hosts.into_iter().collect();
        let quorum = Quorum::new(u32::try_from(hosts.len()).unwrap_or(u32::MAX), votes);
        Self { places: Places::Hosts(hosts), quorum }
    }

    /// Places one replica at each of the peers from 0.
    pub fn first(quorum: Quorum) -> Self {
        Self::new((0..u64::from(quorum.replicas())).map(PeerId::new), quorum.votes())
    }

    /// Replica i of resource "/foo/bar" is at the owner of the key of "/foo/bar:i" (§2 of the Sigma paper).
    pub fn on_overlay(resource: &str, quorum: Quorum) -> Self {
        let keys = (0..quorum.replicas()).map(|index| Key::of(format!("{resource}:{index}").as_bytes()));
        Self { places: Places::Keys(keys.collect()), quorum }
    }

    pub fn quorum(&self) -> Quorum {
        self.quorum
    }

    /// Returns the replicas at `peer`: none on an overlay, where the first message for a key creates its replica.
    pub fn hosted_by(&self, peer: PeerId) -> impl Iterator<Item = u32> {
        let hosts: &[PeerId] = match &self.places {
            Places::Hosts(hosts) => hosts,
            Places::Keys(_) => &[],
        };
        (0..).zip(hosts).filter(move |&(_, &host)| host == peer).map(|(index, _)| index)
    }

    pub fn key(&self, replica: u32) -> Option<Key> {
        match &self.places {
            Places::Hosts(_) => None,
            Places::Keys(keys) => keys.get(replica as usize).copied(),
        }
    }

    pub fn under(&self, key: Key) -> Option<u32> {
        (0..self.quorum.replicas()).find(|&replica| self.key(replica) == Some(key))
    }

    /// Returns the replica with this key, if it is the one that a message names.
    pub(crate) fn addressed(&self, key: Key, named: Option<u32>) -> Option<u32> {
        self.under(key).filter(|&replica| named == Some(replica))
    }
}

/// Buffers messages to this peer until the end of the step.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Sender<M> {
    pub me: PeerId,
    pub replicas: Replicas,
    here: VecDeque<M>,
}

impl<M> Sender<M> {
    pub fn new(me: PeerId, replicas: &Replicas) -> Self {
        Self { me, replicas: replicas.clone(), here: VecDeque::new() }
    }

    pub fn send<P: Protocol<Message = M>>(&mut self, to: PeerId, message: M, cx: &mut Cx<'_, P>) {
        if to == self.me {
            self.here.push_back(message);
        } else {
            cx.send(to, message);
        }
    }

    pub fn send_to<P: Protocol<Message = M>>(&mut self, replica: u32, message: M, cx: &mut Cx<'_, P>) {
        match &self.replicas.places {
            Places::Hosts(hosts) => self.send(hosts[replica as usize], message, cx),
            Places::Keys(keys) => cx.route(keys[replica as usize], message),
        }
    }

    pub fn take(&mut self) -> Option<M> {
        self.here.pop_front()
    }
}

/// Returns the mean after another interval, which counts one eighth: our choice.
pub(crate) fn mean(before: Option<Span>, interval: Span) -> Span {
    before.map_or(interval, |before| (before * 7 + interval) / 8)
}

/// The time that has passed by every correct clock when another has measured `span`. Rates differ by up to 0.1 %: our
/// choice.
pub(crate) fn by_any_clock(span: Span) -> Span {
    span - span / 1000
}

pub(crate) fn write_parts(f: &mut fmt::Formatter<'_>, parts: impl IntoIterator<Item = impl Display>) -> fmt::Result {
    let mut between = "";
    parts.into_iter().try_for_each(|part| write!(f, "{}{part}", core::mem::replace(&mut between, "; ")))
}
