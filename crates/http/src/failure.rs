//! Errors as JSON.

#[cfg(feature = "server")]
use axum::Json;
#[cfg(feature = "server")]
use axum::http::{HeaderValue, StatusCode, header};
#[cfg(feature = "server")]
use axum::response::{IntoResponse, Response};
use peerlock_service::{Class, Error};
use serde::{Deserialize, Serialize};

/// An error as a JSON body: the fields of the error, and its text as `message`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(into = "Body", from = "Body")]
pub struct Failure(pub Error);

#[derive(Serialize, Deserialize)]
#[serde(untagged)]
enum Body {
    /// `error` is the name of the variant.
    Said {
        #[serde(flatten)]
        error: Error,
        message: String,
    },
    /// `error` is the class.
    Refused { error: Class, message: String },
    /// `error` is unknown, from a newer agent.
    Unknown { message: String },
}

impl From<Failure> for Body {
    fn from(Failure(error): Failure) -> Self {
        match error {
            Error::Refused { class, message } => Self::Refused { error: class, message },
            error => Self::Said { message: error.to_string(), error },
        }
    }
}

impl From<Body> for Failure {
    fn from(body: Body) -> Self {
        Self(match body {
            Body::Said { error, .. } => error,
            Body::Refused { error, message } => Error::Refused { class: error, message },
            Body::Unknown { message } => Error::Refused { class: Class::Unavailable, message },
        })
    }
}

impl Failure {
    /// Parses the body of an answer with this status. An unknown error has the class of the status.
    ///
    /// # Errors
    /// If it is not the body of an error.
    pub(crate) fn parse(status: u16, body: &[u8]) -> serde_json::Result<Self> {
        let Body::Unknown { message } = serde_json::from_slice(body)? else { return serde_json::from_slice(body) };
        let class = match status {
            401 => Class::Unauthorized,
            403 => Class::Forbidden,
            404 => Class::NotFound,
            409 => Class::SlotsMismatch,
            410 => Class::Lost,
            423 => Class::NotAcquired,
            400..500 => Class::BadRequest,
            _ => Class::Unavailable,
        };
        Ok(Self(Error::Refused { class, message }))
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self(error)
    }
}

#[cfg(feature = "server")]
impl Failure {
    /// Returns an error without further fields.
    pub(crate) fn new(class: Class, message: impl Into<String>) -> Self {
        Self(Error::Refused { class, message: message.into() })
    }
}

#[cfg(feature = "server")]
impl IntoResponse for Failure {
    fn into_response(self) -> Response {
        let class = self.0.class();
        // Every class has a valid status, as a test checks.
        let status = StatusCode::from_u16(class.status()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let mut response = (status, Json(self)).into_response();
        if class == Class::Unauthorized {
            response.headers_mut().insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        response
    }
}

#[cfg(feature = "server")]
mod schema {
    #![expect(dead_code, reason = "only its schema is used")]

    use std::borrow::Cow;

    use utoipa::openapi::{RefOr, Schema};
    use utoipa::{PartialSchema, ToSchema};

    /// Why the request failed. It holds nothing and waits for nothing.
    #[derive(ToSchema)]
    struct Shape {
        /// The error, for programs.
        error: String,
        /// The error message with advice, for people.
        message: String,
        /// The resource concerned.
        name: Option<String>,
        /// `bad_name`: why the name is invalid.
        why: Option<String>,
        /// `bad_lease`: the requested duration …
        ttl_ms: Option<u64>,
        /// … and the requested grace period before its end.
        grace_ms: Option<u64>,
        /// `slots_mismatch`: the resource's capacity …
        has: Option<u32>,
        /// … and the requested one. Also for `bad_slots`.
        asked: Option<u32>,
        /// `revoked`: whether without waiting for the holder. `in_use`: whether the holder may not know that it was
        /// evicted.
        forced: Option<bool>,
        /// `in_use`: the host that uses it, if known.
        host: Option<String>,
        /// `not_acquired`: how many requests are ahead, if known.
        place: Option<u32>,
        /// `no_majority`, `recovering`: the peers that are missing.
        missing: Option<Vec<peerlock_service::Missing>>,
        /// `no_majority`, `recovering`: for how long. `session_lost`: for how long the session had not been confirmed.
        since_ms: Option<u64>,
        /// `busy`: the limit of clients.
        limit: Option<usize>,
    }

    impl PartialSchema for super::Failure {
        fn schema() -> RefOr<Schema> {
            Shape::schema()
        }
    }

    impl ToSchema for super::Failure {
        fn name() -> Cow<'static, str> {
            "Failure".into()
        }
    }
}

#[cfg(all(test, feature = "server"))]
mod tests {
    use std::time::Duration;

    use peerlock_service::{Missing, Name, PeerId};

