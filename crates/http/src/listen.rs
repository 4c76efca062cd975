//! Where the agent can be reached, and by whom.

use std::fs::{self, DirBuilder, Permissions};
use std::io;
use std::net::SocketAddr;
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, MetadataExt, PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tokio::net::{TcpListener, UnixListener, lookup_host};

use crate::crowd::Crowd;
use crate::guard::{Guard, TokenInForce};
use crate::{Endpoint, Token};

/// What fits into an address of a Unix socket on Linux, which ends with a zero.
const MOST_PATH: usize = 107;

/// An open socket that [`serve`](crate::serve) takes connections from. A socket file is removed when it is dropped.
#[derive(Debug)]
pub struct Listener {
    pub(crate) socket: Socket,
    pub(crate) guard: Guard,
    pub(crate) crowd: Arc<Crowd>,
    endpoint: Endpoint,
    /// Last, so that it goes when nobody can connect any more.
    _file: Option<SocketFile>,
}

#[derive(Debug)]
pub(crate) enum Socket {
    Unix(UnixListener),
    Tcp(TcpListener),
}

/// Why it cannot be listened there. Nothing has been changed.
#[derive(Debug, thiserror::Error)]
pub enum ListenError {
    /// Without a bearer token everybody could release everything.
    #[error(
        "{endpoint} can be reached by other users, and there is no token: give one that clients must know, or listen \
         on a Unix socket"
    )]
    NoToken {
        /// Where it was to listen.
        endpoint: Endpoint,
    },
    /// Another agent is there.
    #[error("another agent listens at {endpoint}: use that, stop it, or choose another place")]
    InUse {
        /// The socket or address that it listens at.
        endpoint: Endpoint,
    },
    /// The system knows no sockets with such a long path.
    #[error(
        "{path} is too long for a socket: {MOST_PATH} bytes at most. Choose another place: set PEERLOCK_RUNTIME_DIR, \
         or say unix:PATH"
    )]
    TooLong {
        /// Where the socket was to be.
        path: PathBuf,
    },
    /// There is a file that is no socket.
    #[error("{path} is there and is no socket: move it away, or choose another place")]
    NoSocket {
        /// Where the socket was to be.
        path: PathBuf,
    },
    /// The system does not let us.
    #[error("cannot listen at {endpoint}: {source}. Choose another place, or make this one usable for this user")]
    Cannot {
        /// The socket or address that was asked for.
        endpoint: Endpoint,
        /// What the system said.
        source: io::Error,
    },
}

impl Listener {
    /// Listens at an endpoint, for so many connections at a time. A bearer token is needed at a TCP port, where other
    /// users of the machine come in, if not other machines; and not asked for on a Unix socket, which only its owner
    /// can use.
    ///
    /// # Errors
    /// See [`ListenError`].
    pub async fn bind(endpoint: &Endpoint, token: Option<Token>, most: usize) -> Result<Self, ListenError> {
        let cannot = |source| ListenError::Cannot { endpoint: endpoint.clone(), source };
        let crowd = Crowd::new(most);
        match endpoint {
            Endpoint::Unix(path) => {
                let (listener, file) = bind_unix(path)?;
                let endpoint = endpoint.clone();
                Ok(Self { socket: Socket::Unix(listener), guard: Guard::Unix, crowd, endpoint, _file: Some(file) })
            }
            Endpoint::Tcp(address) => {
                let token = token.ok_or_else(|| ListenError::NoToken { endpoint: endpoint.clone() })?;
                let addresses: Vec<SocketAddr> = lookup_host(address).await.map_err(cannot)?.collect();
                let listener = TcpListener::bind(&addresses[..]).await.map_err(|source| match source.kind() {
                    io::ErrorKind::AddrInUse => ListenError::InUse { endpoint: endpoint.clone() },
                    _ => cannot(source),
                })?;
                let endpoint = Endpoint::Tcp(listener.local_addr().map_err(cannot)?.to_string());
                let guard = Guard::Token(TokenInForce::new(token));
                Ok(Self { socket: Socket::Tcp(listener), guard, crowd, endpoint, _file: None })
            }
        }
    }

