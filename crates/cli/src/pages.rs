//! What a shell and `man` want to know of this program, made from the command line itself.

use std::io::{self, Write as _};
use std::path::PathBuf;

use clap::{Args, CommandFactory as _};
use clap_complete::Shell;

use crate::{Cli, Result};

/// Print what a shell needs to complete commands and options
#[derive(Args)]
#[command(after_help = "\
Examples:
  peerlock completions bash > /etc/bash_completion.d/peerlock
  peerlock completions zsh > ~/.zfunc/_peerlock
  peerlock completions fish > ~/.config/fish/completions/peerlock.fish")]
pub struct Completions {
    /// The shell that is to complete
    shell: Shell,
}

/// Write the manual pages, one for each command
#[derive(Args)]
#[command(after_help = "\
Examples:
  peerlock man /usr/local/share/man/man1
  man peerlock-run")]
pub struct Man {
    /// The folder to write them into; it is made if it is not there
    dir: PathBuf,
}

pub fn completions(Completions { shell }: &Completions) -> Result<()> {
    Ok(io::stdout().write_all(&peerlock_console::completions(*shell, Cli::command()))?)
}

pub fn man(Man { dir }: &Man) -> Result<()> {
    Ok(peerlock_console::man(dir, Cli::command())?)
}
