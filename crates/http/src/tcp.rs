//! TCP options that detect a dead peer.

use std::time::Duration;

use socket2::{SockRef, TcpKeepalive};
use tokio::net::TcpStream;

/// An idle connection is probed after this long, then at this interval, and ends after this many unanswered probes:
/// after 25 s in all, which is less than common NAT and firewall timeouts.
const IDLE: Duration = Duration::from_secs(10);
const PROBES: (Duration, u32) = (Duration::from_secs(5), 3);
/// A connection ends if its data is not acknowledged for this long. The kernel sends no probes meanwhile.
const UNACKNOWLEDGED: Duration = Duration::from_secs(25);

/// Disables Nagle's algorithm and enables keep-alive probes. Ignores errors, since a connection works without both.
pub fn tune(stream: &TcpStream) {
    _ = stream.set_nodelay(true);
    let (socket, (interval, retries)) = (SockRef::from(stream), PROBES);
    let probes = TcpKeepalive::new().with_time(IDLE).with_interval(interval).with_retries(retries);
    _ = socket.set_tcp_keepalive(&probes);
    _ = socket.set_tcp_user_timeout(Some(UNACKNOWLEDGED));
}

#[cfg(test)]
mod tests {
    use tokio::net::TcpListener;

    use super::*;

    #[tokio::test]
    async fn tuned_connection_is_probed_by_the_kernel() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let stream = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        tune(&stream);
        let socket = SockRef::from(&stream);
        assert!(socket.keepalive().unwrap() && stream.nodelay().unwrap());
        assert_eq!(socket.tcp_keepalive_time().unwrap(), IDLE);
        assert_eq!((socket.tcp_keepalive_interval().unwrap(), socket.tcp_keepalive_retries().unwrap()), PROBES);
        assert_eq!(socket.tcp_user_timeout().unwrap(), Some(UNACKNOWLEDGED));
    }
}
