//! Requests for slots.

use std::time::Duration;

use peerlock_types::{Span, is_hidden};
use serde::{Deserialize, Serialize};
#[cfg(feature = "schema")]
use utoipa::ToSchema;

use peerlock_node::{SHORTEST_TTL, Wait, Wanted, check_slots, json};

use crate::{Class, Error, GrantId, Name};

const TTL: Duration = Duration::from_secs(30);
/// The longest label or request ID, in bytes.
const MOST_TEXT: usize = 1024;

const LONGEST_DETACHED: Duration = Duration::from_secs(30 * 24 * 60 * 60);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Keeping {
    /// This peer renews it.
    Peer,
    /// The client renews it. It expires with this peer's session at the latest, unless the next process takes it over.
    Client,
    /// The client renews it in the registry: it outlives this peer.
    Registry,
}

/// A request for a slot. A resource name converts to a request with defaults.
///
/// ```
/// use std::time::Duration;
/// use peerlock_service::Request;
///
/// let plain = Request::from("nightly-backup");
/// let more = Request::new("nightly-backup").slots(3).wait(Duration::from_secs(60)).label("db7");
/// assert_eq!((plain.slots, more.slots), (None, Some(3)));
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(ToSchema), schema(description = "A request for a slot."))]
#[serde(default, deny_unknown_fields)]
#[must_use = "a request has no effect until it is acquired"]
#[non_exhaustive]
pub struct Request {
    /// The resource. In HTTP it is part of the path.
    #[serde(skip)]
    pub name: String,
    /// Number of slots of the resource. By default that of the existing resource, or one for a new one.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(minimum = 1, maximum = 1024))]
    pub slots: Option<u32>,
    /// How long to wait. By default without limit.
    #[serde(rename = "wait_ms", with = "json", skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<u64>))]
    pub wait: Option<Duration>,
    /// Do not wait: fail unless a slot is free and no other request waits.
    #[serde(rename = "try", skip_serializing_if = "core::ops::Not::not")]
    pub try_only: bool,
    /// Lease duration: how long a grant is valid without renewal. By default 30 s.
    #[serde(rename = "ttl_ms", with = "json", skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<u64>, minimum = 100, maximum = 2_592_000_000_u64))]
    pub ttl: Option<Duration>,
    /// How long before its lease expires a grant is lost, so that the holder can stop in time. By default a fifth of
    /// the lease.
    #[serde(rename = "grace_ms", with = "json", skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<u64>))]
    pub grace: Option<Duration>,
    /// Text that other users see beside the request or grant, such as a host and a command.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(max_length = 1024))]
    pub label: Option<String>,
    /// The process of the client, which other users see. In HTTP the agent gets it from the kernel.
    #[serde(skip)]
    pub pid: Option<u32>,
    /// Makes the request idempotent: a second one with the same ID for the same resource, while the first waits or
    /// holds a slot, is the same request. The next process of the peer does not know the ID.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(min_length = 16, max_length = 1024))]
    pub request_id: Option<String>,
}

impl Request {
    /// Returns a request for a resource with defaults.
    pub fn new(name: impl Into<String>) -> Self {
        Self { name: name.into(), ..Self::default() }
    }

    /// Sets `slots`.
    pub fn slots(self, slots: u32) -> Self {
        Self { slots: Some(slots), ..self }
    }

    /// Sets `wait`.
    pub fn wait(self, wait: Duration) -> Self {
        Self { wait: Some(wait), ..self }
    }

    /// Sets `try_only`.
    pub fn try_only(self) -> Self {
        Self { try_only: true, ..self }
    }

    /// Sets `ttl`.
    pub fn ttl(self, ttl: Duration) -> Self {
        Self { ttl: Some(ttl), ..self }
    }

    /// Sets `grace`.
    pub fn grace(self, grace: Duration) -> Self {
        Self { grace: Some(grace), ..self }
    }

