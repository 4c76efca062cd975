//! `peerlock acquire`, `renew` and `release`, and the options of all commands that use an agent.

use std::convert::Infallible;
use std::env;
use std::future::pending;
use std::io::{self, ErrorKind, Write as _, stdout};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::Args;
use peerlock::{Agent, Class, Client, Endpoint, Granted, Request, StartError, Token, places};
use peerlock_http::{Released, Renewed};
use peerlock_net::private;
use peerlock_types::roughly;
use serde::Serialize;
use serde_json::json;
use tokio::time::sleep;

use crate::error::exit;
use crate::query::{QueryArgs, holders};
use crate::run::with_holder;
use crate::say::say;
use crate::{Error, Result, admin, duration, start};

const NO_GRANT: &str = "no grant given: pass --grant, or set PEERLOCK_GRANT as printed by `acquire`";

/// How long the agent may be silent before the user is warned.
const SILENT: Duration = Duration::from_secs(10);

#[derive(Args)]
pub struct RequestArgs {
    /// Number of slots of the resource [default: its current number, 1 if it is new]
    ///
    /// Must be the same for all clients of the resource.
    #[arg(short = 'n', long, value_name = "SLOTS")]
    slots: Option<u32>,
    /// Wait at most this long, such as 30s, 1h30m or 2d; 0s is --try [default: no limit]
    #[arg(short, long, value_name = "DURATION", value_parser = duration)]
    wait: Option<Duration>,
    /// Do not wait: acquire only if a slot is free and no client waits for it
    #[arg(long = "try", conflicts_with = "wait")]
    only_try: bool,
}

impl RequestArgs {
    pub fn slots(&self) -> Option<u32> {
        self.slots
    }

    pub fn waits(&self) -> bool {
        !self.only_try && self.wait != Some(Duration::ZERO)
    }

    /// Returns whether a warning of a silent agent comes before the end of the wait.
    pub fn outlasts_silence(&self, waited: Duration) -> bool {
        self.left(waited).is_none_or(|left| left > SILENT)
    }

    pub fn left(&self, waited: Duration) -> Option<Duration> {
        let wait = if self.only_try { Some(Duration::ZERO) } else { self.wait };
        wait.map(|wait| wait.saturating_sub(waited))
    }

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

#[derive(Args)]
pub struct AgentArgs {
    /// Path of the agent's socket, or HOST:PORT [default: $PEERLOCK_AGENT or this machine's agent]
    ///
    /// This machine's agent is started if necessary, except by `drain`, `doctor` and `secret`.
    #[arg(long, value_name = "ADDR")]
    agent: Option<Endpoint>,
    /// File with the bearer token of an agent at HOST:PORT, mode 600
    ///
    /// Default: the token in $PEERLOCK_API_TOKEN, or the file $PEERLOCK_API_TOKEN_FILE.
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,
}

impl AgentArgs {
    pub fn is_given(&self) -> bool {
        self.agent.is_some()
    }

    /// Returns whether an option or the environment names an agent. Such an agent is never started here.
    pub fn is_named(&self) -> bool {
        self.named().is_ok_and(|named| named.is_some())
    }

    pub async fn agent(&self) -> Result<Client> {
        self.agent_quietly(false).await
    }

    /// Like [`AgentArgs::agent`]; if it is quiet, a start of the agent is not reported.
    pub async fn agent_quietly(&self, is_quiet: bool) -> Result<Client> {
        match self.named()? {
            Some(endpoint) => self.at(endpoint),
            None => self.at(start::agent(is_quiet).await?),
        }
    }

    pub fn present(&self) -> Result<Option<Client>> {
        let endpoint = self.named()?.map_or_else(start::present, |endpoint| Ok(Some(endpoint)))?;
        endpoint.map(|endpoint| self.at(endpoint)).transpose()
    }

    fn at(&self, endpoint: Endpoint) -> Result<Client> {
        let token = self.token(&endpoint)?;
        Ok(Agent::at(endpoint, token).client())
    }

