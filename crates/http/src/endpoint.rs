//! The address of an agent.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

///
/// ```
/// use peerlock_http::Endpoint;
/// assert_eq!("/run/peerlock/agent.sock".parse(), Ok(Endpoint::Unix("/run/peerlock/agent.sock".into())));
/// assert_eq!("http://127.0.0.1:7401".parse(), Ok(Endpoint::Tcp("127.0.0.1:7401".into())));
/// assert!("nowhere".parse::<Endpoint>().is_err());
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Endpoint {
    /// A socket in the file system, which only its owner can use.
    Unix(PathBuf),
    /// A host, by name or number, and a port.
    Tcp(String),
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is no address of an agent: use the path of a Unix socket with a `/` in it, or `host:port`")]
pub struct BadEndpoint(String);

impl FromStr for Endpoint {
    type Err = BadEndpoint;

    fn from_str(text: &str) -> Result<Self, BadEndpoint> {
        let bad = || BadEndpoint(text.to_owned());
        if let Some(path) = text.strip_prefix("unix:") {
            return if path.is_empty() { Err(bad()) } else { Ok(Self::Unix(path.into())) };
        }
        let address = text.strip_prefix("http://").map(|rest| rest.trim_end_matches('/'));
        if address.is_none() && text.contains('/') {
            return Ok(Self::Unix(text.into()));
        }
        let address = address.unwrap_or(text);
        let (host, port) = address.rsplit_once(':').ok_or_else(bad)?;
        let is_host = !host.is_empty() && (host.starts_with('[') == host.contains(':')) && !host.contains('/');
        if is_host && port.parse::<u16>().is_ok() { Ok(Self::Tcp(address.to_owned())) } else { Err(bad()) }
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
            Self::Tcp(address) => write!(f, "http://{address}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn endpoints() {
        let unix = |path: &str| Some(Endpoint::Unix(path.into()));
        let tcp = |address: &str| Some(Endpoint::Tcp(address.into()));
        for (text, endpoint) in [
            ("/a/b.sock", unix("/a/b.sock")),
            ("./b.sock", unix("./b.sock")),
            ("unix:b.sock", unix("b.sock")),
            ("127.0.0.1:7401", tcp("127.0.0.1:7401")),
            ("http://[::1]:80/", tcp("[::1]:80")),
            ("host.example:1", tcp("host.example:1")),
            ("unix:", None),
            ("", None),
            ("host", None),
            (":80", None),
            ("::1:80", None),
            ("host:99999", None),
            ("http://host:80/path", None),
        ] {
            assert_eq!(text.parse().ok(), endpoint, "{text:?}");
            if let Some(endpoint) = endpoint {
                assert_eq!(endpoint.to_string().parse(), Ok(endpoint), "{text:?}");
            }
        }
    }
}
