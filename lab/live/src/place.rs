//! Other machines that run processes of a run.

use std::net::IpAddr;
use std::process::Command;
use std::str::FromStr;

use thiserror::Error;

/// A machine: the address by which the others reach it, and the command that runs this program there, such as `ssh
/// 10.0.0.7 peerlock`. Its standard input and output carry the orders and the records of a process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// The address at which its processes listen.
    pub address: IpAddr,
    /// A shell command.
    pub command: String,
}

impl Place {
    /// Starts a process of a run.
    pub(crate) fn child(&self) -> Command {
        let mut shell = Command::new("/bin/sh");
        // `exec` replaces the shell, so that the pipes connect directly to the process.
        shell.arg("-c").arg(format!("exec {} live-child", self.command));
        shell
    }
}

/// The text is not ADDRESS=COMMAND.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error(
    "no place {0:?}: use ADDRESS=COMMAND, the address by which the others reach it and the command that runs peerlock \
     there: 10.0.0.7='ssh 10.0.0.7 peerlock'"
)]
pub struct PlaceError(String);

impl FromStr for Place {
    type Err = PlaceError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let place = text.split_once('=').and_then(|(address, command)| {
            let (address, command) = (address.trim().parse::<IpAddr>().ok()?, command.trim().to_string());
            // An unspecified address cannot be reached.
            (!address.is_unspecified() && !command.is_empty()).then_some(Self { address, command })
        });
        place.ok_or_else(|| PlaceError(text.into()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn place_is_an_address_and_a_command() {
        let place: Place = "10.0.0.7=ssh -p 2222 ten peerlock".parse().expect("a place");
        assert_eq!((place.address, place.command.as_str()), ([10, 0, 0, 7].into(), "ssh -p 2222 ten peerlock"));
        assert!("::1=peerlock".parse::<Place>().is_ok());
        for wrong in ["10.0.0.7", "ten=ssh ten peerlock", "10.0.0.7=", "0.0.0.0=peerlock", ""] {
            assert!(wrong.parse::<Place>().is_err(), "{wrong}");
        }
    }
}