    pub fn token(&self, endpoint: &Endpoint) -> Result<Option<Token>> {
        match (&self.token_file, endpoint) {
            (Some(file), _) => token(file).map(Some),
            (None, Endpoint::Tcp(_)) => Ok(Agent::token()?),
            (None, _) => Ok(None),
        }
    }

    pub fn named(&self) -> Result<Option<Endpoint>> {
        match &self.agent {
            Some(endpoint) => Ok(Some(endpoint.clone())),
            None => Ok(Agent::named()?),
        }
    }
}

/// Resolves with a warning when the agent has not answered for a while.
pub async fn silence(client: &Client) -> String {
    let Client::Agent(agent) = client else { return pending().await };
    let mut answered = Instant::now();
    while answered.elapsed() < SILENT {
        sleep(SILENT / 2).await;
        if agent.responds_within(SILENT / 2).await {
            answered = Instant::now();
        }
    }
    let (endpoint, since) = (agent.endpoint(), roughly(answered.elapsed()));
    format!("the agent at {endpoint} has not answered for {since}; still waiting for it. `peerlock doctor` checks it")
}

async fn warn_of_silence(client: &Client) -> Infallible {
    say(silence(client).await);
    pending().await
}

pub fn socket() -> Result<PathBuf> {
    Ok(places::agent_socket().map_err(StartError::from)?)
}

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
/// Prints shell variables for `eval`. The slot is held until it is released or its lease expires, also if the calling
/// process or the agent ends.
#[derive(Args)]
#[command(after_help = "\
Example:
  grant=$(peerlock acquire --ttl 10m backup) || exit
  eval \"$grant\"
  rsync -a /home backup: && peerlock renew backup && rsync -a /srv backup:
  peerlock release backup

Exit codes: 75 not acquired in time, 69 no agent or no quorum, 64 wrong options")]
pub struct Acquire {
    /// Name of the resource
    name: String,
    #[command(flatten)]
    request: RequestArgs,
    /// Lease duration: the slot is free after this long without `peerlock renew`
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    ttl: Duration,
    /// Label that other users see [default: user@host]
    #[arg(long)]
    label: Option<String>,
    /// Print a JSON object instead of shell variables
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    agent: AgentArgs,
}

/// Renew the lease of an acquired slot
#[derive(Args)]
pub struct Renew {
    #[command(flatten)]
    held: Held,
}

/// Release a slot, or revoke one held by another client
///
/// To release an acquired slot, pass --grant, or set $PEERLOCK_GRANT as printed by `acquire`. Without a grant and
/// without --slot, the command lists the holders and exits with 64.
#[derive(Args)]
#[command(after_help = "\
With --slot, the holder is asked to stop, on any machine: `run` stops its command as for any lost slot, and applications
are notified. The command returns when the holder has stopped or its lease has expired. A slot of `acquire` has no
process to ask: it is free immediately, and its next `renew` fails.

With --force, the holder's host is evicted from the resource: all its slots of the resource are granted to others
immediately. Its jobs are notified when that host can be reached, and may run beside the new holders until then; only
fencing numbers protect shared state.

Examples:
  peerlock release backup                                release the grant in $PEERLOCK_GRANT
  peerlock show backup                                   list the holders and when their leases expire
  peerlock release --slot 0 backup                       ask the holder of slot 0 to stop
  peerlock release --slot 0 --force backup               its host is lost or hangs: do not wait")]
pub struct Release {
    /// Revoke this slot: ask its holder, on any machine, to stop. Ignores $PEERLOCK_GRANT
    #[arg(long, conflicts_with = "grant")]
    slot: Option<u32>,
    /// Evict the holder's host immediately, without asking (see below)
    #[arg(long, conflicts_with = "grant")]
    force: bool,
    #[command(flatten)]
    held: Held,
}

#[derive(Args)]
struct Held {
    /// Name of the resource
    name: String,
    /// Grant ID, as printed by `acquire` [default: $PEERLOCK_GRANT]
    #[arg(long)]
    grant: Option<String>,
    #[command(flatten)]
    query: QueryArgs,
}

impl Held {
    fn grant(&self) -> Option<String> {
        let of_the_shell = || env::var("PEERLOCK_GRANT").ok().filter(|grant| !grant.is_empty());
        self.grant.clone().or_else(of_the_shell)
    }

