//! What is asked of an agent, and where it is.

use std::env;
use std::io::{self, ErrorKind, Write as _, stdout};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use peerlock::{Agent, Client, Endpoint, Granted, Request, StartError, Token, places};
use peerlock_http::{Released, Renewed};
use peerlock_net::private;
use serde::Serialize;
use serde_json::json;

use crate::error::exit;
use crate::look::holders;
use crate::say::say;
use crate::{Error, Result, admin, duration, start};

/// What is missing if nobody says which grant is meant.
const WHICH: &str = "which grant? Give --grant, or set PEERLOCK_GRANT as `acquire` prints it";

/// What is asked for, by whoever asks.
#[derive(Args)]
pub struct RequestArgs {
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

impl RequestArgs {
    /// Whether somebody else's slot would be waited for.
    pub fn waits(&self) -> bool {
        !self.only_try && self.wait != Some(Duration::ZERO)
    }

    /// How much of the wait is left, after so long of it has passed; `None` if it has no end.
    pub fn left(&self, waited: Duration) -> Option<Duration> {
        let wait = if self.only_try { Some(Duration::ZERO) } else { self.wait };
        wait.map(|wait| wait.saturating_sub(waited))
    }

    /// The request that they make, after so long of the wait has passed.
    pub fn of(&self, name: &str, ttl: Duration, label: String, waited: Duration) -> Request {
        let request = Request::new(name).ttl(ttl).label(label);
        let request = self.slots.into_iter().fold(request, Request::slots);
        match self.wait {
            Some(wait) if !wait.is_zero() => request.wait(wait.saturating_sub(waited)),
            Some(_) => request.try_only(),
            None if self.only_try => request.try_only(),
            None => request,
        }
    }
}

/// Where the agent is.
#[derive(Args)]
#[command(next_help_heading = "With an agent")]
pub struct AgentArgs {
    /// Where the agent is: the path of its socket, or HOST:PORT [default: $PEERLOCK_AGENT, else that of this machine,
    /// which is started if there is none]
    #[arg(long, value_name = "ADDR")]
    agent: Option<Endpoint>,
    /// The file with the bearer token of an agent at HOST:PORT, mode 600 [default: the token in $PEERLOCK_API_TOKEN, or
    /// the file $PEERLOCK_API_TOKEN_FILE]
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,
}

impl AgentArgs {
    /// Whether an agent was named on the command line.
    pub fn is_given(&self) -> bool {
        self.agent.is_some()
    }

    /// Whether an agent was named, on the command line or in the environment. It is somebody else's to start.
    pub fn is_named(&self) -> bool {
        self.named().is_ok_and(|named| named.is_some())
    }

    /// The agent that was named, or that of this machine, which is started if there is none.
    pub async fn agent(&self) -> Result<Client> {
        match self.named()? {
            Some(endpoint) => self.at(endpoint),
            None => self.at(start::agent().await?),
        }
    }

    /// The same, if there is one.
    pub fn present(&self) -> Result<Option<Client>> {
        let endpoint = self.named()?.map_or_else(start::present, |endpoint| Ok(Some(endpoint)))?;
        endpoint.map(|endpoint| self.at(endpoint)).transpose()
    }

    fn at(&self, endpoint: Endpoint) -> Result<Client> {
        let token = self.token(&endpoint)?;
        Ok(Agent::at(endpoint, token).client())
    }

    /// The bearer token for an agent: from the file that was named, else from the environment.
    pub fn token(&self, endpoint: &Endpoint) -> Result<Option<Token>> {
        match (&self.token_file, endpoint) {
            (Some(file), _) => token(file).map(Some),
            (None, Endpoint::Tcp(_)) => Ok(Agent::token()?),
            (None, _) => Ok(None),
        }
    }