    /// Sets `label`.
    pub fn label(self, label: impl Into<String>) -> Self {
        Self { label: Some(label.into()), ..self }
    }

    /// Sets `pid`.
    pub fn pid(self, pid: u32) -> Self {
        Self { pid: Some(pid), ..self }
    }

    /// Sets `request_id`.
    pub fn request_id(self, id: impl Into<String>) -> Self {
        Self { request_id: Some(id.into()), ..self }
    }

    /// Returns the lease duration and the grace.
    pub fn lease(&self) -> (Duration, Duration) {
        let ttl = self.ttl.unwrap_or(TTL);
        (ttl, self.grace.unwrap_or(ttl / 5))
    }

    pub(crate) fn wanted(self, keeping: Keeping) -> Result<Wanted, Error> {
        let name: Name = self.name.parse()?;
        self.slots.map(check_slots).transpose()?;
        let (ttl, grace) = self.lease();
        if ttl < SHORTEST_TTL || grace.saturating_mul(2) >= ttl {
            return Err(Error::BadLease { ttl, grace });
        }
        let bad = |why: &str| Err(Error::Refused { class: Class::BadRequest, message: why.to_owned() });
        if [&self.label, &self.request_id].into_iter().flatten().any(|text| text.len() > MOST_TEXT) {
            return bad("a label and a request ID have at most 1024 bytes: shorten them");
        }
        if self.label.as_ref().is_some_and(|label| label.contains(is_hidden)) {
            return bad("a label cannot have control characters or invisible ones: leave them out");
        }
        let wait = match (self.try_only, self.wait) {
            (true, None) => Wait::Try,
            (true, Some(_)) => return bad("`try` does not wait: give either `try` or how long to wait"),
            (false, None) => Wait::Forever,
            (false, Some(wait)) => Wait::For(span(wait)),
        };
        let (slots, label, pid, request) = (self.slots, self.label.unwrap_or_default(), self.pid, self.request_id);
        let detached = (keeping == Keeping::Registry).then(|| GrantId::new_detached(&name));
        if detached.is_some() && ttl > LONGEST_DETACHED {
            return bad("the lease of a detached grant is at most 30 days: renew it");
        }
        let auto_renew = keeping == Keeping::Peer;
        let (ttl, grace) = (span(ttl), span(grace));
        let taken_over_as = (keeping == Keeping::Client).then(|| GrantId::new_held(&name));
        Ok(Wanted { name, slots, ttl, grace, auto_renew, detached, taken_over_as, wait, label, pid, request })
    }
}

fn span(duration: Duration) -> Span {
    Span::from_nanos(u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX))
}

impl From<&str> for Request {
    fn from(name: &str) -> Self {
        Self::new(name)
    }
}

impl From<String> for Request {
    fn from(name: String) -> Self {
        Self::new(name)
    }
}

impl From<&Request> for Request {
    fn from(request: &Request) -> Self {
        request.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn invalid_request_is_refused_before_it_is_sent() {
        let ms = Duration::from_millis;
        let r = || Request::new("r");
        for (request, good) in [
            (r(), true),
            (Request::new(""), false),
            (r().slots(0), false),
            (r().slots(1024), true),
            (r().ttl(ms(99)), false),
            (r().ttl(ms(100)), true),
            (r().ttl(ms(100)).grace(ms(50)), false),
            (r().ttl(ms(100)).grace(ms(49)), true),
            (r().grace(Duration::MAX), false),
            (r().try_only(), true),
            (r().try_only().wait(ms(1)), false),
            (r().label("x".repeat(1024)), true),
            (r().label("x".repeat(1025)), false),
            (r().request_id("x".repeat(1025)), false),
        ] {
            let wanted = request.clone().wanted(Keeping::Peer);
            assert_eq!(wanted.is_ok(), good, "{request:?}");
            assert!(good || wanted.unwrap_err().class() == Class::BadRequest, "{request:?}");
        }
    }
}
