//! Completions and manual pages, generated from the command line definition.
//!
//! The text after the help of a command has blocks, each with a title and indented lines, such as `Examples:` or
//! `Exit codes:`. They become the sections that readers of manual pages look for. The blocks of the program itself are
//! on the page of every command.

use std::fmt::Write as _;
use std::fs;
use std::io;
use std::path::Path;

use clap::{Arg, ArgAction, Command};
use clap_complete::Shell;
use clap_mangen::Man;

/// Returns the completion script of a program.
pub fn completions(shell: Shell, mut command: Command) -> Vec<u8> {
    let (name, mut text) = (command.get_name().to_owned(), Vec::new());
    clap_complete::generate(shell, &mut command, name, &mut text);
    text
}

/// Writes the manual pages of a program, one for each command, with the date of its source. Creates the directory if
/// necessary.
///
/// # Errors
/// If a page cannot be written. The message contains its path.
pub fn man(directory: &Path, command: Command, date: &str) -> io::Result<()> {
    let mut command = command.disable_help_subcommand(true);
    command.build();
    fs::create_dir_all(directory).map_err(|error| at(directory, &error))?;
    let program = command.get_name();
    let pages = Pages { directory, program: &command, date };
    pages.write(program, None, &command)
}

struct Pages<'a> {
    directory: &'a Path,
    program: &'a Command,
    date: &'a str,
}

impl Pages<'_> {
    /// Writes the page of a command and those of its subcommands.
    fn write(&self, name: &str, parent: Option<(&str, &Command)>, command: &Command) -> io::Result<()> {
        for below in visible(command) {
            self.write(&page_of(name, below), Some((name, command)), below)?;
        }
        let program = self.program.get_name();
        // Without the commit, which would hide the date.
        let version = self.program.get_version().and_then(|version| version.split(' ').next()).unwrap_or_default();
        let title = command.clone().display_name(name);
        let man = Man::new(title)
            .title(name)
            .date(self.date)
            .source(format!("{program} {version}"))
            .manual(format!("{program} manual"));
        let mut text = Vec::new();
        man.render_title(&mut text)?;
        man.render_name_section(&mut text)?;
        text.extend(synopsis(name, command).into_bytes());
        man.render_description_section(&mut text)?;
        if command.get_arguments().any(|arg| !arg.is_hide_set()) {
            man.render_options_section(&mut text)?;
        }
        if visible(command).next().is_some() {
            man.render_subcommands_section(&mut text)?;
        }
        text.extend(self.sections(command).into_bytes());
        text.extend(see_also(name, parent, command).into_bytes());
        let path = self.directory.join(format!("{name}.1"));
        fs::write(&path, text).map_err(|error| at(&path, &error))
    }

    /// Formats the blocks of the command. Those of the program supply the sections that it lacks, and more variables.
    fn sections(&self, command: &Command) -> String {
        let (own, common) = (after_help(command), after_help(self.program));
        let is_program = command.get_name() == self.program.get_name();
        let mut out = String::new();
        for section in ["NOTES", "ENVIRONMENT", "FILES", "EXIT STATUS", "EXAMPLES"] {
            let of = |text: &str| text.split("\n\n").filter(|block| section_of(block) == section).map(body).collect();
            let (mut text, common): (String, String) = (of(&own), of(&common));
            if !is_program && (text.is_empty() || section == "ENVIRONMENT") {
                text += &common;
            }
            if !text.is_empty() {
                let _ = write!(out, ".SH {section:?}\n{text}");
            }
        }
        out
    }
}

fn visible(command: &Command) -> impl Iterator<Item = &Command> {
    command.get_subcommands().filter(|command| !command.is_hide_set())
}

fn page_of(parent: &str, command: &Command) -> String {
    format!("{parent}-{}", command.get_name())
}

fn after_help(command: &Command) -> String {
    command.get_after_long_help().or_else(|| command.get_after_help()).map(ToString::to_string).unwrap_or_default()
}

fn section_of(block: &str) -> &'static str {
    let title = block.lines().next().unwrap_or_default();
    match title {
        "" => "",
        _ if title.starts_with("Example") => "EXAMPLES",
        _ if title.starts_with("Exit code") => "EXIT STATUS",
        _ if title.starts_with("Files") => "FILES",
        _ if title.to_lowercase().contains("environment") => "ENVIRONMENT",
        _ => "NOTES",
    }
}