    /// Lets the members of a group connect, too, if it is a Unix socket: then they may do whatever its owner may. Its
    /// directory is opened for them as far as they need it to get there.
    ///
    /// # Errors
    /// [`ListenError::Cannot`] if the system does not let us: only root, or who is in the group, can give it something.
    pub fn admit(&self, group: u32) -> Result<(), ListenError> {
        let Endpoint::Unix(path) = &self.endpoint else { return Ok(()) };
        let cannot = |source| ListenError::Cannot { endpoint: self.endpoint.clone(), source };
        let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let mode = fs::metadata(directory).map_err(cannot)?.mode();
        if mode & 0o001 == 0 {
            give(directory, group, mode & 0o7777 | 0o010).map_err(cannot)?;
        }
        give(path, group, 0o660).map_err(cannot)
    }

    /// The bearer token that it asks for, if it does, for whoever may replace it while clients come.
    pub fn token(&self) -> Option<TokenInForce> {
        match &self.guard {
            Guard::Token(token) => Some(token.clone()),
            Guard::Unix => None,
        }
    }

    /// Where it listens: with the port that it was given, if it asked for any.
    pub fn endpoint(&self) -> &Endpoint {
        &self.endpoint
    }
}

/// Gives a file to a group with this mode. One that has it already is left to it: a service that was started with that
/// group may not be allowed to give anything away.
fn give(path: &Path, group: u32, mode: u32) -> io::Result<()> {
    if fs::symlink_metadata(path)?.gid() != group {
        chown(path, None, Some(group))?;
    }
    fs::set_permissions(path, Permissions::from_mode(mode))
}

/// A socket that only this user can connect to. It is made in a directory of its own, so that it has its mode before
/// anybody can see it, and takes its place in one step, also that of one whose agent has died.
fn bind_unix(path: &Path) -> Result<(UnixListener, SocketFile), ListenError> {
    let cannot = |source| ListenError::Cannot { endpoint: Endpoint::Unix(path.to_owned()), source };
    // It is made elsewhere and moved, so that the system would not say so.
    if path.as_os_str().len() > MOST_PATH {
        return Err(ListenError::TooLong { path: path.to_owned() });
    }
    let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    DirBuilder::new().recursive(true).mode(0o700).create(directory).map_err(cannot)?;
    check_free(path)?;
    let room = directory.join(format!(".{}", std::process::id()));
    DirBuilder::new().mode(0o700).create(&room).map_err(cannot)?;
    let made = make_unix(&room.join("s"), path);
    if made.is_err() {
        _ = fs::remove_file(room.join("s"));
    }
    _ = fs::remove_dir(&room);
    made.map_err(cannot)
}

fn make_unix(first: &Path, path: &Path) -> io::Result<(UnixListener, SocketFile)> {
    let listener = UnixListener::bind(first)?;
    fs::set_permissions(first, Permissions::from_mode(0o600))?;
    let metadata = fs::symlink_metadata(first)?;
    fs::rename(first, path)?;
    Ok((listener, SocketFile { path: path.to_owned(), id: (metadata.dev(), metadata.ino()) }))
}

/// Whether there is nobody at a path: nothing at all, or a socket that nobody listens to.
fn check_free(path: &Path) -> Result<(), ListenError> {
    let Ok(metadata) = fs::symlink_metadata(path) else { return Ok(()) };
    if !metadata.file_type().is_socket() {
        return Err(ListenError::NoSocket { path: path.to_owned() });
    }
    let endpoint = Endpoint::Unix(path.to_owned());
    match std::os::unix::net::UnixStream::connect(path) {
        Ok(_) => Err(ListenError::InUse { endpoint }),
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => Ok(()),
        Err(source) => Err(ListenError::Cannot { endpoint, source }),
    }
}

/// A socket's name in the file system, as long as it is ours.
#[derive(Debug)]
struct SocketFile {
    path: PathBuf,
    id: (u64, u64),
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        let is_ours = |metadata: fs::Metadata| (metadata.dev(), metadata.ino()) == self.id;
        if fs::symlink_metadata(&self.path).is_ok_and(is_ours) {
            _ = fs::remove_file(&self.path);
        }
    }
}
