use std::net::SocketAddr;
use std::path::PathBuf;
use std::{fmt, io};

use thiserror::Error;

/// Why a peer could not start. Nothing has changed.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum Error {
    #[error("cannot read the identity in {path}: {source}. Make it readable for this user, or name another file")]
    IdentityUnreadable { path: PathBuf, source: io::Error },
    #[error("cannot create an identity in {path}: {source}. Create its directory and make it writable for this user")]
    IdentityUncreatable { path: PathBuf, source: io::Error },
    #[error(
        "{path} is not an identity: it must hold one line of 64 hexadecimal digits. Name another file, or move this \
         one away to get a new identity"
    )]
    IdentityMalformed { path: PathBuf },
    #[error(
        "others can use the identity in {path} (mode {mode:03o}): run `chmod 600` on it, or make a new one if it leaked"
    )]
    IdentityTooOpen { path: PathBuf, mode: u32 },
    #[error(
        "cannot read the cluster secret in {path}: {source}. On the first machine of a \
         cluster make it with `peerlock secret new`; on any other copy the file from a member (mode 600)"
    )]
    SecretUnreadable { path: PathBuf, source: io::Error },
    #[error("cannot create a cluster secret in {path}: {source}. Make its directory writable, or name another file")]
    SecretUncreatable { path: PathBuf, source: io::Error },
    #[error(
        "others can use the cluster secret in {path} (mode {mode:03o}): run `chmod 600` on it, or make a new one if it \
         leaked"
    )]
    SecretTooOpen { path: PathBuf, mode: u32 },
    #[error(
        "a secret file has one line, or two different ones during a rotation, the new secret first. `peerlock secret \
         finish` removes the old one"
    )]
    SecretLines,
    #[error(
        "the cluster secret can be guessed: {why}. Make one with `openssl rand -hex 32`, and give the same file to all \
         members; an agent that creates a cluster also generates one"
    )]
    SecretWeak { why: &'static str },
    #[error("cannot listen on {address}: {source}. Choose an address of this machine and a port that is free")]
    Listen { address: SocketAddr, source: io::Error },
}

/// Try again later.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("too many dials are waiting: try again in a moment")]
pub struct Busy;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum Unsent {
    #[error("the link to the peer is down")]
    Down,
    #[error("the message is longer than a frame")]
    TooLong,
    /// The peer's queue was full, and the link has been closed.
    #[error("the peer reads too slowly: its link is down")]
    Slow,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Why {
    /// The peer sent a goodbye.
    Left,
    /// The connection broke, or the peer's process died.
    Lost,
    /// The peer did not answer several probes: it is frozen, overloaded or unreachable. A suspicion, not a fact.
    Silent,
    /// The peer reads more slowly than this one sends.
    Slow,
    Malformed,
    /// The application rejected the peer's messages.
    HungUp,
    /// The application no longer needs the link.
    Unneeded,
    /// A newer connection: the peer restarted, or noticed the loss first.
    Replaced,
    /// The cluster secret was replaced, and the link must be proved again.
    Secret,
}

impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Left => "it left",
            Self::Lost => "the connection broke",
            Self::Silent => "it does not respond",
            Self::Slow => "it reads too slowly",
            Self::Malformed => "it sent a malformed frame",
            Self::HungUp => "it sent invalid messages",
            Self::Unneeded => "neither side needs it",
            Self::Replaced => "a newer connection replaced it",
            Self::Secret => "the cluster secret was replaced, and the link has to be proved again",
        })
    }
}

/// Why a connection did not become a link.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Error)]
pub enum Refusal {
    /// Either side does not know the other's secret.
    #[error("the cluster secrets differ: compare the two secret files")]
    Secret,
    #[error("it did not prove its membership in time")]
    Timeout,
    /// The connection ended during the proof, or a proof is invalid.
    #[error("the connection broke before both sides had proved their membership")]
    Broken,
    /// Another version, or not a peer.
    #[error("it does not speak this version of peerlock")]
    Version,
    /// Of links or unproved connections.
    #[error("its limit of peers is reached")]
    Crowded,
    #[error("another peer has the same number: give one of the two a new identity")]
    Collision,
    /// The identity file was copied, for instance in a machine image.
    #[error(
        "another process has this identity: if it runs on another machine, move the file `identity` of one of the two \
         away and start that one again"
    )]
    Twin,
    #[error("this is our own address")]
    Myself,
    /// Normal.
    #[error("there is a link already")]
    Duplicate,
    #[error("it is shutting down")]
    Leaving,
}

#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum Unreached {
    #[error("no connection: {0}")]
    Connection(String),
    /// Either side may have refused the connection.
    #[error(transparent)]
    Refused(#[from] Refusal),
}
