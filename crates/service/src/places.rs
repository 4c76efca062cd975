//! The default paths of this user's files and sockets.

use std::env;
use std::fs::Permissions;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

/// No variable of the environment determines the data directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("there is no HOME to keep files in: set PEERLOCK_DATA_DIR, or give --data-dir")]
pub struct NoDataDir;

/// Returns the data directory: `$PEERLOCK_DATA_DIR`; else `/var/lib/peerlock` for root, and for other users
/// `$XDG_DATA_HOME/peerlock` or `~/.local/share/peerlock`.
///
/// # Errors
/// [`NoDataDir`] if none of them is set.
pub fn data_dir() -> Result<PathBuf, NoDataDir> {
    data_dir_of(is_root(), variable)
}

/// Returns the path of the cluster secret in a data directory.
pub fn secret(data_dir: &Path) -> PathBuf {
    data_dir.join("secret")
}

/// Returns the path of an agent's identity in a data directory.
pub fn identity(data_dir: &Path) -> PathBuf {
    data_dir.join("identity")
}

/// The socket of the system agent, which belongs to root.
pub const SYSTEM_SOCKET: &str = "/run/peerlock/agent.sock";
/// The data directory of the system agent.
pub const SYSTEM_DATA_DIR: &str = "/var/lib/peerlock";

/// Returns whether this machine has a permanent system agent, running or not, which has [marked](mark_system) its
/// directories. An agent that was started by a command of root leaves no mark.
pub fn has_system_agent() -> bool {
    let run_time = Path::new(SYSTEM_SOCKET).parent();
    run_time.into_iter().chain([Path::new(SYSTEM_DATA_DIR)]).any(is_marked)
}

/// Returns whether an agent listens in the directory of the [system agent's socket](SYSTEM_SOCKET). The kernel lists
/// all Unix sockets to every user, also to those who may not search that directory.
pub fn listens_for_system() -> bool {
    let directory = Path::new(SYSTEM_SOCKET).parent().unwrap_or(Path::new("/"));
    std::fs::read_to_string("/proc/net/unix").is_ok_and(|table| has_listener(&table, directory))
}

/// Compares directories only: the kernel lists the name to which a socket was bound, and an agent renames it
/// afterwards.
fn has_listener(table: &str, directory: &Path) -> bool {
    // Number, references, protocol, flags (with __SO_ACCEPTCON), type, state, inode, path.
    table.lines().any(|line| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        matches!(fields[..], [_, _, _, "00010000", _, _, _, at] if Path::new(at).starts_with(directory))
    })
}

/// Marks a directory of the system agent by search permission for its group, which every user can see. It gives no
/// access to the files in it.
///
/// # Errors
/// If its mode cannot be changed.
pub fn mark_system(directory: &Path) -> std::io::Result<()> {
    let mode = std::fs::metadata(directory)?.mode() & 0o7777;
    match mode & 0o010 {
        0 => std::fs::set_permissions(directory, Permissions::from_mode(mode | 0o010)),
        _ => Ok(()),
    }
}

fn is_marked(directory: &Path) -> bool {
    std::fs::metadata(directory).is_ok_and(|found| found.mode() & 0o070 != 0)
}

/// Returns whether `$PEERLOCK_RUNTIME_DIR` is set.
pub fn is_socket_named() -> bool {
    variable("PEERLOCK_RUNTIME_DIR").is_some()
}

/// Returns whether `$PEERLOCK_DATA_DIR` is set.
pub fn is_data_dir_named() -> bool {
    variable("PEERLOCK_DATA_DIR").is_some()
}

/// Returns the default socket of an agent: `agent.sock` in `$PEERLOCK_RUNTIME_DIR` or `$PEERLOCK_DATA_DIR`; else
/// `/run/peerlock/agent.sock` for root, and for other users `$XDG_RUNTIME_DIR/peerlock/agent.sock`, or `agent.sock` in
/// the data directory.
///
/// # Errors
/// [`NoDataDir`] if no variable determines it.
pub fn agent_socket() -> Result<PathBuf, NoDataDir> {
    agent_socket_of(is_root(), variable)
}

/// Returns the socket of the agent that this user's commands use, without connecting to it: that of the last agent of
/// the data directory, since `$XDG_RUNTIME_DIR` differs between a shell and cron; if there was none, that of the system
/// agent; else the [default](agent_socket).
pub fn agent_in_use() -> Result<PathBuf, NoDataDir> {
    agent_in_use_of(is_root(), variable, last_socket, Path::exists)
}

