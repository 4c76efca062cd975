//! `peerlock completions` and `man`, generated from the command line definition.

use std::io::{self, Write as _};
use std::path::PathBuf;

use clap::{Args, CommandFactory as _};
use clap_complete::Shell;

use crate::{Cli, Result};

/// Print a shell completion script
#[derive(Args)]
#[command(after_help = "\
Examples:
  peerlock completions bash > /etc/bash_completion.d/peerlock
  peerlock completions zsh > ~/.zfunc/_peerlock
  peerlock completions fish > ~/.config/fish/completions/peerlock.fish")]
pub struct Completions {
    /// The shell
    shell: Shell,
}

/// Write manual pages, one for each command
#[derive(Args)]
#[command(after_help = "\
Examples:
  peerlock man /usr/local/share/man/man1
  man peerlock-run")]
pub struct Man {
    /// Target directory; created if it does not exist
    dir: PathBuf,
}

pub fn completions(Completions { shell }: &Completions) -> Result<()> {
    Ok(io::stdout().write_all(&peerlock_console::completions(*shell, Cli::command()))?)
}

pub fn man(Man { dir }: &Man) -> Result<()> {
    Ok(peerlock_console::man(dir, Cli::command(), env!("PEERLOCK_DATE"))?)
}
