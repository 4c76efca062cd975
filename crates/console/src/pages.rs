//! Completions and manual pages, made from the command line itself.

use std::fs;
use std::io;
use std::path::Path;

use clap::Command;
use clap_complete::Shell;
use clap_mangen::Man;

/// Returns the script by which a shell completes the commands and options of a program.
pub fn completions(shell: Shell, mut command: Command) -> Vec<u8> {
    let (name, mut text) = (command.get_name().to_owned(), Vec::new());
    clap_complete::generate(shell, &mut command, name, &mut text);
    text
}

/// Writes the manual pages of a program into a directory, one for each command; creates the directory if needed.
///
/// # Errors
/// If a page cannot be written; the message names its path.
pub fn man(directory: &Path, command: Command) -> io::Result<()> {
    let mut command = command.disable_help_subcommand(true);
    command.build();
    fs::create_dir_all(directory).map_err(|error| at(directory, &error))?;
    page(directory, command.get_name(), &command)
}

/// Writes the page of a command, and those of the commands below it, which it names.
fn page(directory: &Path, name: &str, command: &Command) -> io::Result<()> {
    for command in command.get_subcommands().filter(|command| !command.is_hide_set()) {
        page(directory, &format!("{name}-{}", command.get_name()), command)?;
    }
    let mut text = Vec::new();
    Man::new(command.clone().display_name(name)).title(name).render(&mut text)?;
    let path = directory.join(format!("{name}.1"));
    fs::write(&path, text).map_err(|error| at(&path, &error))
}

fn at(path: &Path, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{}: {error}", path.display()))
}
