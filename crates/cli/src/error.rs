//! The one place that tells a person what went wrong, and the shell how badly.

use std::io;
use std::path::PathBuf;

use peerlock::StartError;
use peerlock_http::ListenError;
use thiserror::Error;

/// What can go wrong in a command. Nothing has been changed unless it says so.
#[derive(Debug, Error)]
pub enum Error {
    /// The options make no sense together.
    #[error("{0}")]
    Usage(String),
    /// A peer did not start.
    #[error(transparent)]
    Peer(#[from] StartError),
    /// What a peer or an agent has said.
    #[error(transparent)]
    Peerlock(#[from] peerlock::Error),
    /// A file that was named cannot be used.
    #[error("cannot use {path}: {source}. Check the file, or name another one")]
    File {
        /// The file as it was named.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// A folder of the agent's cannot be used.
    #[error(
        "cannot use the folder {path}: {source}. Make it writable, or set PEERLOCK_DATA_DIR to another one \
         (PEERLOCK_RUNTIME_DIR for that of the socket)"
    )]
    Dir {
        /// The data folder, or that of the socket.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// There is no place for what is needed only for a while.
    #[error("cannot make the folder {path}: {source}. Set TMPDIR to a folder that can be written")]
    Temporary {
        /// The folder.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// A folder of the agent's is not its own.
    #[error(
        "others can write into {path} (mode {mode:03o}), and so take the agent's place: run `chmod 700` on it, or \
         choose another folder"
    )]
    OpenDir {
        /// The data folder, or that of the socket.
        path: PathBuf,
        /// Its permission bits.
        mode: u32,
    },
    /// A data folder may be in use by several machines.
    #[error(
        "{path} is on {kind}, which other machines may use, too: two agents could have one identity and one vote. \
         Choose a directory on a disk of this machine (PEERLOCK_DATA_DIR, or --data-dir); --any-filesystem if no other \
         machine uses it",
        path = path.display()
    )]
    SharedFilesystem {
        /// The data folder.
        path: PathBuf,
        /// The kind of file system.
        kind: &'static str,
    },
    /// The last agent of a data folder ran on another machine, and may still run.
    #[error(
        "{path} was used by another machine last (machine ID {machine}), whose agent did not end in good order: two \
         agents must not have one identity and one vote. If it may run, stop it there; when it is certain that it does \
         not, remove {path}/agent.lock, and start this one again",
        path = path.display()
    )]
    OtherMachine {
        /// The data folder.
        path: PathBuf,
        /// The machine ID of the other one.
        machine: String,
    },
    /// The system gives this user too little.
    #[error(
        "an agent may have {files} files open here, and needs {least}: raise the limit (`ulimit -Hn`, LimitNOFILE=)"
    )]
    FewFiles {
        /// How many it may have.
        files: usize,
        /// How many it needs.
        least: usize,
    },
    /// The machine's agent is not for this user.
    #[error(
        "this machine's agent, at {socket}, is another user's, and does not let you in: ask for `--socket-group` with \
         a group that you are in, or name another agent with --agent. One of your own (`peerlock agent`) would be a \
         cluster apart, and exclude nobody"
    )]
    ForeignAgent {
        /// Where it is.
        socket: PathBuf,
    },
    /// The machine's agent is for this user, and does not run.
    #[error(
        "this machine's agent, at {socket}, does not run: it is being started again, or needs to be (`systemctl start \
         peerlock`). One of your own would be a cluster apart, and exclude nobody; if that is what you want, set \
         PEERLOCK_DATA_DIR"
    )]
    SystemAgentDown {
        /// Where it would be.
        socket: PathBuf,
    },
    /// A folder of the agent's belongs to somebody else.
    #[error(
        "{path} belongs to another user (uid {owner}), who could take the agent's place: choose another folder, or \
         `chown` it"
    )]
    ForeignDir {
        /// The data folder, or that of the socket.
        path: PathBuf,
        /// The number of the user whose it is.
        owner: u32,
    },
    /// Others can read the bearer token.
    #[error(
        "others can use the token in {path} (mode {mode:03o}): run `chmod 600` on it, or make a new one if it leaked"
    )]
    OpenToken {
        /// The file with the token.
        path: PathBuf,
        /// Its permission bits.
        mode: u32,
    },
    /// Another agent has the data folder.
    #[error(
        "an agent with the data folder {path} runs already{}: stop it, or give this one a folder with --data-dir",
        pid.map(|pid| format!(" (process {pid})")).unwrap_or_default()
    )]
    SecondAgent {
        /// The data folder that both want.
        path: PathBuf,
        /// The other one, if it has said who it is.
        pid: Option<u32>,
    },
    /// The hosts to join belong to another cluster than this one and its others.
    #[error(
        "not started: {address} of --join belongs to the cluster {theirs}, and this host to {ours}, which has other \
         hosts. Correct --join; or, to move this host there, move {path}/cluster and {path}/register away, and start \
         it again",
        path = path.display()
    )]
    JoinElsewhere {
        /// Where the other cluster was met.
        address: String,
        /// The data folder.
        path: PathBuf,
        /// The cluster of this host.
        ours: String,
        /// The cluster of the other one.
        theirs: String,
    },
    /// The hosts to join belong to another cluster, and something is held in the one of this host.
    #[error(
        "not started: {address} of --join belongs to the cluster {theirs}, and slots of its own cluster are held on \
         this host ({ours}; made by a command or an agent without --join, with no other host in it). Let its jobs end, \
         release what was acquired (`peerlock ls`, `peerlock release`), and start it again: it goes over then"
    )]
    HeldInOwnCluster {
        /// Where the other cluster was met.
        address: String,
        /// The cluster of this host.
        ours: String,
        /// The cluster of the other one.
        theirs: String,
    },
    /// The hosts to join have another secret, and this host is a cluster of its own.
    #[error(
        "not started: {address} of --join has another secret, and this host has a cluster of its own, with no other \
         host in it (in {path}). Name the other cluster's secret with --secret-file; or correct --join",
        path = path.display()
    )]
    OtherSecret {
        /// Where the other secret was met.
        address: String,
        /// The data folder.
        path: PathBuf,
    },
    /// A cluster is to be joined, and its secret is not here.
    #[error(
        "there is no secret at {path}, and a cluster is joined with its own: copy the file `secret` of a member there \
         (mode 600), or name it with --secret-file. Only for a new cluster, on its first machine: `peerlock secret new`"
    )]
    NoSecret {
        /// Where it was looked for.
        path: PathBuf,
    },
    /// A new secret is not written over another one.
    #[error(
        "{path} exists, and nothing was changed: with another secret in it this machine could not reach its cluster. \
         To replace the secret of a running cluster: `peerlock secret rotate`",
        path = path.display()
    )]
    SecretExists {
        /// The file that is there.
        path: PathBuf,
    },
    /// There is no agent, and the one that was started for this command has ended.
    #[error("there is no agent on this machine, and one could not be started: {said} (more in {log})")]
    AgentFailed {
        /// What it said last.
        said: String,
        /// Where it says more.
        log: PathBuf,
        /// Its exit code.
        code: u8,
    },
    /// A person has started the agent of this data folder, and it was never in a cluster.
    #[error(
        "the agent of this machine does not run, and has not been in its cluster yet, so that a new one would not know \
         it: start it again as before (`peerlock agent …`, or its systemd unit). Its data folder is {dir}"
    )]
    AgentStopped {
        /// The agent's data folder.
        dir: PathBuf,
    },
    /// The agent of this data directory was drained.
    #[error(
        "this machine is drained: `peerlock drain` has ended its agent, and commands do not start it again. Start it \
         with `peerlock agent`, or its systemd unit. Its data directory is {dir}"
    )]
    Drained {
        /// The agent's data directory.
        dir: PathBuf,
    },
    /// There is neither an agent nor word of its end.
    #[error("an agent of this machine is starting or ending, and has not answered for {seconds} s: look at {log}")]
    AgentMute {
        /// How long was waited.
        seconds: u64,
        /// Where it may say why.
        log: PathBuf,
    },
    /// An agent has left, and could not tell anybody.
    #[error(
        "left, and the cluster does not know it: no majority of the voters could be reached, and what this agent had \
         is free for others only when its session has run out"
    )]
    Untold,
    /// Nothing could be listened on for clients.
    #[error("cannot listen for clients: {0}")]
    Listen(#[from] ListenError),
    /// The system gives us no process, thread or file to work with.
    #[error("cannot start anything: {0}. Check the limits of this user (`ulimit -a`)")]
    Start(io::Error),
    /// The result could not be written.
    #[error("cannot write the result: {0}")]
    Output(#[from] io::Error),
}

pub mod exit {
    //! Exit codes, after sysexits.h where it has one. Those of what a peer or an agent says follow from its class.

    use std::io;
    use std::process::ExitCode;

    use clap::CommandFactory as _;
    use clap::error::{ContextKind, ContextValue, ErrorKind};
    use peerlock::{Class, NetworkError, StartError};

    use super::{Error, ListenError};
    use crate::Cli;
    use crate::say::say;

    const USAGE: u8 = Class::BadRequest.exit_code();
    const NO_INPUT: u8 = 66;
    const UNAVAILABLE: u8 = Class::Unavailable.exit_code();
    pub const SOFTWARE: u8 = 70;
    const SYSTEM: u8 = 71;
    const CANNOT_CREATE: u8 = 73;
    pub const IO: u8 = 74;
    const NOT_ALLOWED: u8 = Class::Forbidden.exit_code();
    pub const NOT_ACQUIRED: u8 = Class::NotAcquired.exit_code();

    /// Prints an error and says how to exit.
    pub fn after(error: &Error) -> ExitCode {
        match error {
            // The reader of a pipe has seen enough; nothing is wrong.
            Error::Output(error) if error.kind() == io::ErrorKind::BrokenPipe => return ExitCode::SUCCESS,
            _ => say(error),
        }
        ExitCode::from(code(error))
    }

    /// The exit code of an error.
    pub fn code(error: &Error) -> u8 {
        match error {
            Error::Usage(_) => USAGE,
            Error::JoinElsewhere { .. } | Error::HeldInOwnCluster { .. } | Error::OtherSecret { .. } => USAGE,
            Error::File { .. } => NO_INPUT,
            Error::Peerlock(error) => error.class().exit_code(),
            Error::Peer(error) => of_start(error),
            Error::Listen(ListenError::TooLong { .. }) => USAGE,
            Error::SecondAgent { .. } | Error::Listen(_) => UNAVAILABLE,
            Error::SystemAgentDown { .. } | Error::AgentStopped { .. } | Error::AgentMute { .. } => UNAVAILABLE,
            Error::Untold | Error::Drained { .. } => UNAVAILABLE,
            Error::AgentFailed { code, .. } => *code,
            Error::NoSecret { .. } | Error::OpenToken { .. } => NO_INPUT,
            Error::OpenDir { .. } | Error::ForeignDir { .. } => NO_INPUT,
            Error::SharedFilesystem { .. } | Error::OtherMachine { .. } => NO_INPUT,
            Error::ForeignAgent { .. } => NOT_ALLOWED,
            Error::Dir { .. } | Error::Temporary { .. } | Error::SecretExists { .. } => CANNOT_CREATE,
            Error::Start(_) | Error::FewFiles { .. } => SYSTEM,
            Error::Output(_) => IO,
        }
    }

    fn of_start(error: &StartError) -> u8 {
        match error {
            StartError::Network(error) => match error {
                NetworkError::IdentityUncreatable { .. } | NetworkError::SecretUncreatable { .. } => CANNOT_CREATE,
                NetworkError::Listen { .. } => UNAVAILABLE,
                NetworkError::IdentityUnreadable { .. }
                | NetworkError::IdentityMalformed { .. }
                | NetworkError::IdentityTooOpen { .. }
                | NetworkError::SecretUnreadable { .. }
                | NetworkError::SecretTooOpen { .. }
                | NetworkError::SecretLines
                | NetworkError::SecretWeak { .. } => NO_INPUT,
                _ => SYSTEM,
            },
            StartError::Places(_) => CANNOT_CREATE,
            StartError::Dir(_) | StartError::Token { .. } => NO_INPUT,
            StartError::Unresolved { .. } => UNAVAILABLE,
            StartError::OnlyItself { .. } | StartError::ExpectsTooFew { .. } => USAGE,
            StartError::Join(error) => error.class().exit_code(),
            StartError::Endpoint(_) => USAGE,
            // System, and whatever may come.
            _ => SYSTEM,
        }
    }

    /// Prints the result of parsing a command line that is not a command: an error, the help or the version.
    pub fn after_parsing(error: clap::Error) -> ExitCode {
        let hint = missing_dashes(&error);
        peerlock_console::after_parsing(Cli::command(), error, hint).unwrap_or_else(|error| after(&error.into()))
    }

    /// The one thing that everybody forgets once.
    fn missing_dashes(error: &clap::Error) -> Option<String> {
        let mut typed = std::env::args_os().skip(1);
        let (command, Some(ContextValue::String(word))) = (typed.next()?, error.get(ContextKind::InvalidArg)) else {
            return None;
        };
        let is_command = error.kind() == ErrorKind::UnknownArgument && command == "run" && !word.starts_with('-');
        is_command.then(|| format!("the command stands behind `--`: peerlock run NAME -- {word} …"))
    }
}
