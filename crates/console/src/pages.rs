//! Completions and manual pages, generated from the command line definition.

use std::fs;
use std::io;
use std::path::Path;

use clap::Command;
use clap_complete::Shell;
use clap_mangen::Man;

/// Returns the completion script of a program.
pub fn completions(shell: Shell, mut command: Command) -> Vec<u8> {
    let (name, mut text) = (command.get_name().to_owned(), Vec::new());
    clap_complete::generate(shell, &mut command, name, &mut text);
    text
}

/// Writes the manual pages of a program, one for each command. Creates the directory if necessary.
///
/// # Errors
/// If a page cannot be written. The message contains its path.
pub fn man(directory: &Path, command: Command) -> io::Result<()> {
    let mut command = command.disable_help_subcommand(true);
    command.build();
    fs::create_dir_all(directory).map_err(|error| at(directory, &error))?;
    page(directory, command.get_name(), &command)
}

/// Writes the page of a command and those of its subcommands.
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
