//! What a client asks for: the same for a peer in this process, an agent, and HTTP.

use std::time::Duration;

use peerlock_types::{Span, is_hidden};
use serde::{Deserialize, Serialize};
#[cfg(feature = "schema")]
use utoipa::ToSchema;

use peerlock_node::{SHORTEST_TTL, Wait, Wanted, check_slots, json};

use crate::{Class, Error, GrantId, Name};

/// The lease of who does not say how long.
const TTL: Duration = Duration::from_secs(30);
/// The longest label and request id: others get to see the first.
const MOST_TEXT: usize = 1024;

/// The longest lease of a detached grant.
const LONGEST_DETACHED: Duration = Duration::from_secs(30 * 24 * 60 * 60);

/// Who keeps a lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Keeping {
    /// This peer renews it, for as long as it runs.
    Peer,
    /// The client renews it; it ends with this peer's session at the latest, or goes on at the next process of this
    /// host.
    Client,
    /// The client renews it, and the register knows of it: it outlives this peer.
    Registry,
}

/// What is asked for: a resource by its name, and how. A name alone is a request, too.
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
#[cfg_attr(feature = "schema", derive(ToSchema))]
#[serde(default, deny_unknown_fields)]
#[must_use = "nothing is asked for before it is acquired"]
#[non_exhaustive]
pub struct Request {
    /// The resource. In HTTP it is in the path.
    #[serde(skip)]
    pub name: String,
    /// How many may be inside at a time. By default as many as the resource has, or one if it is new.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(minimum = 1, maximum = 1024))]
    pub slots: Option<u32>,
    /// How long to wait. By default as long as it takes.
    #[serde(rename = "wait_ms", with = "json", skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<u64>))]
    pub wait: Option<Duration>,
    /// Do not wait: only if a slot is free and nobody else waits for it.
    #[serde(rename = "try", skip_serializing_if = "core::ops::Not::not")]
    pub try_only: bool,
    /// How long a grant stands without being renewed. By default 30 s.
    #[serde(rename = "ttl_ms", with = "json", skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<u64>, minimum = 100, maximum = 2_592_000_000_u64))]
    pub ttl: Option<Duration>,
    /// How long before the end of its lease a grant is lost, for the holder to stop in time. By default a
    /// fifth of the lease.
    #[serde(rename = "grace_ms", with = "json", skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<u64>))]
    pub grace: Option<Duration>,
    /// What others see of who waits or is inside, such as a host and a command.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(max_length = 1024))]
    pub label: Option<String>,
    /// The process that asks, which others see. Only who has it from the kernel says so: not in HTTP.
    #[serde(skip)]
    pub pid: Option<u32>,
    /// Asked again with the same id for the same resource, while it waits or is inside, it is the same request. The
    /// next process of a peer does not know it.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(min_length = 16, max_length = 1024))]
    pub request_id: Option<String>,
}

impl Request {
    /// A request for a resource, by its name.
    pub fn new(name: impl Into<String>) -> Self {
        Self { name: name.into(), ..Self::default() }
    }

    /// How many may be inside at a time. By default as many as the resource has, or one if it is new.
    pub fn slots(self, slots: u32) -> Self {
        Self { slots: Some(slots), ..self }
    }

    /// How long to wait. By default as long as it takes.
    pub fn wait(self, wait: Duration) -> Self {
        Self { wait: Some(wait), ..self }
    }

    /// Do not wait: only if a slot is free and nobody else waits for it.
    pub fn try_only(self) -> Self {
        Self { try_only: true, ..self }
    }

    /// How long a grant stands without being renewed. By default 30 s.
    pub fn ttl(self, ttl: Duration) -> Self {
        Self { ttl: Some(ttl), ..self }
    }

    /// How long before the end of its lease a grant is [lost](crate::Grant::lost), for the holder to stop in time. By
    /// default a fifth of the lease.
    pub fn grace(self, grace: Duration) -> Self {
        Self { grace: Some(grace), ..self }
    }

    /// What others see of who waits or is inside, such as a host and a command.
    pub fn label(self, label: impl Into<String>) -> Self {
        Self { label: Some(label.into()), ..self }
    }

    /// The process that asks, for others to see.
    pub fn pid(self, pid: u32) -> Self {
        Self { pid: Some(pid), ..self }
    }

    /// A number or name for this request: asked for again for the same resource while it waits or is inside, it is the
    /// same.
    pub fn request_id(self, id: impl Into<String>) -> Self {
        Self { request_id: Some(id.into()), ..self }
    }

    /// Its lease and grace, said or not.
    pub fn lease(&self) -> (Duration, Duration) {
        let ttl = self.ttl.unwrap_or(TTL);
        (ttl, self.grace.unwrap_or(ttl / 5))
    }

    /// The same for the engine, if it makes sense.
    pub(crate) fn wanted(self, keeping: Keeping) -> Result<Wanted, Error> {
        let name: Name = self.name.parse()?;
        self.slots.map(check_slots).transpose()?;
        let (ttl, grace) = self.lease();
        if ttl < SHORTEST_TTL || grace.saturating_mul(2) >= ttl {
            return Err(Error::BadLease { ttl, grace });
        }
        let bad = |why: &str| Err(Error::Refused { class: Class::BadRequest, message: why.to_owned() });
        if [&self.label, &self.request_id].into_iter().flatten().any(|text| text.len() > MOST_TEXT) {
            return bad("a label and a request id have at most 1024 bytes: shorten them");
        }
        if self.label.as_ref().is_some_and(|label| label.contains(is_hidden)) {
            return bad("a label cannot have control characters, or others that are not seen: leave them out");
        }
        let wait = match (self.try_only, self.wait) {
            (true, None) => Wait::Try,
            (true, Some(_)) => return bad("to try is not to wait: give one of them, `try` or how long to wait"),
            (false, None) => Wait::Forever,
            (false, Some(wait)) => Wait::For(span(wait)),
        };
        let (slots, label, pid, request) = (self.slots, self.label.unwrap_or_default(), self.pid, self.request_id);
        let detached = (keeping == Keeping::Registry).then(|| GrantId::new_detached(&name));
        if detached.is_some() && ttl > LONGEST_DETACHED {
            return bad("a slot that outlives its peer can stand for 30 days at most: renew it");
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
    fn what_makes_no_sense_is_refused_before_anything_is_asked_for() {
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
