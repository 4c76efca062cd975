//! What is asked of an agent, and where it is.

use std::env;
use std::io::{self, ErrorKind, Write as _, stdout};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use peerlock_http::client::{Agent, Error as AgentError};
use peerlock_http::{Endpoint, Granted, Token, Want};
use peerlock_service::{StartError, places};
use serde::Serialize;
use serde_json::json;

use crate::{Error, Result, duration};

/// What is asked for, by whoever asks.
#[derive(Args)]
pub struct Request {
    /// How many may hold a slot at a time; the same for all who share the resource [default: as many as it has, or 1 if
    /// it is new]
    #[arg(short = 'n', long, value_name = "SLOTS")]
    slots: Option<u32>,
    /// How long to wait in line, such as 30s, 5m or 1h30m; 0s is --try [default: as long as it takes]
    #[arg(short, long, value_name = "DURATION", value_parser = duration)]
    wait: Option<Duration>,
    /// Do not wait: only if a slot is free and nobody waits for it
    #[arg(long = "try", conflicts_with = "wait")]
    only_try: bool,
}

impl Request {
    pub fn want(&self, ttl: Duration, label: String) -> Want {
        let is_try = self.only_try || self.wait.is_some_and(|wait| wait.is_zero());
        Want {
            slots: self.slots,
            wait_ms: self.wait.filter(|_| !is_try).map(ms),
            try_only: is_try,
            ttl_ms: Some(ms(ttl)),
            label: Some(label),
            ..Want::default()
        }
    }
}