/// Formats a block: its title, unless it only repeats that of the section, and its lines with their columns.
fn body(block: &str) -> String {
    let (title, lines): (&str, Vec<&str>) = match block.split_once('\n') {
        Some((title, lines)) => (title, lines.lines().collect()),
        None => (block, Vec::new()),
    };
    let title = match title.split_once(':') {
        Some((word, rest)) if section_of(word) != "NOTES" && word.split(' ').count() <= 4 => rest.trim(),
        _ => title,
    };
    let mut out = String::new();
    if !title.is_empty() {
        let _ = writeln!(out, ".PP\n{}", escaped(title));
    }
    if lines.iter().all(|line| line.starts_with("  ")) && !lines.is_empty() {
        let lines = lines.iter().map(|line| escaped(&line[2..])).collect::<Vec<_>>().join("\n");
        let _ = writeln!(out, ".PP\n.nf\n{lines}\n.fi");
    } else {
        lines.iter().for_each(|line| out += &(escaped(line) + "\n"));
    }
    out
}

fn synopsis(name: &str, command: &Command) -> String {
    let command_line = name.replace('-', " ");
    let mut words = vec![format!("\\fB{}\\fR", escaped(&command_line))];
    let shown = || command.get_arguments().filter(|arg| !arg.is_hide_set());
    let is_standard = |arg: &&Arg| ["help", "version"].contains(&arg.get_id().as_str());
    words.extend(shown().filter(|arg| !arg.is_positional() && !is_standard(arg)).map(option));
    words.extend(command.get_positionals().map(positional));
    if visible(command).next().is_some() {
        words.push("\\fICOMMAND\\fR".to_owned());
    }
    format!(".SH SYNOPSIS\n{}\n", words.join("\n"))
}

fn option(arg: &Arg) -> String {
    let long = || arg.get_long().map(|long| format!("--{long}"));
    let name = arg.get_short().map(|short| format!("-{short}")).or_else(long).unwrap_or_default();
    let value = if arg.get_action().takes_values() { format!(" \\fI{}\\fR", value(arg)) } else { String::new() };
    let option = format!("\\fB{}\\fR{value}", escaped(&name));
    match (arg.is_required_set(), matches!(arg.get_action(), ArgAction::Append)) {
        (true, _) => option,
        (false, true) if arg.get_value_delimiter().is_none() => format!("[{option}]..."),
        (false, _) => format!("[{option}]"),
    }
}

fn positional(arg: &Arg) -> String {
    let more = if arg.get_num_args().is_some_and(|count| count.max_values() > 1) { "..." } else { "" };
    let value = format!("\\fI{}\\fR{more}", value(arg));
    match (arg.is_last_set(), arg.is_required_set()) {
        (true, _) => format!("\\fB\\-\\-\\fR {value}"),
        (false, true) => value,
        (false, false) => format!("[{value}]"),
    }
}

fn value(arg: &Arg) -> String {
    let names = arg.get_value_names().unwrap_or_default();
    escaped(&names.iter().map(|name| name.as_str()).collect::<Vec<_>>().join(" "))
}

/// Lists the pages of the program, of the subcommands, and of the commands that the help names.
fn see_also(name: &str, parent: Option<(&str, &Command)>, command: &Command) -> String {
    let mut text = after_help(command);
    let help = command.get_arguments().filter_map(|arg| arg.get_long_help().or_else(|| arg.get_help()));
    for help in help.chain(command.get_long_about()) {
        text += &help.to_string();
    }
    let mut pages: Vec<String> = parent.iter().map(|(parent, _)| (*parent).to_owned()).collect();
    if let Some((parent, above)) = parent {
        let is_named = |other: &&Command| {
            let other = other.get_name();
            text.contains(&format!("`{other}`")) || text.contains(&format!("{} {other}", parent.replace('-', " ")))
        };
        let others = visible(above).filter(|other| other.get_name() != command.get_name());
        pages.extend(others.filter(is_named).map(|other| page_of(parent, other)));
    }
    pages.extend(visible(command).map(|below| page_of(name, below)));
    if pages.is_empty() {
        return String::new();
    }
    let pages: Vec<String> = pages.iter().map(|page| format!("\\fB{}\\fR(1)", escaped(page))).collect();
    format!(".SH \"SEE ALSO\"\n{}\n", pages.join(",\n"))
}

/// Escapes a line of text for troff.
fn escaped(line: &str) -> String {
    let line = line.replace('\\', "\\e").replace('-', "\\-");
    if line.starts_with(['.', '\'']) { format!("\\&{line}") } else { line }
}

fn at(path: &Path, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{}: {error}", path.display()))
}