    async fn missing_grant(&self) -> Error {
        let asked = async { self.query.agent.present().ok()??.show(&self.name).await.ok() };
        let held = asked.await.filter(|details| details.holders.iter().any(|slot| !slot.free));
        Error::Usage(held.map_or_else(
            || NO_GRANT.to_owned(),
            |details| {
                let (name, held) = (&self.name, holders(&details));
                format!("{NO_GRANT}; or pass --slot to revoke a slot of {name}:\n{}", held.trim_end())
            },
        ))
    }

    fn done(&self, answer: &impl Serialize, text: String) -> Result<ExitCode> {
        self.query.print(answer, |_| text)
    }
}

pub async fn acquire(options: &Acquire) -> Result<ExitCode> {
    let label = options.label.clone().unwrap_or_else(|| crate::run::label(&[]));
    let client = options.agent.agent().await?;
    let request = options.request.of(&options.name, options.ttl, label, Duration::ZERO);
    let acquired = tokio::select! {
        biased;
        acquired = client.acquire_detached(request) => acquired,
        never = warn_of_silence(&client), if options.request.outlasts_silence(Duration::ZERO) => match never {},
    };
    let granted = match acquired {
        Err(error) if error.class() == Class::NotAcquired => {
            return Err(with_holder(error, &client, &options.name).await);
        }
        acquired => acquired?,
    };
    let text = if options.json { json!(granted).to_string() + "\n" } else { variables(&granted) };
    if let Err(error) = print(&text) {
        // The grant ID could not be printed, so only this process can release the slot before its lease expires.
        let _gone = client.release(&options.name, &granted.grant).await;
        // A closed pipe is an error, too.
        say(&error);
        return Ok(ExitCode::from(exit::IO));
    }
    Ok(ExitCode::SUCCESS)
}

pub async fn renew(options: &Renew) -> Result<ExitCode> {
    let held = &options.held;
    let grant = held.grant().ok_or_else(|| Error::Usage(NO_GRANT.into()))?;
    let stands = held.query.agent.agent().await?.renew(&held.name, &grant).await?;
    held.done(&Renewed { ttl: stands }, format!("{} is renewed for {}\n", held.name, roughly(stands)))
}

pub async fn release(options: &Release) -> Result<ExitCode> {
    let held = &options.held;
    if options.force || options.slot.is_some() {
        let client = held.query.agent.agent().await?;
        admin::take_back(&client, &held.name, options.slot, options.force).await?;
        return held.done(&Released {}, String::new());
    }
    let Some(grant) = held.grant() else { return Err(held.missing_grant().await) };
    held.query.agent.agent().await?.release(&held.name, &grant).await?;
    held.done(&Released {}, format!("{} is released\n", held.name))
}

fn variables(granted: &Granted) -> String {
    let Granted { grant, name, slot, fencing, .. } = granted;
    let name = name.as_str().replace('\'', r"'\''");
    format!(
        "export PEERLOCK_GRANT='{grant}'\nexport PEERLOCK_NAME='{name}'\nexport PEERLOCK_FENCING={fencing}\n\
         export PEERLOCK_SLOT={slot}\n"
    )
}

pub fn print(text: &str) -> Result<()> {
    let mut out = stdout().lock();
    out.write_all(text.as_bytes())?;
    Ok(out.flush()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shell_variables_are_quoted() {
        let name = "it's $HOME `x` \"y\"";
        let granted = json!({ "grant": "7", "name": name, "slot": 1, "fencing": 4, "ttl_ms": 1, "waited_ms": 0 });
        let granted: Granted = serde_json::from_value(granted).expect("a grant");
        let lines = variables(&granted);
        assert!(lines.contains(r#"export PEERLOCK_NAME='it'\''s $HOME `x` "y"'"#), "{lines}");
        assert!(lines.contains("\nexport PEERLOCK_FENCING=4\n"), "{lines}");
        assert!(!lines.contains("PEERLOCK_TOKEN"), "{lines}");
    }
}