/// Whole milliseconds.
pub fn ms(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// Where the agent is.
#[derive(Args)]
#[command(next_help_heading = "With an agent")]
pub struct Where {
    /// Where the agent is: the path of its socket, or HOST:PORT [default: $PEERLOCK_AGENT, else
    /// $XDG_RUNTIME_DIR/peerlock/agent.sock; /run/peerlock/agent.sock for root]
    #[arg(long, value_name = "ADDR")]
    agent: Option<Endpoint>,
    /// The bearer token of an agent that wants one
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,
}

impl Where {
    /// Whether an agent was named on the command line.
    pub fn is_named(&self) -> bool {
        self.agent.is_some()
    }

    /// The agent, which must be there.
    pub fn agent(&self) -> Result<Agent> {
        let endpoint = match self.named()? {
            Some(endpoint) => endpoint,
            None => Endpoint::Unix(socket()?),
        };
        self.at(endpoint)
    }

    /// The agent of this machine, if there is one or one was named. A socket that nobody answers at is an agent that has
    /// died: going on without it would be a cluster apart from the one it was in.
    pub fn find(&self) -> Result<Option<Agent>> {
        if let Some(endpoint) = self.named()? {
            return self.at(endpoint).map(Some);
        }
        // Who has no place for a socket has no agent.
        let Ok(path) = socket() else { return Ok(None) };
        match UnixStream::connect(&path) {
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(source) => Err(AgentError::NoAgent { endpoint: Endpoint::Unix(path), source }.into()),
            Ok(_) => self.at(Endpoint::Unix(path)).map(Some),
        }
    }

    fn at(&self, endpoint: Endpoint) -> Result<Agent> {
        Ok(Agent::new(endpoint, self.token_file.as_deref().map(token).transpose()?))
    }

    fn named(&self) -> Result<Option<Endpoint>> {
        if let Some(endpoint) = &self.agent {
            return Ok(Some(endpoint.clone()));
        }
        let Some(text) = env::var_os("PEERLOCK_AGENT").filter(|text| !text.is_empty()) else { return Ok(None) };
        let bad = |error| Error::Usage(format!("PEERLOCK_AGENT: {error}"));
        text.to_string_lossy().parse().map(Some).map_err(bad)
    }
}

/// Where an agent listens unless it was told otherwise.
pub fn socket() -> Result<PathBuf> {
    Ok(places::agent_socket().map_err(StartError::from)?)
}

/// The token in a file.
pub fn token(path: &Path) -> Result<Token> {
    let unusable = |source| Error::File { path: path.to_owned(), source };
    let text = std::fs::read_to_string(path).map_err(unusable)?;
    Token::new(&text).map_err(|error| unusable(io::Error::new(ErrorKind::InvalidData, error)))
}

/// Acquire a slot that outlives this command, for scripts and systemd
///
/// Prints what `eval` makes variables of. The slot is held until it is released or its lease ends, whatever becomes of
/// whoever has acquired it.
#[derive(Args)]
#[command(after_help = "\
Example:
  grant=$(peerlock acquire --ttl 10m backup) || exit
  eval \"$grant\"
  rsync -a /home backup: && peerlock renew backup && rsync -a /srv backup:
  peerlock release backup

Exit codes: 75 not acquired in time, 69 no agent or nothing moves, 64 wrong options")]
pub struct Acquire {
    /// The resource
    name: String,
    #[command(flatten)]
    request: Request,
    /// How long the slot stands without being renewed with `peerlock renew`
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    ttl: Duration,
    /// What others see of who holds it [default: the user and host]
    #[arg(long)]
    label: Option<String>,
    /// One JSON object instead
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    agent: Where,
}

/// Renew the lease of a slot that was acquired
#[derive(Args)]
pub struct Renew {
    #[command(flatten)]
    held: Held,
}

/// Give a slot back that was acquired
#[derive(Args)]
pub struct Release {
    #[command(flatten)]
    held: Held,
}

/// A slot that was acquired before.
#[derive(Args)]
struct Held {
    /// The resource
    name: String,
    /// Which grant, as `acquire` has printed it [default: $PEERLOCK_GRANT]
    #[arg(long)]
    grant: Option<String>,
    /// One JSON object on standard output
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    agent: Where,
}

impl Held {
    fn grant(&self) -> Result<String> {
        let of_the_shell = || env::var("PEERLOCK_GRANT").ok().filter(|grant| !grant.is_empty());
        let missing = || Error::Usage("which grant? Give --grant, or set PEERLOCK_GRANT as `acquire` prints it".into());
        self.grant.clone().or_else(of_the_shell).ok_or_else(missing)
    }

    fn done(&self, answer: &impl Serialize) -> Result<ExitCode> {
        if self.json {
            print(&(json!(answer).to_string() + "\n"))?;
        }
        Ok(ExitCode::SUCCESS)
    }
}

pub async fn acquire(options: &Acquire) -> Result<ExitCode> {
    let label = options.label.clone().unwrap_or_else(|| crate::run::label(&[]));
    let want = options.request.want(options.ttl, label);
    let granted = options.agent.agent()?.acquire(&options.name, &want).await?;
    let text = if options.json { json!(granted).to_string() + "\n" } else { variables(&granted) };
    print(&text)?;
    Ok(ExitCode::SUCCESS)
}

pub async fn renew(options: &Renew) -> Result<ExitCode> {
    let held = &options.held;
    let stands = held.agent.agent()?.renew(&held.name, &held.grant()?).await?;
    held.done(&json!({ "ttl_ms": ms(stands) }))
}

pub async fn release(options: &Release) -> Result<ExitCode> {
    let held = &options.held;
    held.agent.agent()?.release(&held.name, &held.grant()?).await?;
    held.done(&json!({}))
}

/// For `eval`: all values are numbers but the name, which is quoted.
fn variables(granted: &Granted) -> String {
    let Granted { grant, name, slot, fencing, .. } = granted;
    let name = name.replace('\'', r"'\''");
    format!(
        "export PEERLOCK_GRANT='{grant}'\nexport PEERLOCK_NAME='{name}'\nexport PEERLOCK_TOKEN={fencing}\n\
         export PEERLOCK_SLOT={slot}\n"
    )
}

/// Prints a result in one piece.
pub fn print(text: &str) -> Result<()> {
    let mut out = stdout().lock();
    out.write_all(text.as_bytes())?;
    Ok(out.flush()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_eval_gets_is_what_was_meant() {
        let name = "it's $HOME `x` \"y\"".to_owned();
        let granted = Granted { grant: "7".into(), name, slot: 1, fencing: 4, ttl_ms: 1, waited_ms: 0 };
        let lines = variables(&granted);
        assert!(lines.contains(r#"export PEERLOCK_NAME='it'\''s $HOME `x` "y"'"#), "{lines}");
        assert!(lines.contains("export PEERLOCK_TOKEN=4\n"), "{lines}");
    }
}
