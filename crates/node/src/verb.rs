//! Requests that have one reply: queries and administrative verbs. One type per verb serves the library, HTTP, its
//! client and the node.

use peerlock_types::PeerId;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
#[cfg(feature = "schema")]
use utoipa::ToSchema;

use crate::node::Node;
use crate::{Answer, ClusterView, Listing, Name, ResourceDetails, ResourceView, json};

/// A request with one reply. Its JSON is the body in the API, or the query of a GET. The resource is in the path.
pub trait Verb: Serialize + Into<Operation> {
    /// The reply.
    type Reply: DeserializeOwned + TryFrom<Answer, Error = Answer>;
    /// Method and path in the API.
    const ROUTE: &'static str;

    /// Returns the resource, which replaces `{name}` in the path.
    fn resource(&self) -> Option<&Name> {
        None
    }

    /// Sets the resource.
    #[must_use]
    fn with_resource(self, _: Name) -> Self {
        self
    }
}

/// Declares the verbs: type, reply, route, and the field of the resource, if there is one.
macro_rules! verbs {
    ($($verb:ident -> $reply:ty, $route:literal $(, $name:ident)?;)*) => {
        /// A request of any verb.
        #[derive(Clone, Debug, PartialEq, Eq)]
        #[allow(missing_docs, reason = "the types are documented")]
        pub enum Operation {
            $($verb($verb),)*
        }

        $(impl From<$verb> for Operation {
            fn from(verb: $verb) -> Self {
                Self::$verb(verb)
            }
        }

        impl Verb for $verb {
            type Reply = $reply;
            const ROUTE: &'static str = $route;

            $(fn resource(&self) -> Option<&Name> {
                Some(&self.$name)
            }

            fn with_resource(mut self, $name: Name) -> Self {
                self.$name = $name;
                self
            })?
        })*
    };
}

verbs! {
    Show -> ResourceDetails, "GET /v1/resources/{name}", name;
    Listing -> Vec<ResourceView>, "GET /v1/resources";
    Cluster -> ClusterView, "GET /v1/cluster";
    Resize -> Done, "POST /v1/resources/{name}/resize", name;
    Remove -> Done, "POST /v1/resources/{name}/remove", name;
    Revoke -> Done, "POST /v1/resources/{name}/revoke", name;
    Evict -> Done, "POST /v1/resources/{name}/evict", name;
    SetVoters -> Done, "POST /v1/voters";
    Forget -> Done, "POST /v1/forget";
}

impl Node {
    pub(crate) fn on_call(&mut self, call: u64, operation: Operation) {
        match operation {
            Operation::Show(Show { name }) => self.show(call, name),
            Operation::Listing(listing) => self.list(call, &listing),
            Operation::Cluster(Cluster {}) => self.look_for(call),
            Operation::Resize(Resize { name, slots }) => self.resize(call, name, slots),
            Operation::Remove(Remove { name }) => self.remove(call, name),
            Operation::Revoke(Revoke { name, peer, fencing }) => self.revoke(call, name, peer, fencing),
            Operation::Evict(Evict { name, peer }) => self.evict(call, name, peer),
            Operation::SetVoters(SetVoters { hosts }) => self.set_voters(call, hosts),
            Operation::Forget(Forget { peer }) => self.forget_member(call, peer),
        }
    }
}

/// The holders and the queue of a resource, in the whole cluster.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Show {
    /// The resource.
    #[serde(skip)]
    pub name: Name,
}

/// The members of the cluster, its voters and sessions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Cluster {}

/// The new capacity of a resource.
// Excess slots disappear when they are released.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(ToSchema), schema(as = Slots))]
#[serde(deny_unknown_fields)]
pub struct Resize {
    /// The resource.
    #[serde(skip, default = "unset")]
    pub name: Name,
    /// The number of slots.
    #[cfg_attr(feature = "schema", schema(minimum = 1, maximum = 1024))]
    pub slots: u32,
}

/// Deletes a resource that is not in use, with its name and its number of slots. Every party is asked to quit; if a
/// client holds a slot or waits, nothing changes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Remove {
    /// The resource.
    #[serde(skip)]
    pub name: Name,
}

/// Identifies the grant to revoke.
// Its host asks the client to stop; the slot is handed over when the client has released it, or at the end of its
// lease. A detached grant ends at once, even if its host is unreachable.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(ToSchema), schema(as = Wanted))]
#[serde(deny_unknown_fields)]
pub struct Revoke {
    /// The resource.
    #[serde(skip, default = "unset")]
    pub name: Name,
    /// The holder's host; `None` if there is no such grant. A service finds it by the fencing number.
    #[serde(skip)]
    pub peer: Option<PeerId>,
    /// Its fencing number, as in `GET /v1/resources/{name}`, so that no later grant is revoked by mistake.
    pub fencing: u64,
}

/// Identifies a host.
// The host is evicted without being asked: its slots are granted to others although its clients may still use them.
// They are notified once the host is reachable; until then only fencing numbers protect.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(ToSchema), schema(as = EvictTarget))]
#[serde(deny_unknown_fields)]
pub struct Evict {
    /// The resource.
    #[serde(skip, default = "unset")]
    pub name: Name,
    /// Its ID, as in `GET /v1/peers`.
    #[serde(with = "json")]
    #[cfg_attr(feature = "schema", schema(value_type = String, pattern = "^[0-9]{1,20}$"))]
    pub peer: PeerId,
}

/// Selects the voters.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(ToSchema), schema(as = Voters))]
#[serde(default, deny_unknown_fields)]
pub struct SetVoters {
    /// Their host IDs, as in `GET /v1/peers`; if absent, the cluster chooses.
    #[serde(with = "json", skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<Vec<String>>))]
    pub hosts: Option<Vec<PeerId>>,
}

/// Identifies a member that will not return.
// If it returns nevertheless, it joins like a new one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(ToSchema), schema(as = ForgetTarget))]
#[serde(deny_unknown_fields)]
pub struct Forget {
    /// Its ID, as in `GET /v1/cluster`.
    #[serde(with = "json")]
    #[cfg_attr(feature = "schema", schema(value_type = String, pattern = "^[0-9]{1,20}$"))]
    pub peer: PeerId,
}

/// The operation has been committed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(ToSchema))]
pub struct Done {}

/// Replies that the library returns as `()`.
impl From<Done> for () {
    fn from(_: Done) -> Self {}
}

impl TryFrom<Answer> for Done {
    type Error = Answer;

    fn try_from(answer: Answer) -> Result<Self, Answer> {
        if answer == Answer::Done { Ok(Self {}) } else { Err(answer) }
    }
}

macro_rules! replies {
    ($($reply:ty: $variant:ident;)*) => {
        $(impl TryFrom<Answer> for $reply {
            type Error = Answer;

            fn try_from(answer: Answer) -> Result<Self, Answer> {
                if let Answer::$variant(reply) = answer { Ok(reply) } else { Err(answer) }
            }
        })*
    };
}

replies! {
    ResourceDetails: Shown;
    Vec<ResourceView>: Listed;
    ClusterView: Found;
}

/// Stands for the resource of a body until [`Verb::with_resource`] sets it from the path.
fn unset() -> Name {
    "?".parse().expect("a valid name")
}
