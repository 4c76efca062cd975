//! What a shell and `man` want to know of this program, made from the command line itself.

use std::fs;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use clap::{Args, CommandFactory as _};
use clap_complete::Shell;
use clap_mangen::Man as Page;

use crate::{Cli, Error, Result};

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
    folder: PathBuf,
}

pub fn completions(Completions { shell }: &Completions) -> Result<()> {
    let mut text = Vec::new();
    clap_complete::generate(*shell, &mut Cli::command(), "peerlock", &mut text);
    io::stdout().write_all(&text).map_err(Error::Output)
}

pub fn man(Man { folder }: &Man) -> Result<()> {
    let mut cli = Cli::command().disable_help_subcommand(true);
    cli.build();
    fs::create_dir_all(folder).map_err(|error| unwritable(folder, &error))?;
    write(folder, "peerlock", &cli)
}

/// The page of a command, and those of the commands below it, which it names.
fn write(folder: &Path, name: &str, command: &clap::Command) -> Result<()> {
    for command in command.get_subcommands().filter(|command| !command.is_hide_set()) {
        write(folder, &format!("{name}-{}", command.get_name()), command)?;
    }
    let mut text = Vec::new();
    Page::new(command.clone().display_name(name)).title(name).render(&mut text).map_err(Error::Output)?;
    let path = folder.join(format!("{name}.1"));
    fs::write(&path, text).map_err(|error| unwritable(&path, &error))
}

fn unwritable(path: &Path, error: &io::Error) -> Error {
    Error::Output(io::Error::new(error.kind(), format!("{}: {error}", path.display())))
}
