use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;

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

/// Nothing has changed: try again later.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("too many dials are waiting: try again in a moment")]
pub struct Busy;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum Unsent {
    #[error("the link to the peer is down")]
    Down,
    #[error("the message is longer than a frame")]
    TooLong,
    #[error("the peer reads too slowly: its link is down")]
    Slow,
}

/// Why a link went down.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Error)]
pub enum Why {
    #[error("it left")]
    Left,
    #[error("the connection broke")]
    Lost,
    /// A suspicion, not a fact: the peer is frozen, overloaded or unreachable.
    #[error("it does not respond")]
    Silent,
    #[error("it reads too slowly")]
    Slow,
    #[error("it sent a malformed frame")]
    Malformed,
    #[error("it sent invalid messages")]
    HungUp,
    #[error("neither side needs it")]
    Unneeded,
    #[error("a newer connection replaced it")]
    Replaced,
    #[error("the cluster secret was replaced, and the link has to be proved again")]
    Secret,
}

/// Why a connection did not become a link.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Error)]
pub enum Refusal {
    #[error("the cluster secrets differ: compare the two secret files")]
    Secret,
    #[error("it did not prove its membership in time")]
    Timeout,
    #[error("the connection broke before both sides had proved their membership")]
    Broken,
    #[error("it does not speak this version of peerlock")]
    Version,
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
    #[error(transparent)]
    Refused(#[from] Refusal),
}
