use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::str::FromStr;

use libp2p::Multiaddr;
use libp2p::multiaddr::Protocol;

use crate::BadAddress;

/// Where a peer can be reached.
///
/// ```
/// use peerlock_net::Address;
/// let address: Address = "10.0.0.7:7400".parse()?;
/// assert_eq!(address.to_string(), "10.0.0.7:7400");
/// assert_eq!("quic://[::1]:7400".parse::<Address>()?.to_string(), "quic://[::1]:7400");
/// # Ok::<(), peerlock_net::BadAddress>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Address {
    /// IP address and port. Names are resolved by whoever reads them from a person.
    pub socket: SocketAddr,
    /// What runs on it.
    pub transport: Transport,
}

/// What carries a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Transport {
    /// TCP, encrypted with Noise, multiplexed with Yamux.
    Tcp,
    /// QUIC over UDP, on the port on which the same peer listens by TCP.
    Quic,
}

impl Transport {
    /// What this program was built with. QUIC is the feature `quic`.
    pub const ALL: &[Self] = if cfg!(feature = "quic") { &[Self::Tcp, Self::Quic] } else { &[Self::Tcp] };
}

impl Address {
    /// This socket by TCP.
    pub const fn tcp(socket: SocketAddr) -> Self {
        Self { socket, transport: Transport::Tcp }
    }

    /// This socket by QUIC.
    pub const fn quic(socket: SocketAddr) -> Self {
        Self { socket, transport: Transport::Quic }
    }

    /// The same peer by a transport that this program has: a member that has QUIC tells of addresses with it.
    pub(crate) fn by_what_we_have(self) -> Self {
        if Transport::ALL.contains(&self.transport) { self } else { Self::tcp(self.socket) }
    }

    pub(crate) fn to_multiaddr(self) -> Multiaddr {
        let ip = Multiaddr::from(self.socket.ip());
        match self.transport {
            Transport::Tcp => ip.with(Protocol::Tcp(self.socket.port())),
            Transport::Quic => ip.with(Protocol::Udp(self.socket.port())).with(Protocol::QuicV1),
        }
    }

    pub(crate) fn from_multiaddr(address: &Multiaddr) -> Option<Self> {
        let mut parts = address.iter();
        let ip = match parts.next()? {
            Protocol::Ip4(ip) => IpAddr::V4(ip),
            Protocol::Ip6(ip) => IpAddr::V6(ip),
            _ => return None,
        };
        match (parts.next()?, parts.next()) {
            (Protocol::Tcp(port), _) => Some(Self::tcp(SocketAddr::new(ip, port))),
            (Protocol::Udp(port), Some(Protocol::QuicV1)) => Some(Self::quic(SocketAddr::new(ip, port))),
            _ => None,
        }
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.transport {
            Transport::Tcp => self.socket.fmt(f),
            Transport::Quic => write!(f, "quic://{}", self.socket),
        }
    }
}

impl FromStr for Address {
    type Err = BadAddress;

    fn from_str(text: &str) -> Result<Self, BadAddress> {
        let (socket, transport) = match text.strip_prefix("quic://") {
            Some(socket) => (socket, Transport::Quic),
            None => (text, Transport::Tcp),
        };
        let socket = socket.parse().map_err(|_| BadAddress(text.to_owned()))?;
        Ok(Self { socket, transport })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_survives_both_ways_of_writing_it() {
        for text in ["127.0.0.1:7400", "quic://127.0.0.1:7400", "[::1]:1", "quic://[fe80::1]:65535"] {
            let address: Address = text.parse().unwrap();
            assert_eq!(address.to_string(), text);
            assert_eq!(Address::from_multiaddr(&address.to_multiaddr()), Some(address));
        }
        for text in ["", "host:7400", "127.0.0.1", "quic://", "127.0.0.1:70000", "tcp://127.0.0.1:1"] {
            assert_eq!(text.parse::<Address>(), Err(BadAddress(text.to_owned())));
        }
        let quic = Address::quic("10.0.0.7:7400".parse().unwrap());
        let expected = if cfg!(feature = "quic") { quic } else { Address::tcp(quic.socket) };
        assert_eq!(quic.by_what_we_have(), expected);
        for text in ["/ip4/1.2.3.4/udp/5", "/dns/example.org/tcp/5", "/ip4/1.2.3.4"] {
            assert_eq!(Address::from_multiaddr(&text.parse().unwrap()), None, "{text}");
        }
    }
}