fn agent_in_use_of(
    root: bool,
    variable: impl Fn(&str) -> Option<PathBuf>,
    last: impl Fn(&Path) -> Last,
    exists: impl Fn(&Path) -> bool,
) -> Result<PathBuf, NoDataDir> {
    let usual = agent_socket_of(root, &variable)?;
    let is_named = variable("PEERLOCK_DATA_DIR").is_some();
    if variable("PEERLOCK_RUNTIME_DIR").is_some() || root && !is_named {
        return Ok(usual);
    }
    let last = data_dir_of(root, &variable).map_or(Last::Never, |dir| last(&dir));
    match last {
        Last::At(socket) => Ok(socket),
        Last::Never if !is_named && exists(Path::new(SYSTEM_SOCKET)) => Ok(SYSTEM_SOCKET.into()),
        Last::Never | Last::Gone => Ok(usual),
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Last {
    Never,
    /// The last agent has removed its socket.
    Gone,
    At(PathBuf),
}

/// Reads the last agent's socket, which must belong to the owner of the directory.
fn last_socket(dir: &Path) -> Last {
    let Ok(last) = last_agent(dir) else { return Last::Never };
    let socket = last.map(|last| last.socket).filter(|socket| socket.is_absolute());
    let owner = |path: &Path| std::fs::metadata(path).ok().map(|file| file.uid());
    match socket {
        Some(socket) if owner(&socket).is_some() && owner(&socket) == owner(dir) => Last::At(socket),
        Some(_) | None => Last::Gone,
    }
}

/// An agent, as it describes itself in `agent.lock`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Occupant {
    /// Its process ID.
    pub pid: u32,
    /// Whether it was started by a command, and ends when it is unused.
    pub ends_by_itself: bool,
    /// The socket of its API.
    pub socket: PathBuf,
}

impl Occupant {
    /// Returns the contents of `agent.lock`.
    pub fn to_text(&self) -> String {
        let stays = if self.ends_by_itself { "ends by itself" } else { "stays" };
        format!("{}\n{stays}\n{}\n", self.pid, self.socket.display())
    }

    fn parse(text: &str) -> Option<Self> {
        let mut lines = text.lines();
        let pid = lines.next()?.parse().ok()?;
        Some(Self { pid, ends_by_itself: lines.next()? == "ends by itself", socket: lines.next()?.into() })
    }
}

/// Returns the last agent of a data directory, running or not; `None` if its `agent.lock` is damaged.
///
/// # Errors
/// If there is no `agent.lock`.
pub fn last_agent(data_dir: &Path) -> std::io::Result<Option<Occupant>> {
    Ok(Occupant::parse(&std::fs::read_to_string(data_dir.join("agent.lock"))?))
}

fn data_dir_of(root: bool, variable: impl Fn(&str) -> Option<PathBuf>) -> Result<PathBuf, NoDataDir> {
    if let Some(dir) = variable("PEERLOCK_DATA_DIR") {
        return Ok(dir);
    }
    if root {
        return Ok(SYSTEM_DATA_DIR.into());
    }
    let home = || variable("HOME").map(|home| home.join(".local/share"));
    variable("XDG_DATA_HOME").or_else(home).map(|dir| dir.join("peerlock")).ok_or(NoDataDir)
}

fn agent_socket_of(root: bool, variable: impl Fn(&str) -> Option<PathBuf>) -> Result<PathBuf, NoDataDir> {
    if let Some(dir) = variable("PEERLOCK_RUNTIME_DIR").or_else(|| variable("PEERLOCK_DATA_DIR")) {
        return Ok(dir.join("agent.sock"));
    }
    if root {
        return Ok(SYSTEM_SOCKET.into());
    }
    match variable("XDG_RUNTIME_DIR") {
        Some(dir) => Ok(dir.join("peerlock/agent.sock")),
        None => Ok(data_dir_of(root, variable)?.join("agent.sock")),
    }
}

fn variable(name: &str) -> Option<PathBuf> {
    env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from)
}