    /// Where the agent is, if somebody has said so.
    pub fn named(&self) -> Result<Option<Endpoint>> {
        match &self.agent {
            Some(endpoint) => Ok(Some(endpoint.clone())),
            None => Ok(Agent::named()?),
        }
    }
}

/// Where an agent listens unless it was told otherwise.
pub fn socket() -> Result<PathBuf> {
    Ok(places::agent_socket().map_err(StartError::from)?)
}

/// The bearer token in a file that only its owner can use.
pub fn token(path: &Path) -> Result<Token> {
    let unusable = |source| Error::File { path: path.to_owned(), source };
    let mode = private::mode(&std::fs::metadata(path).map_err(unusable)?);
    if mode & 0o077 != 0 {
        return Err(Error::OpenToken { path: path.to_owned(), mode });
    }
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
    request: RequestArgs,
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
    agent: AgentArgs,
}

/// Renew the lease of a slot that was acquired
#[derive(Args)]
pub struct Renew {
    #[command(flatten)]
    held: Held,
}

/// Give a slot back that was acquired, or get back one that somebody else holds
///
/// Of one's own the grant has to be at hand: --grant, or $PEERLOCK_GRANT as `acquire` prints it. Without it and without
/// --slot nothing is taken from anybody: the command says who holds what, and ends with 64.
#[derive(Args)]
#[command(after_help = "\
With --slot the holder is asked to stop, on whatever machine it is: `run` ends its command as for any lost slot, and
applications hear that their slot is lost. The command returns when the holder has stopped, or its lease has ended. A
slot of `acquire` has no process that could be asked: it is free at once, and its next `renew` hears why.

With --force everything that the holder's host has of the resource is taken away, and given to others at once. Whoever
is inside there hears it when it can be reached, and may go on beside others until then: only its lower fencing number
protects what it does.

Examples:
  peerlock release backup                                what `acquire` has put into $PEERLOCK_GRANT
  peerlock show backup                                   who holds what, where and until when
  peerlock release --slot 0 backup                       ask whoever holds slot 0 to stop
  peerlock release --slot 0 --force backup               do not ask and do not wait: its host is lost, or hangs")]
pub struct Release {
    #[command(flatten)]
    held: Held,
    /// Ask whoever holds this slot to stop, whatever $PEERLOCK_GRANT is
    #[arg(long, conflicts_with = "grant")]
    slot: Option<u32>,
    /// Do not ask the holder, and do not wait for its end
    #[arg(long, conflicts_with = "grant")]
    force: bool,
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
    agent: AgentArgs,
}

impl Held {
    fn grant(&self) -> Option<String> {
        let of_the_shell = || env::var("PEERLOCK_GRANT").ok().filter(|grant| !grant.is_empty());
        self.grant.clone().or_else(of_the_shell)
    }

    /// That nobody has said which slot is meant, and who holds one, if there is an agent that can tell.
    async fn whose(&self) -> Error {
        let asked = async { self.agent.present().ok()??.show(&self.name).await.ok() };
        let held = asked.await.filter(|details| details.holders.iter().any(|slot| !slot.free));
        Error::Usage(held.map_or_else(
            || WHICH.to_owned(),
            |details| {
                let (name, held) = (&self.name, holders(&details));
                format!("{WHICH}; or give --slot to ask whoever holds one of {name} to stop:\n{}", held.trim_end())
            },
        ))
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
    let client = options.agent.agent().await?;
    let granted =
        client.acquire_detached(options.request.of(&options.name, options.ttl, label, Duration::ZERO)).await?;
    let text = if options.json { json!(granted).to_string() + "\n" } else { variables(&granted) };
    if let Err(error) = print(&text) {
        // Nobody knows its name, so nobody else can give it back. If that fails, too, its lease will end.
        let _gone = client.release(&options.name, &granted.grant).await;
        // Not even a reader that has seen enough is no error here.
        say(&error);
        return Ok(ExitCode::from(exit::IO));
    }
    Ok(ExitCode::SUCCESS)
}

pub async fn renew(options: &Renew) -> Result<ExitCode> {
    let held = &options.held;
    let grant = held.grant().ok_or_else(|| Error::Usage(WHICH.into()))?;
    let stands = held.agent.agent().await?.renew(&held.name, &grant).await?;
    held.done(&Renewed { ttl: stands })
}

pub async fn release(options: &Release) -> Result<ExitCode> {
    let held = &options.held;
    if options.force || options.slot.is_some() {
        let client = held.agent.agent().await?;
        admin::take_back(&client, &held.name, options.slot, options.force).await?;
        return held.done(&Released {});
    }
    let Some(grant) = held.grant() else { return Err(held.whose().await) };
    held.agent.agent().await?.release(&held.name, &grant).await?;
    held.done(&Released {})
}

/// For `eval`: all values are numbers but the name, which is quoted.
fn variables(granted: &Granted) -> String {
    let Granted { grant, name, slot, fencing, .. } = granted;
    let name = name.as_str().replace('\'', r"'\''");
    format!(
        "export PEERLOCK_GRANT='{grant}'\nexport PEERLOCK_NAME='{name}'\nexport PEERLOCK_FENCING={fencing}\n\
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
        let name = "it's $HOME `x` \"y\"";
        let granted = json!({ "grant": "7", "name": name, "slot": 1, "fencing": 4, "ttl_ms": 1, "waited_ms": 0 });
        let granted: Granted = serde_json::from_value(granted).expect("a grant");
        let lines = variables(&granted);
        assert!(lines.contains(r#"export PEERLOCK_NAME='it'\''s $HOME `x` "y"'"#), "{lines}");
        assert!(lines.contains("\nexport PEERLOCK_FENCING=4\n"), "{lines}");
        assert!(!lines.contains("PEERLOCK_TOKEN"), "{lines}");
    }
}
