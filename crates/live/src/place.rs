//! Where processes of a run live, if not just here: on machines that are told to take part.

use std::net::IpAddr;
use std::process::Command;
use std::str::FromStr;

use thiserror::Error;

/// A machine that takes part: the address by which the others reach it, and the command that runs this program there,
/// such as `ssh 10.0.0.7 peerlock`. What that reads and writes are the orders and the records of a process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// Where its processes are heard.
    pub address: IpAddr,
    /// As a shell takes it.
    pub command: String,
}

impl Place {
    /// Starts a process of a run.
    pub(crate) fn child(&self) -> Command {
        let mut shell = Command::new("/bin/sh");
        // The shell becomes the command: nothing stands between the process and its pipes.
        shell.arg("-c").arg(format!("exec {} live-child", self.command));
        shell
    }
}

/// A place is written as ADDRESS=COMMAND.
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
            // Nobody can be reached at "any address".
            (!address.is_unspecified() && !command.is_empty()).then_some(Self { address, command })
        });
        place.ok_or_else(|| PlaceError(text.into()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_an_address_and_a_command() {
        let place: Place = "10.0.0.7=ssh -p 2222 ten peerlock".parse().expect("it is one");
        assert_eq!((place.address, place.command.as_str()), ([10, 0, 0, 7].into(), "ssh -p 2222 ten peerlock"));
        assert!("::1=peerlock".parse::<Place>().is_ok());
        for wrong in ["10.0.0.7", "ten=ssh ten peerlock", "10.0.0.7=", "0.0.0.0=peerlock", ""] {
            assert!(wrong.parse::<Place>().is_err(), "{wrong}");
        }
    }
}
