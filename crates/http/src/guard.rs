//! Access control.

use std::sync::{Arc, Mutex, PoisonError};

use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderValue, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use peerlock_service::Class;

use crate::connection_limit::Place;
use crate::input::finish;
use crate::{Failure, Token};

/// The access control of a listener.
#[derive(Clone, Debug)]
pub enum Guard {
    /// The permissions of the socket file.
    Unix,
    /// A bearer token, which web pages of other sites do not know.
    Token(TokenInForce),
}

/// The bearer token that requests must have. Clones share it.
#[derive(Clone, Debug)]
pub struct TokenInForce(Arc<Mutex<Token>>);

impl TokenInForce {
    pub(crate) fn new(token: Token) -> Self {
        Self(Arc::new(Mutex::new(token)))
    }

    /// Replaces the token. Open streams are not affected.
    pub fn replace(&self, token: Token) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = token;
    }

    fn is_proved_by(&self, header: &[u8]) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).is_proved_by(header)
    }
}

/// Passes a permitted request on, or answers with the reason why it is refused.
pub async fn guard(State(guard): State<Arc<Guard>>, request: Request, next: Next) -> Response {
    let is_open = is_open(request.uri().path());
    if let Err(failure) = guard.check(request.headers(), is_open) {
        finish(request.into_body()).await;
        return failure.into_response();
    }
    if let (false, Some(place)) = (is_open, request.extensions().get::<Arc<Place>>()) {
        place.proved();
    }
    next.run(request).await
}

/// Returns whether a path needs no token: a browser has none before it has loaded the page, which is not secret.
fn is_open(path: &str) -> bool {
    path == "/" || path.starts_with("/assets/")
}

impl Guard {
    fn check(&self, headers: &HeaderMap, is_open: bool) -> Result<(), Failure> {
        let host = headers.get(header::HOST).and_then(|host| host.to_str().ok()).unwrap_or_default();
        if let Some(origin) = headers.get(header::ORIGIN) {
            let from = origin.to_str().ok().and_then(|origin| origin.split_once("://")).map(|(_, from)| from);
            if !from.is_some_and(|from| from.eq_ignore_ascii_case(host)) {
                return Err(Failure::new(
                    Class::Forbidden,
                    "the request comes from a web page of another site: open the agent's own page instead",
                ));
            }
        }
        let proof = headers.get(header::AUTHORIZATION).map_or(&b""[..], HeaderValue::as_bytes);
        match self {
            Self::Token(token) if !is_open && !token.is_proved_by(proof) => Err(Failure::new(
                Class::Unauthorized,
                "the bearer token is missing or wrong: send it as `Authorization: Bearer …`, or name its file with \
                 --token-file. By default it is the file `token` in the agent's data directory",
            )),
            Self::Unix | Self::Token(_) => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_need_a_token_and_the_same_origin() {
        let token = Guard::Token(TokenInForce::new(Token::new("0123456789abcdef").unwrap()));
        let bearer = ("authorization", "Bearer 0123456789abcdef");
        let host = ("host", "localhost:7401");
        for (guard, headers, is_open, refused) in [
            (&Guard::Unix, &[][..], false, None),
            (&Guard::Unix, &[("host", "anything")], false, None),
            (&Guard::Unix, &[host, ("origin", "https://evil.example")], false, Some(Class::Forbidden)),
            (&token, &[host], false, Some(Class::Unauthorized)),
            (&token, &[host], true, None),
            (&token, &[host, bearer, ("origin", "http://localhost:7401")], false, None),
            (&token, &[host, bearer, ("origin", "http://localhost:80")], false, Some(Class::Forbidden)),
            (&token, &[host, bearer, ("origin", "null")], false, Some(Class::Forbidden)),
            (&token, &[host, ("origin", "https://evil.example")], true, Some(Class::Forbidden)),
            (&token, &[("host", "evil.example"), ("origin", "http://evil.example")], false, Some(Class::Unauthorized)),
            (&token, &[("host", "agent.example"), bearer], false, None),
            (&token, &[host, bearer, ("origin", "https://evil.example")], false, Some(Class::Forbidden)),
            (&token, &[host, ("authorization", "Bearer 0123456789abcdeF")], false, Some(Class::Unauthorized)),
        ] {
            let map = headers.iter().map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap())).collect();
            assert_eq!(
                guard.check(&map, is_open).err().map(|failure| failure.0.class()),
                refused,
                "{guard:?} {headers:?}"
            );
        }
    }

    #[test]
    fn replaced_token_is_refused() {
        let in_force = TokenInForce::new(Token::new("0123456789abcdef").unwrap());
        let guard = Guard::Token(in_force.clone());
        let with = |token: &str| {
            let headers = [(header::AUTHORIZATION, format!("Bearer {token}").parse().unwrap())].into_iter().collect();
            guard.check(&headers, false).is_ok()
        };
        assert!(with("0123456789abcdef") && !with("fedcba9876543210"));
        in_force.replace(Token::new("fedcba9876543210").unwrap());
        assert!(!with("0123456789abcdef") && with("fedcba9876543210"));
    }
}
