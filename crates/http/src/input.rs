//! Request parsing.

use std::convert::Infallible;
use std::error::Error;
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::extract::{FromRequest, FromRequestParts, Path, Query, Request};
use axum::http::request::Parts;
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use http_body_util::{BodyExt, LengthLimitError, Limited};
use peerlock_service::verb::Verb;
use peerlock_service::{Class, Listing, Name};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use tokio::time::timeout;
use utoipa::IntoParams;

use crate::Failure;

/// The longest body, many times the longest valid one.
const MOST_BYTES: usize = 16 * 1024;
const PATIENCE: Duration = Duration::from_secs(30);

/// Passes a request on once all of it has arrived, even if its body is not needed: a client that is still sending when
/// it is answered may find the connection closed and not read the answer. For the same reason a request that is refused
/// early is read to its [`finish`].
pub async fn whole(request: Request, next: Next) -> Response {
    let (head, body) = request.into_parts();
    match collect(body).await {
        Ok(body) => next.run(Request::from_parts(head, body.into())).await,
        Err(failure) => failure.into_response(),
    }
}

/// Reads and discards the rest of a refused request. An unauthenticated client may send it in tiny pieces.
pub async fn finish(body: Body) {
    // A body that is too long or too slow is not read to its end.
    _ = read(body, |_| {}).await;
}

async fn collect(body: Body) -> Result<Bytes, Failure> {
    let mut bytes = Vec::new();
    read(body, |piece| bytes.extend_from_slice(piece)).await?;
    Ok(bytes.into())
}

async fn read(body: Body, mut take: impl FnMut(&[u8])) -> Result<(), Failure> {
    let mut body = Limited::new(body, MOST_BYTES);
    let all = async {
        while let Some(frame) = body.frame().await {
            if let Ok(piece) = frame?.into_data() {
                take(&piece);
            }
        }
        Ok::<_, Box<dyn Error + Send + Sync>>(())
    };
    let (class, why) = match timeout(PATIENCE, all).await {
        Ok(Ok(())) => return Ok(()),
        Ok(Err(error)) if error.is::<LengthLimitError>() => {
            let why = format!("the request is longer than {MOST_BYTES} bytes: send only documented fields");
            (Class::TooLarge, why)
        }
        Ok(Err(error)) => (Class::BadRequest, format!("the request is incomplete: {error}. Send it again")),
        Err(_) => (Class::BadRequest, format!("the request did not arrive within {PATIENCE:?}. Send it again")),
    };
    Err(Failure::new(class, why))
}

/// A JSON body; an empty one counts as `{}`. The content type is ignored, since curl's default is not JSON.
pub struct Input<T>(pub T);

impl<T: DeserializeOwned, S: Sync> FromRequest<S> for Input<T> {
    type Rejection = Failure;

    async fn from_request(request: Request, _: &S) -> Result<Self, Failure> {
        let bad = |why: String| Failure::new(Class::BadRequest, why);
        let body = collect(request.into_body()).await?;
        let json = if body.is_empty() { b"{}" } else { &body[..] };
        // serde also accepts an array of the fields in their order.
        if !json.trim_ascii_start().starts_with(b"{") {
            return Err(bad("the body is no JSON object: see GET /openapi.json".to_owned()));
        }
        let parsed = serde_json::from_slice(json);
        parsed.map(Self).map_err(|error| bad(format!("invalid body: {error}. See GET /openapi.json")))
    }
}

/// The process that opened the connection, as the kernel reports it for a Unix socket, if it is in this PID namespace.
#[derive(Clone, Copy, Debug)]
pub struct Caller(pub Option<u32>);

impl<S: Send + Sync> FromRequestParts<S> for Caller {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Infallible> {
        Ok(parts.extensions.get().copied().unwrap_or(Self(None)))
    }
}

/// The resource in the path.
#[derive(IntoParams)]
#[into_params(names("name"), parameter_in = Path)]
pub struct Named(
    /// The resource, percent-encoded
    #[param(value_type = String)]
    pub Name,
);

impl<S: Send + Sync> FromRequestParts<S> for Named {
    type Rejection = Failure;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Failure> {
        let path = Path::<String>::from_request_parts(parts, state).await;
        let Path(name) = path.map_err(|error| {
            let why = format!("{error}; write it in UTF-8 and percent-encode it");
            peerlock_service::Error::BadName { name: parts.uri.path().to_owned(), why }
        })?;
        Ok(Self(name.parse::<Name>()?))
    }
}

/// A verb: its resource is in the path, the rest in the body.
pub struct Called<V>(pub V);

impl<V: Verb + DeserializeOwned, S: Send + Sync> FromRequest<S> for Called<V> {
    type Rejection = Failure;

    async fn from_request(request: Request, state: &S) -> Result<Self, Failure> {
        let (mut head, body) = request.into_parts();
        let name = match V::ROUTE.contains("{name}") {
            true => Some(Named::from_request_parts(&mut head, state).await?.0),
            false => None,
        };
        let Input(verb) = Input::<V>::from_request(Request::from_parts(head, body), state).await?;
        Ok(Self(name.into_iter().fold(verb, V::with_resource)))
    }
}

/// The resource in the query, if there is one.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct About {
    /// Only this resource.
    #[param(value_type = Option<String>)]
    pub name: Option<Name>,
}

impl<S: Send + Sync> FromRequestParts<S> for About {
    type Rejection = Failure;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Failure> {
        query(parts, state, "`name`, a resource").await
    }
}

/// The listing in the query.
pub struct Names(pub Listing);

impl<S: Send + Sync> FromRequestParts<S> for Names {
    type Rejection = Failure;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Failure> {
        let takes = "`prefix`, the start of names, `after`, a resource, and `limit`, a number";
        query(parts, state, takes).await.map(Self)
    }
}

async fn query<T: DeserializeOwned, S: Send + Sync>(parts: &mut Parts, state: &S, takes: &str) -> Result<T, Failure> {
    let query = Query::from_request_parts(parts, state).await;
    let Query(asked) = query.map_err(|error| {
        let message = format!("invalid query: {}. Permitted are {takes}", error.body_text());
        Failure::new(Class::BadRequest, message)
    })?;
    Ok(asked)
}
