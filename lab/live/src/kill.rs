//! Kills of processes.

use std::fmt;
use std::str::FromStr;

use peerlock_types::{PeerId, Span};
use thiserror::Error;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    Peer(PeerId),
    Holder,
    Waiter,
    /// The peer that has received the most messages, preferably one that neither holds nor waits.
    Busiest,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Kill {
    pub target: Target,
    pub after: Span,
    pub down: Option<Span>,
}

#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error(
    "invalid kill {0:?}: use TARGET@TIME, or TARGET@TIME+DOWN to restart it, where TARGET is a peer's number, holder, \
     waiter or busiest: 3@100s, holder@100s+20s"
)]
pub struct KillError(String);

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Peer(peer) => write!(f, "{peer}"),
            Self::Holder => f.write_str("holder"),
            Self::Waiter => f.write_str("waiter"),
            Self::Busiest => f.write_str("busiest"),
        }
    }
}

impl fmt::Display for Kill {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}@{:#}", self.target, self.after)?;
        self.down.map_or(Ok(()), |down| write!(f, "+{down:#}"))
    }
}

impl FromStr for Kill {
    type Err = KillError;

    fn from_str(text: &str) -> Result<Self, KillError> {
        let read = || {
            let (target, times) = text.split_once('@')?;
            let target = match target {
                "holder" => Target::Holder,
                "waiter" => Target::Waiter,
                "busiest" => Target::Busiest,
                number => Target::Peer(PeerId::new(number.parse().ok()?)),
            };
            let (after, down) = match times.split_once('+') {
                Some((after, down)) => (after, Some(down.parse().ok()?)),
                None => (times, None),
            };
            Some(Self { target, after: after.parse().ok()?, down })
        };
        read().ok_or_else(|| KillError(text.into()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kill_round_trips_and_errors_show_the_syntax() {
        for text in ["3@100s", "holder@20s+5s", "waiter@1500ms", "busiest@0s"] {
            assert_eq!(text.parse::<Kill>().map(|kill| kill.to_string()), Ok(text.into()));
        }
        for text in ["", "3", "@3s", "owner@3s", "-1@3s", "3@soon", "3@3s+", "3@3s+x"] {
            let error = text.parse::<Kill>().unwrap_err().to_string();
            assert!(error.starts_with(&format!("invalid kill {text:?}: use TARGET@TIME")), "{error}");
        }
    }
}
