//! `peerlock doctor`: everything about this machine's agent on one page, and what to do about it.

mod judge;
mod look;

use std::fmt::Write as _;
use std::io::{ErrorKind, IsTerminal as _, stdout};
use std::process::ExitCode;

use clap::Args;
use serde::Serialize;
use serde_json::json;

use crate::client::{AgentArgs, print};
use crate::{Error, Result};
use judge::judge;
use look::look;

/// Look whether the agent of this machine, its cluster, disk and clock are well, and say what to do
///
/// Starts no agent and changes nothing.
#[derive(Args)]
#[command(after_help = "\
One line for each finding: ok, warn or bad, what it is about, and what to do.
Exit codes: 0 if nothing is bad, 1 if something is; without an agent something is.

Example:
  peerlock doctor --json | jq -r '.findings[] | select(.level != \"ok\") | .what'")]
pub struct Options {
    /// JSON instead of lines
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    agent: AgentArgs,
}

/// How bad it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
enum Level {
    Ok,
    Warn,
    Bad,
}

/// One thing that was looked at.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
struct Finding {
    level: Level,
    /// What it is about, in a word.
    about: &'static str,
    /// How it is: a sentence, without its stop.
    what: String,
    /// What to do about it, if anything: sentences, with their stops.
    #[serde(rename = "do", skip_serializing_if = "Option::is_none")]
    todo: Option<String>,
}

pub async fn run(options: &Options) -> Result<ExitCode> {
    let findings = judge(&look(&options.agent).await?);
    let worst = findings.iter().map(|finding| finding.level).max().unwrap_or(Level::Ok);
    let text = match options.json {
        true => json!({ "level": worst, "findings": findings }).to_string() + "\n",
        false => lines(&findings, in_colour()),
    };
    match print(&text) {
        // Who has read enough wants to know the end all the same.
        Err(Error::Output(error)) if error.kind() == ErrorKind::BrokenPipe => {}
        printed => printed?,
    }
    Ok(ExitCode::from(u8::from(worst == Level::Bad)))
}

/// Colours are for people, and only for those who want them (no-color.org).
fn in_colour() -> bool {
    let is_set = |name| std::env::var_os(name).is_some_and(|value| !value.is_empty());
    stdout().is_terminal() && !is_set("NO_COLOR") && std::env::var_os("TERM").is_none_or(|term| term != "dumb")
}

fn lines(findings: &[Finding], in_colour: bool) -> String {
    let mut out = String::new();
    for Finding { level, about, what, todo } in findings {
        let (word, colour) = match level {
            Level::Ok => ("ok", 32),
            Level::Warn => ("warn", 33),
            Level::Bad => ("bad", 31),
        };
        let word = if in_colour { format!("\x1b[{colour}m{word:4}\x1b[0m") } else { format!("{word:4}") };
        let todo = todo.as_ref().map_or_else(String::new, |todo| format!(". {todo}"));
        // Names and labels are without control characters, and errors of the system are one line: so is this.
        let _ = writeln!(out, "{word}  {about:9}  {what}{todo}");
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_line_each_in_columns_and_coloured_for_people_only() {
        let finding = |level, about, todo: Option<&str>| {
            let (what, todo) = ("it is so".to_owned(), todo.map(str::to_owned));
            Finding { level, about, what, todo }
        };
        let all = [finding(Level::Ok, "agent", None), finding(Level::Bad, "resources", Some("Do it."))];
        assert_eq!(lines(&all, false), "ok    agent      it is so\nbad   resources  it is so. Do it.\n");
        let coloured = lines(&all, true);
        assert!(coloured.starts_with("\x1b[32mok  \x1b[0m  agent      it is so\n\x1b[31mbad "), "{coloured:?}");
    }
}
