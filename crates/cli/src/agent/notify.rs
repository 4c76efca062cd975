//! Notifies systemd (sd_notify(3)): a datagram to the socket in `NOTIFY_SOCKET`.

use std::env;
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::net::{SocketAddr, UnixDatagram};

pub const READY: &str = "READY=1";
pub const STOPPING: &str = "STOPPING=1";

pub fn notify(state: &str) {
    if let Some(socket) = env::var_os("NOTIFY_SOCKET")
        && let Err(error) = send(socket.as_bytes(), state)
    {
        tracing::warn!(%error, state, "cannot notify systemd");
    }
}

fn send(socket: &[u8], state: &str) -> std::io::Result<()> {
    let address = match socket.strip_prefix(b"@") {
        Some(name) => SocketAddr::from_abstract_name(name)?,
        None => SocketAddr::from_pathname(std::ffi::OsStr::from_bytes(socket))?,
    };
    UnixDatagram::unbound()?.send_to_addr(state.as_bytes(), &address)?;
    Ok(())
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test may fail loudly")]
mod tests {
    use super::*;

    #[test]
    fn notify_reaches_both_kinds_of_sockets() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("notify");
        let name = format!("peerlock-test-{}", std::process::id());
        let file = UnixDatagram::bind(&path).unwrap();
        let hidden = UnixDatagram::bind_addr(&SocketAddr::from_abstract_name(&name).unwrap()).unwrap();
        for (socket, address) in [(file, path.to_str().unwrap().to_owned()), (hidden, format!("@{name}"))] {
            send(address.as_bytes(), READY).unwrap();
            let mut received = [0; 64];
            let length = socket.recv(&mut received).unwrap();
            assert_eq!(&received[..length], READY.as_bytes(), "{address}");
        }
        assert!(send(b"/no/such/socket", READY).is_err());
    }
}
