//! Other machines that run processes.

use std::net::IpAddr;
use std::process::Command;
use std::str::FromStr;

use thiserror::Error;

/// A machine, with the command that runs this program there. Its standard input and output carry orders and records.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Machine {
    pub address: IpAddr,
    pub command: String,
}

impl Machine {
    pub(crate) fn child(&self) -> Command {
        let mut shell = Command::new("/bin/sh");
        // `exec` replaces the shell, so that the pipes connect directly to the process.
        shell.arg("-c").arg(format!("exec {} live-child", self.command));
        shell
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error(
    "invalid machine {0:?}: use ADDRESS=COMMAND, its address and the command that runs peerlock-lab there: \
     10.0.0.7='ssh 10.0.0.7 peerlock-lab'"
)]
pub struct MachineError(String);

impl FromStr for Machine {
    type Err = MachineError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let machine = text.split_once('=').and_then(|(address, command)| {
            let (address, command) = (address.trim().parse::<IpAddr>().ok()?, command.trim().to_string());
            (!address.is_unspecified() && !command.is_empty()).then_some(Self { address, command })
        });
        machine.ok_or_else(|| MachineError(text.into()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn machine_is_an_address_and_a_command() {
        let machine: Machine = "10.0.0.7=ssh -p 2222 ten peerlock".parse().expect("a machine");
        assert_eq!((machine.address, machine.command.as_str()), ([10, 0, 0, 7].into(), "ssh -p 2222 ten peerlock"));
        assert!("::1=peerlock".parse::<Machine>().is_ok());
        for wrong in ["10.0.0.7", "ten=ssh ten peerlock", "10.0.0.7=", "0.0.0.0=peerlock", ""] {
            assert!(wrong.parse::<Machine>().is_err(), "{wrong}");
        }
    }
}