    use super::*;

    fn all() -> Vec<(Error, u16, u8)> {
        let name: Name = "a/b".parse().expect("a name");
        let refused = |class| Error::Refused { class, message: "because".into() };
        let since = Duration::from_millis(1500);
        let missing = Missing { peer: PeerId::new(u64::MAX), name: "db1".into(), since, ends: Some(since) };
        vec![
            (Error::BadName { name: "\n".into(), why: "it has a character that cannot be seen".into() }, 400, 64),
            (Error::BadSlots { slots: 0 }, 400, 64),
            (Error::BadLease { ttl: Duration::from_millis(10), grace: Duration::from_millis(2) }, 400, 64),
            (refused(Class::BadRequest), 400, 64),
            (refused(Class::Unauthorized), 401, 77),
            (refused(Class::Forbidden), 403, 77),
            (Error::NoSuchResource { name: name.clone() }, 404, 66),
            (refused(Class::NotFound), 404, 70),
            (refused(Class::MethodNotAllowed), 405, 70),
            (Error::SlotsMismatch { name: name.clone(), has: 3, asked: 2 }, 409, 64),
            (Error::Lost, 410, 76),
            (refused(Class::TooLarge), 413, 64),
            (Error::NotAcquired { name: name.clone(), place: Some(2) }, 423, 75),
            (Error::NotAcquired { name: name.clone(), place: None }, 423, 75),
            (Error::InUse { name: name.clone(), host: "db1".into(), forced: false }, 423, 75),
            (Error::InUse { name: name.clone(), host: String::new(), forced: true }, 423, 75),
            (Error::SessionLost { since, why: "it could not be renewed".into() }, 410, 76),
            (Error::Revoked { name: name.clone(), forced: false }, 410, 76),
            (Error::Revoked { name: name.clone(), forced: true }, 410, 76),
            (Error::NoMajority { missing: vec![missing], since }, 503, 69),
            (Error::Recovering { name, missing: Vec::new(), since }, 503, 69),
            (Error::Busy { limit: 7 }, 503, 75),
            (Error::Stopped, 503, 69),
        ]
    }

    #[test]
    fn errors_survive_json_and_codes_follow_their_class() {
        for (error, status, exit_code) in all() {
            let failure = Failure(error.clone());
            let json = serde_json::to_string(&failure).unwrap();
            assert_eq!(serde_json::from_str::<Failure>(&json).unwrap(), failure, "{json}");
            let value: serde_json::Value = serde_json::from_str(&json).unwrap();
            assert_eq!(value["message"], error.to_string(), "{json}");
            assert_eq!((error.class().status(), error.class().exit_code()), (status, exit_code), "{json}");
            assert_eq!(failure.into_response().status().as_u16(), status, "{json}");
        }
    }

    #[test]
    fn unknown_error_has_the_class_of_its_status() {
        let body = br#"{"error":"from_the_future","message":"why","more":[1]}"#;
        let table = [
            (400, Class::BadRequest),
            (418, Class::BadRequest),
            (401, Class::Unauthorized),
            (403, Class::Forbidden),
            (404, Class::NotFound),
            (409, Class::SlotsMismatch),
            (410, Class::Lost),
            (423, Class::NotAcquired),
            (500, Class::Unavailable),
            (503, Class::Unavailable),
        ];
        for (status, class) in table {
            let Failure(error) = Failure::parse(status, body).unwrap();
            assert_eq!((error.class(), error.to_string().as_str()), (class, "why"), "{status}");
        }
        let known = serde_json::to_vec(&Failure(Error::Lost)).unwrap();
        assert_eq!(Failure::parse(503, &known).unwrap().0, Error::Lost);
        assert!(Failure::parse(503, b"<html>").is_err());
    }

    #[test]
    fn every_error_is_in_the_table_of_the_docs() {
        let text = include_str!("../../../docs/api.md");
        let table = text.split("## Errors").nth(1).unwrap().split("## Access").next().unwrap();
        for (error, status, exit_code) in all() {
            let value = serde_json::to_value(Failure(error)).unwrap();
            let kind = format!("`{}`", value["error"].as_str().unwrap());
            let row = table.lines().find(|line| line.contains(&kind));
            let cells: Vec<&str> = row.unwrap_or_else(|| panic!("no {kind}")).split('|').map(str::trim).collect();
            assert!(cells[1].split(", ").any(|cell| cell == status.to_string()), "{kind}: {cells:?}");
            assert_eq!(cells[2], exit_code.to_string(), "{kind}: {cells:?}");
            for field in value.as_object().unwrap().keys().filter(|field| *field != "error" && *field != "message") {
                assert!(cells[4].contains(&format!("`{field}`")), "{kind}: {field} is not among {}", cells[4]);
            }
        }
    }
}