fn is_root() -> bool {
    std::fs::metadata("/proc/self").is_ok_and(|process| process.uid() == 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn agent_in_use_depends_on_environment_and_last_agent() {
        let (there, other) = (Last::At("/told.sock".into()), "/home/ada/.local/share/peerlock/agent.sock");
        let system = SYSTEM_SOCKET;
        for (root, set, last, machines, socket) in [
            (false, None, Last::Never, false, other),
            (false, None, Last::Never, true, system),
            (false, None, Last::Gone, true, other),
            (false, None, there.clone(), true, "/told.sock"),
            (false, Some(("XDG_RUNTIME_DIR", "/run/user/1")), there.clone(), true, "/told.sock"),
            (false, Some(("XDG_RUNTIME_DIR", "/run/user/1")), Last::Gone, true, "/run/user/1/peerlock/agent.sock"),
            (false, Some(("PEERLOCK_DATA_DIR", "/p")), Last::Never, true, "/p/agent.sock"),
            (false, Some(("PEERLOCK_DATA_DIR", "/p")), there.clone(), true, "/told.sock"),
            (false, Some(("PEERLOCK_RUNTIME_DIR", "/r")), there.clone(), true, "/r/agent.sock"),
            (true, None, there.clone(), false, system),
            (true, Some(("PEERLOCK_DATA_DIR", "/p")), there.clone(), true, "/told.sock"),
        ] {
            let variable = |name: &str| {
                let mut set = [("HOME", "/home/ada")].into_iter().chain(set);
                set.find(|(known, _)| *known == name).map(|(_, value)| value.into())
            };
            let used = agent_in_use_of(root, variable, |_| last.clone(), |_| machines);
            assert_eq!(used, Ok(socket.into()), "{root} {set:?} {last:?} {machines}");
        }
    }

    #[test]
    fn only_a_listening_socket_counts_as_an_agent() {
        let table = "Num RefCount Protocol Flags Type St Inode Path\n\
            0000: 00000002 00000000 00010000 0001 01 11 /run/peerlock/.812/s\n\
            0000: 00000003 00000000 00000000 0001 03 12 /run/other/agent.sock\n\
            0000: 00000003 00000000 00000000 0001 03 13\n";
        let has = |directory: &str| has_listener(table, Path::new(directory));
        assert!(has("/run/peerlock") && !has("/run/other") && !has("/run/peer"));
    }

    #[test]
    fn last_socket_is_in_the_lock_file() {
        let dir = env::temp_dir().join(format!("peerlock-places-{}", std::process::id()));
        std::fs::create_dir(&dir).unwrap();
        assert_eq!(last_socket(&dir), Last::Never);
        let socket = dir.join("its.sock");
        std::fs::write(dir.join("agent.lock"), format!("812\nstays\n{}\n", socket.display())).unwrap();
        assert_eq!(last_socket(&dir), Last::Gone);
        std::fs::write(&socket, "").unwrap();
        assert_eq!(last_socket(&dir), Last::At(socket));
        std::fs::remove_dir_all(&dir).unwrap();
    }

    #[test]
    fn default_paths_depend_on_user_and_environment() {
        type Set<'a> = &'a [(&'a str, &'a str)];
        let home = ("HOME", "/home/ada");
        let table: [(bool, Set, Option<&str>, Option<&str>); 9] = [
            (
                false,
                &[home],
                Some("/home/ada/.local/share/peerlock"),
                Some("/home/ada/.local/share/peerlock/agent.sock"),
            ),
            (false, &[home, ("XDG_DATA_HOME", "/d")], Some("/d/peerlock"), Some("/d/peerlock/agent.sock")),
            (
                false,
                &[home, ("XDG_RUNTIME_DIR", "/run/user/1")],
                Some("/home/ada/.local/share/peerlock"),
                Some("/run/user/1/peerlock/agent.sock"),
            ),
            (
                false,
                &[home, ("PEERLOCK_DATA_DIR", "/p"), ("XDG_RUNTIME_DIR", "/run/user/1")],
                Some("/p"),
                Some("/p/agent.sock"),
            ),
            (true, &[("HOME", "/root")], Some("/var/lib/peerlock"), Some("/run/peerlock/agent.sock")),
            (true, &[("PEERLOCK_DATA_DIR", "/p")], Some("/p"), Some("/p/agent.sock")),
            (true, &[("PEERLOCK_RUNTIME_DIR", "/r")], Some("/var/lib/peerlock"), Some("/r/agent.sock")),
            (true, &[("PEERLOCK_DATA_DIR", "/p"), ("PEERLOCK_RUNTIME_DIR", "/r")], Some("/p"), Some("/r/agent.sock")),
            (false, &[], None, None),
        ];
        for (root, set, data, socket) in table {
            let variable = |name: &str| set.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).into());
            assert_eq!(data_dir_of(root, variable).ok(), data.map(PathBuf::from), "{set:?}");
            assert_eq!(agent_socket_of(root, variable).ok(), socket.map(PathBuf::from), "{set:?}");
        }
    }
}
