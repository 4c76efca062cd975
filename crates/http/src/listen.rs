//! Listening sockets and their permissions.

use std::fs::{self, DirBuilder, Permissions};
use std::io;
use std::net::SocketAddr;
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, MetadataExt, PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tokio::net::{TcpListener, UnixListener, lookup_host};

use crate::connection_limit::ConnectionLimit;
use crate::guard::{Guard, TokenInForce};
use crate::{Endpoint, Token};

/// The longest path of a Unix socket on Linux, without the final NUL.
const MOST_PATH: usize = 107;

/// A listening socket for [`serve`](crate::serve). Dropping it removes a socket file.
#[derive(Debug)]
pub struct Listener {
    pub(crate) socket: Socket,
    pub(crate) guard: Guard,
    pub(crate) connection_limit: Arc<ConnectionLimit>,
    endpoint: Endpoint,
    /// Last, so that the file is removed after the socket is closed.
    _file: Option<SocketFile>,
}

#[derive(Debug)]
pub(crate) enum Socket {
    Unix(UnixListener),
    Tcp(TcpListener),
}

/// Why listening failed. An existing socket or file is unchanged.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "the messages describe the variants")]
pub enum ListenError {
    #[error(
        "{endpoint} can be reached by other users, and there is no bearer token: set one, or listen \
         on a Unix socket"
    )]
    NoToken { endpoint: Endpoint },
    #[error("another agent listens at {endpoint}: use it, stop it, or choose another endpoint")]
    InUse { endpoint: Endpoint },
    #[error(
        "{path} is too long for a socket: {MOST_PATH} bytes at most. Choose another path: set PEERLOCK_RUNTIME_DIR, \
         or use unix:PATH"
    )]
    TooLong { path: PathBuf },
    #[error("{path} exists and is not a socket: move it away, or choose another path")]
    NoSocket { path: PathBuf },
    #[error("cannot listen at {endpoint}: {source}. Choose another endpoint, or make this one usable for this user")]
    Cannot { endpoint: Endpoint, source: io::Error },
}

impl Listener {
    /// Listens at an endpoint, with a limit of connections. A TCP port, which other users can reach, requires a bearer
    /// token; a Unix socket, which only its owner can use, does not.
    pub async fn bind(endpoint: &Endpoint, token: Option<Token>, most: usize) -> Result<Self, ListenError> {
        let cannot = |source| ListenError::Cannot { endpoint: endpoint.clone(), source };
        let connection_limit = ConnectionLimit::new(most);
        match endpoint {
            Endpoint::Unix(path) => {
                let (listener, file) = bind_unix(path)?;
                let endpoint = endpoint.clone();
                Ok(Self {
                    socket: Socket::Unix(listener),
                    guard: Guard::Unix,
                    connection_limit,
                    endpoint,
                    _file: Some(file),
                })
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
                Ok(Self { socket: Socket::Tcp(listener), guard, connection_limit, endpoint, _file: None })
            }
        }
    }

    /// Permits the members of a group to connect to a Unix socket, which gives them all of its owner's rights. Makes
    /// its directory searchable for them.
    ///
    /// # Errors
    /// [`ListenError::Cannot`] if the system refuses: only root, or the owner as a member of the group, can assign it.
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

    pub fn token(&self) -> Option<TokenInForce> {
        match &self.guard {
            Guard::Token(token) => Some(token.clone()),
            Guard::Unix => None,
        }
    }

    /// Returns the endpoint, with the actual port.
    pub fn endpoint(&self) -> &Endpoint {
        &self.endpoint
    }
}

/// Assigns a group and a mode to a file. Does not call `chown` if the group is right already: a service may lack the
/// permission.
fn give(path: &Path, group: u32, mode: u32) -> io::Result<()> {
    if fs::symlink_metadata(path)?.gid() != group {
        chown(path, None, Some(group))?;
    }
    fs::set_permissions(path, Permissions::from_mode(mode))
}

/// Creates a socket that only this user can use. It is created in a temporary directory, so that its mode is set before
/// it is visible, and then renamed, which also replaces the socket of a dead agent.
fn bind_unix(path: &Path) -> Result<(UnixListener, SocketFile), ListenError> {
    let cannot = |source| ListenError::Cannot { endpoint: Endpoint::Unix(path.to_owned()), source };
    // The kernel checks only the shorter path under which the socket is created.
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

/// Checks that no agent listens at a path: there is no file, or a socket without a listener.
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

/// A socket file, which is removed on drop unless it was replaced.
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
