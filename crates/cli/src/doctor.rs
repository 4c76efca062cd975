//! `peerlock doctor`: the health of this machine's agent, with advice.

mod evidence;
mod judge;

use std::fmt::Write as _;
use std::io::{ErrorKind, IsTerminal as _, stdout};
use std::process::ExitCode;

use clap::Args;
use serde::Serialize;
use serde_json::json;

use crate::client::print;
use crate::query::QueryArgs;
use crate::{Error, Result};
use evidence::collect;
use judge::judge;

/// Check the agent of this machine, its cluster, disk and clock
///
/// Starts no agent and changes nothing.
#[derive(Args)]
#[command(after_help = "\
Prints a line for each finding: ok, warn or bad, the subject, its state, and advice.

Exit codes: 0 if nothing is bad, 1 if something is bad or no agent is running

Example:
  peerlock doctor --json | jq -r '.findings[] | select(.level != \"ok\") | .what'")]
pub struct Options {
    #[command(flatten)]
    query: QueryArgs,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
enum Level {
    Ok,
    Warn,
    Bad,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
struct Finding {
    level: Level,
    /// The subject in one word.
    about: &'static str,
    /// The state: a sentence without a full stop.
    what: String,
    /// The advice, if any: complete sentences.
    #[serde(rename = "do", skip_serializing_if = "Option::is_none")]
    todo: Option<String>,
}

pub async fn run(options: &Options) -> Result<ExitCode> {
    let findings = judge(&collect(&options.query.agent).await?);
    let worst = findings.iter().map(|finding| finding.level).max().unwrap_or(Level::Ok);
    let text = match options.query.json {
        true => json!({ "level": worst, "findings": findings }).to_string() + "\n",
        false => lines(&findings, in_colour()),
    };
    match print(&text) {
        // The exit code must not depend on the reader of the pipe.
        Err(Error::Output(error)) if error.kind() == ErrorKind::BrokenPipe => {}
        printed => printed?,
    }
    Ok(ExitCode::from(u8::from(worst == Level::Bad)))
}

/// Returns whether to use colours: on a terminal, unless disabled (no-color.org).
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
        // Names, labels and system errors contain no control characters.
        let _ = writeln!(out, "{word}  {about:9}  {what}{todo}");
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn findings_are_lines_with_columns_and_optional_colours() {
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
