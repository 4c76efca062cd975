//! Why something was refused, as JSON, and back.

use std::time::Duration;

use axum::Json;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use peerlock_service::{Error, Name, PeerId};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::body::ms;

/// Why something was refused: nothing is held and nothing waited for by what was asked.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema, thiserror::Error)]
#[error("{message}")]
pub struct Failure {
    /// Which kind, for programs.
    pub error: Kind,
    /// What happened and what to do next, for people.
    pub message: String,
    /// The resource it is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub name: Option<Box<str>>,
    /// `slots_mismatch`: how many slots it has …
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub has: Option<u32>,
    /// … and how many were asked for. Also for `bad_slots`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub asked: Option<u32>,
    /// `not_acquired`: how many are ahead, if that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub place: Option<u32>,
    /// `stalled`: the peer that is missing, if it is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub who: Option<Box<str>>,
    /// `stalled`: for how long.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since_ms: Option<u64>,
    /// `busy`: how many clients there may be.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<usize>,
}

/// The kinds of refusals.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// The name cannot be one.
    BadName,
    /// There cannot be so many slots.
    BadSlots,
    /// The lease is too short, or its grace too long.
    BadLease,
    /// The request is not what this route takes.
    BadRequest,
    /// The bearer token is missing or wrong.
    Unauthorized,
    /// A web page of somebody else asks.
    Forbidden,
    /// No peer has heard of the resource.
    NoSuchResource,
    /// There is no such route.
    NotFound,
    /// The route does not take this method.
    MethodNotAllowed,
    /// The resource has another number of slots.
    SlotsMismatch,
    /// The grant does not stand any more.
    Lost,
    /// The request is too long.
    TooLarge,
    /// The wait is over, and others were first.
    NotAcquired,
    /// Nothing moves: somebody cannot be reached.
    Stalled,
    /// Too many clients wait at this agent.
    Busy,
    /// The agent stops, or has stopped.
    Stopped,
}

impl Kind {
    /// The status of an answer that says so.
    pub fn status(self) -> StatusCode {
        match self {
            Self::BadName | Self::BadSlots | Self::BadLease | Self::BadRequest => StatusCode::BAD_REQUEST,
            Self::Unauthorized => StatusCode::UNAUTHORIZED,
            Self::Forbidden => StatusCode::FORBIDDEN,
            Self::NoSuchResource | Self::NotFound => StatusCode::NOT_FOUND,
            Self::MethodNotAllowed => StatusCode::METHOD_NOT_ALLOWED,
            Self::SlotsMismatch => StatusCode::CONFLICT,
            Self::Lost => StatusCode::GONE,
            Self::TooLarge => StatusCode::PAYLOAD_TOO_LARGE,
            // Not 408: that tells a client to send the same again by itself.
            Self::NotAcquired => StatusCode::LOCKED,
            Self::Stalled | Self::Busy | Self::Stopped => StatusCode::SERVICE_UNAVAILABLE,
        }
    }
}

impl Failure {
    /// A refusal without more to tell.
    pub(crate) fn new(error: Kind, message: impl Into<String>) -> Self {
        let message = message.into();
        Self { error, message, name: None, has: None, asked: None, place: None, who: None, since_ms: None, limit: None }
    }

    /// The service's own error, if that is what it was.
    pub(crate) fn service_error(&self) -> Option<Error> {
        let name = || self.name.as_ref()?.parse::<Name>().ok();
        Some(match self.error {
            Kind::BadSlots => Error::BadSlots { slots: self.asked? },
            Kind::SlotsMismatch => Error::SlotsMismatch { name: name()?, has: self.has?, asked: self.asked? },
            Kind::NoSuchResource => Error::NoSuchResource { name: name()? },
            Kind::NotAcquired => Error::NotAcquired { name: name()?, place: self.place },
            Kind::Stalled => {
                let who = self.who.as_ref().map(|who| who.parse().map(PeerId::new)).transpose().ok()?;
                Error::Stalled { name: name()?, who, since: Duration::from_millis(self.since_ms?) }
            }
            Kind::Lost => Error::Lost,
            Kind::Busy => Error::Busy { limit: self.limit? },
            Kind::Stopped => Error::Stopped,
            Kind::BadName
            | Kind::BadLease
            | Kind::BadRequest
            | Kind::Unauthorized
            | Kind::Forbidden
            | Kind::NotFound
            | Kind::MethodNotAllowed
            | Kind::TooLarge => return None,
        })
    }
}

/// Short, because an error should not be larger than what it stands for.
fn boxed(text: impl ToString) -> Option<Box<str>> {
    Some(text.to_string().into())
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        let message = error.to_string();
        let plain = |kind| Self::new(kind, message.clone());
        match error {
            Error::BadName { .. } => plain(Kind::BadName),
            Error::BadSlots { slots } => Self { asked: Some(slots), ..plain(Kind::BadSlots) },
            Error::BadLease { .. } => plain(Kind::BadLease),
            Error::SlotsMismatch { name, has, asked } => {
                Self { name: boxed(name), has: Some(has), asked: Some(asked), ..plain(Kind::SlotsMismatch) }
            }
            Error::NoSuchResource { name } => Self { name: boxed(name), ..plain(Kind::NoSuchResource) },
            Error::NotAcquired { name, place } => Self { name: boxed(name), place, ..plain(Kind::NotAcquired) },
            Error::Stalled { name, who, since } => {
                Self { name: boxed(name), who: who.and_then(boxed), since_ms: Some(ms(since)), ..plain(Kind::Stalled) }
            }
            Error::Lost | Error::SessionEnded => plain(Kind::Lost),
            Error::Busy { limit } => Self { limit: Some(limit), ..plain(Kind::Busy) },
            // A service that could not join was never started, so that nobody can ask it.
            Error::NoPeer { .. } | Error::Stopped => plain(Kind::Stopped),
        }
    }
}

impl IntoResponse for Failure {
    fn into_response(self) -> Response {
        let kind = self.error;
        let mut response = (kind.status(), Json(self)).into_response();
        if kind == Kind::Unauthorized {
            response.headers_mut().insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        response
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_of_the_service_come_back_as_they_were() {
        let name: Name = "a/b".parse().unwrap();
        for error in [
            Error::BadSlots { slots: 0 },
            Error::SlotsMismatch { name: name.clone(), has: 3, asked: 2 },
            Error::NoSuchResource { name: name.clone() },
            Error::NotAcquired { name: name.clone(), place: Some(2) },
            Error::NotAcquired { name: name.clone(), place: None },
            Error::Stalled { name: name.clone(), who: Some(PeerId::new(u64::MAX)), since: Duration::from_millis(1500) },
            Error::Stalled { name, who: None, since: Duration::from_secs(2) },
            Error::Lost,
            Error::Busy { limit: 7 },
            Error::Stopped,
        ] {
            let json = serde_json::to_string(&Failure::from(error.clone())).unwrap();
            let failure: Failure = serde_json::from_str(&json).unwrap();
            assert_eq!(failure.message, error.to_string());
            assert_eq!(failure.service_error(), Some(error), "{json}");
        }
    }
}
