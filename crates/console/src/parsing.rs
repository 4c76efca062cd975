//! Errors of the command line, with suggestions; one line each in a log.

use std::io::IsTerminal as _;
use std::process::ExitCode;

use clap::Command;
use clap::error::{ContextKind, ContextValue, ErrorKind};

use crate::{USAGE, near, say};

/// Prints a parse result that is not a command: an error, the help or the version.
///
/// # Errors
/// If the help or the version cannot be written.
pub fn after_parsing(command: Command, mut error: clap::Error, hint: Option<String>) -> std::io::Result<ExitCode> {
    let program = command.get_name().to_owned();
    if let Some(hint) = hint {
        error.insert(ContextKind::Suggested, ContextValue::StyledStrs(vec![hint.into()]));
    } else {
        suggest(command, &mut error);
    }
    // The usage on a terminal, one line in a log, and the help without arguments.
    let is_help = error.kind() == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand;
    if error.use_stderr() && !is_help && !std::io::stderr().is_terminal() {
        say(&program, in_one_line(&error.to_string()));
    } else if let (Err(source), false) = (error.print(), error.use_stderr()) {
        return Err(source);
    }
    Ok(if error.use_stderr() { ExitCode::from(USAGE) } else { ExitCode::SUCCESS })
}

/// Adds a similar command or option to the error. The parser itself compares prefixes only: it finds nothing for `rnu`,
/// prefers two others to `release` for `relase`, and takes an unknown option for one of the command.
fn suggest(mut command: Command, error: &mut clap::Error) {
    for word in std::env::args_os().skip(1) {
        let Some(below) = command.find_subcommand(word) else { break };
        command = below.clone();
    }
    let text = |kind| match error.get(kind) {
        Some(ContextValue::String(text)) => text.clone(),
        _ => String::new(),
    };
    match error.kind() {
        ErrorKind::InvalidSubcommand => {
            let commands = command.get_subcommands().filter(|command| !command.is_hide_set());
            let commands: Vec<&str> = commands.map(Command::get_name).collect();
            let meant = near(&text(ContextKind::InvalidSubcommand), commands.into_iter());
            if let 1..=3 = meant.len() {
                let meant = meant.into_iter().map(ToOwned::to_owned).collect();
                error.insert(ContextKind::SuggestedSubcommand, ContextValue::Strings(meant));
            }
        }
        ErrorKind::UnknownArgument => {
            let word = text(ContextKind::InvalidArg);
            let options = command.get_arguments().filter(|option| !option.is_hide_set());
            let options: Vec<&str> = options.filter_map(clap::Arg::get_long).collect();
            if word.starts_with('-') {
                error.remove(ContextKind::Suggested);
            }
            if let [meant] = near(word.trim_start_matches('-'), options.into_iter())[..] {
                error.insert(ContextKind::SuggestedArg, ContextValue::String(format!("--{meant}")));
            }
        }
        _ => {}
    }
}

/// Returns the error up to the first empty line, followed by the tips.
fn in_one_line(text: &str) -> String {
    let lines = || text.lines().map(str::trim);
    let wrong = lines().take_while(|line| !line.is_empty()).collect::<Vec<_>>().join(" ");
    let tips = lines().filter_map(|line| line.strip_prefix("tip: "));
    let wrong = wrong.strip_prefix("error: ").unwrap_or(&wrong).to_owned();
    tips.fold(wrong, |line, tip| format!("{line}: {tip}"))
}
