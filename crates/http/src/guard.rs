//! Who may ask.

use std::net::IpAddr;
use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderValue, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use peerlock_service::Class;

use crate::{Failure, Token};

/// What keeps strangers out of a listener.
#[derive(Clone, Debug)]
pub enum Door {
    /// The mode of the socket's file.
    Unix,
    /// Only this machine connects. But a browser on it does so for any web page: those are told by their headers.
    Loopback,
    /// A bearer token: requests without it are refused.
    Token(Token),
}

/// Lets a request in, or says why not.
pub async fn guard(State(door): State<Arc<Door>>, request: Request, next: Next) -> Response {
    match door.check(request.headers(), is_open(request.uri().path())) {
        Ok(()) => next.run(request).await,
        Err(failure) => failure.into_response(),
    }
}

/// The page itself is no secret, and a browser has no bearer token before it has the page.
fn is_open(path: &str) -> bool {
    path == "/" || path.starts_with("/assets/")
}

impl Door {
    fn check(&self, headers: &HeaderMap, is_open: bool) -> Result<(), Failure> {
        let host = headers.get(header::HOST).and_then(|host| host.to_str().ok()).unwrap_or_default();
        if let Some(origin) = headers.get(header::ORIGIN) {
            let from = origin.to_str().ok().and_then(|origin| origin.split_once("://")).map(|(_, from)| from);
            if !from.is_some_and(|from| from.eq_ignore_ascii_case(host)) {
                return Err(Failure::new(
                    Class::Forbidden,
                    "this is asked by a web page of another site: open the agent's own page instead",
                ));
            }
        }
        let proof = headers.get(header::AUTHORIZATION).map_or(&b""[..], HeaderValue::as_bytes);
        match self {
            Self::Loopback if !is_loopback(host) => Err(Failure::new(
                Class::Forbidden,
                format!("the agent is not called {host:?}: call it localhost or 127.0.0.1, or start it with a token"),
            )),
            Self::Token(token) if !is_open && !token.is_proved_by(proof) => Err(Failure::new(
                Class::Unauthorized,
                "the agent's token is missing or another: send it as `Authorization: Bearer …`",
            )),
            Self::Unix | Self::Loopback | Self::Token(_) => Ok(()),
        }
    }
}

/// Whether a `Host` can only be this machine. Any other name may be made to point here by whoever owns it.
fn is_loopback(host: &str) -> bool {
    let name = match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => name,
        _ => host,
    };
    let number = name.strip_prefix('[').and_then(|name| name.strip_suffix(']')).unwrap_or(name);
    name.eq_ignore_ascii_case("localhost") || number.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_that_are_this_machine() {
        for (host, is) in [
            ("localhost", true),
            ("LocalHost:7401", true),
            ("127.0.0.1:7401", true),
            ("127.8.9.1", true),
            ("[::1]:7401", true),
            ("[::1]", true),
            ("", false),
            ("localhost.evil.example:7401", false),
            ("evil.example", false),
            ("127.0.0.1.evil.example", false),
            ("10.0.0.1:7401", false),
            ("[::2]:7401", false),
            ("localhost:7401:evil", false),
        ] {
            assert_eq!(is_loopback(host), is, "{host:?}");
        }
    }

    #[test]
    fn who_may_come_in() {
        let token = Door::Token(Token::new("0123456789abcdef").unwrap());
        let bearer = ("authorization", "Bearer 0123456789abcdef");
        let host = ("host", "localhost:7401");
        for (door, headers, is_open, refused) in [
            (&Door::Unix, &[][..], false, None),
            (&Door::Unix, &[("host", "anything")], false, None),
            (&Door::Unix, &[host, ("origin", "https://evil.example")], false, Some(Class::Forbidden)),
            (&Door::Loopback, &[host], false, None),
            (&Door::Loopback, &[host, ("origin", "http://localhost:7401")], false, None),
            (&Door::Loopback, &[host, ("origin", "http://localhost:80")], false, Some(Class::Forbidden)),
            (&Door::Loopback, &[host, ("origin", "null")], false, Some(Class::Forbidden)),
            (&Door::Loopback, &[host, ("origin", "https://evil.example")], true, Some(Class::Forbidden)),
            (&Door::Loopback, &[("host", "evil.example")], true, Some(Class::Forbidden)),
            (&Door::Loopback, &[], false, Some(Class::Forbidden)),
            (&token, &[host], false, Some(Class::Unauthorized)),
            (&token, &[host], true, None),
            (&token, &[("host", "agent.example"), bearer], false, None),
            (&token, &[host, bearer, ("origin", "https://evil.example")], false, Some(Class::Forbidden)),
            (&token, &[host, ("authorization", "Bearer 0123456789abcdeF")], false, Some(Class::Unauthorized)),
        ] {
            let map = headers.iter().map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap())).collect();
            assert_eq!(
                door.check(&map, is_open).err().map(|failure| failure.0.class()),
                refused,
                "{door:?} {headers:?}"
            );
        }
    }
}
