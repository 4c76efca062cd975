//! `peerlock run`: a command while a slot is held.

mod label;
mod lease;
mod loss;
mod show;
mod waiting;

use std::convert::Infallible;
use std::ffi::OsString;
use std::future::pending;
use std::os::fd::OwnedFd;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use clap::{Args, ValueEnum};
use peerlock::{Class, Client, Hold, Stop};
use peerlock_supervise::{Job, Moment, OnLost, Outcome, Signals, supervise};
use tokio::sync::watch;
use tokio::task::yield_now;
use tokio::time::{sleep, timeout};

use crate::client::{AgentArgs, RequestArgs};
use crate::error::exit;
use crate::here::{LocalPeer, PeerArgs};
use crate::{Error, Result, duration, start};
pub use label::of as label;
use lease::LeaseTimes;
use loss::Loss;
pub use peerlock_types::roughly;
use show::Show;

/// The names of all slots that a command runs under, one per line: it may be a `run` itself.
const HELD: &str = "PEERLOCK_HELD";

/// How long to wait for the word that a slot was given back. It is free before that, or when we are gone.
const RELEASING: Duration = Duration::from_secs(5);
/// How long an agent may be away that has just answered.
const ABSENT: Duration = Duration::from_secs(30);
/// How long an agent takes at most to start again that has ended between being found and being asked.
const RESTARTS: Duration = Duration::from_secs(3);
/// How often an agent that was named is looked for.
const NAMED: Duration = Duration::from_millis(100);

const EXAMPLES: &str = "\
The command has the terminal, input and output of its own. It finds PEERLOCK_NAME, PEERLOCK_FENCING (the fencing
number), PEERLOCK_SLOT, PEERLOCK_DEADLINE (Unix seconds: when it will have been killed, unless the lease is renewed) and
PEERLOCK_HELD (the names of all slots that it runs under, one per line) in its environment, and its exit code is ours.

Own exit codes:
  75 not acquired in time (or -E)           76 the slot was lost, and the command ended for it
  69 no peer, no agent, or nothing moves    64 wrong options
  126, 127 as in a shell                    128+n after signal n

Examples:
  peerlock run backup -- rsync -a /home backup:          one at a time in the agent's cluster; without one, of
                                                         this user on this machine
  peerlock run -n 3 -w 10m render -- ./render.sh         three at a time, and wait no longer than 10 minutes
  peerlock run --try -E 0 report -- ./report.sh          only if nobody else runs it; not even an error otherwise
  peerlock run --join 10.0.0.7 backup -- ./backup.sh     in the cluster of another machine, without an agent here";

/// Run a command while holding a slot of a resource
///
/// Waits in line for a slot of NAME, runs the command while the slot is held, and gives the slot back. If the slot is
/// lost, the command is stopped before anybody else can come in.
///
/// The slot comes from the agent of this machine (`peerlock agent`), which is started if there is none. With --join or
/// --alone this process is a peer itself for as long as it runs.
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub struct Options {
    /// The resource: any name of up to 255 bytes, the same for all who share it
    name: String,
    /// The command and its arguments
    #[arg(last = true, required = true, value_name = "COMMAND")]
    command: Vec<OsString>,
    #[command(flatten)]
    request: RequestArgs,
    /// How long the slot stands without being renewed: others wait so long if this machine vanishes
    #[arg(long, value_name = "DURATION", value_parser = duration, default_value = "30s")]
    ttl: Duration,
    /// What to do when the slot is lost: ask the command to end (SIGTERM) and kill it if it does not, kill it at once,
    /// or let it run on beside others
    #[arg(long, value_enum, default_value = "term")]
    on_lost: WhenLost,
    /// What others see of who waits or is inside [default: the user, the host and the program, without its arguments]
    #[arg(long)]
    label: Option<String>,
    /// How long before the lease's end the command must begin to stop [default: a fifth of the lease]
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    grace: Option<Duration>,
    /// The exit code if the slot was not acquired in time
    #[arg(short = 'E', long, value_name = "CODE", default_value_t = exit::NOT_ACQUIRED)]
    conflict_exit_code: u8,
    /// Say what happens on standard error, one JSON object per line: listening, waiting, granted, lost, ended, failed
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    peer: PeerArgs,
    #[command(flatten)]
    agent: AgentArgs,
    /// Be a peer and leave the agent of this machine alone: with --join or --alone
    #[arg(long, help_heading = "As a peer", conflicts_with = "agent")]
    no_agent: bool,
    /// Be a cluster of one: nobody else is excluded but those who --join this process, and only while it runs
    #[arg(long, help_heading = "As a peer", conflicts_with_all = ["agent", "join"])]
    alone: bool,
}

#[derive(Clone, Copy, ValueEnum)]
enum WhenLost {
    Term,
    Kill,
    None,
}

/// How it went.
enum Run {
    /// The command has ended, or could not be started.
    Ended(Outcome),
    /// A signal came before there was a command.
    Interrupted(Outcome),
}

impl Run {
    /// The terminal has sent the signal to all of our group.
    fn interrupted(signal: u8) -> Self {
        Self::Interrupted(Outcome::Signalled { signal, in_foreground: false })
    }
}

/// Runs the command.
pub fn run(options: &Options) -> Result<ExitCode> {
    let show = Show::new(options.json);
    let runtime = peerlock::runtime().map_err(Error::Start)?;
    let outcome = runtime.block_on(go(options, &show));
    show.clear();
    match outcome {
        Ok(Run::Ended(outcome)) => {
            show.ended(outcome.code());
            Ok(outcome.end())
        }
        Ok(Run::Interrupted(outcome)) => Ok(outcome.end()),
        Err(error) => {
            let was_late = matches!(&error, Error::Peerlock(error) if error.class() == Class::NotAcquired);
            let code = if was_late { options.conflict_exit_code } else { exit::code(&error) };
            show.failed(&error, code);
            Ok(ExitCode::from(code))
        }
    }
}

async fn go(options: &Options, show: &Show) -> Result<Run> {
    options.check_held()?;
    let mut signals = Signals::ending().map_err(Error::Start)?;
    let (client, here) = tokio::select! {
        biased;
        signal = signals.number() => return Ok(Run::interrupted(signal)),
        client = options.client(show) => client?,
    };
    let run = with(options, show, &client, &mut signals).await;
    show.clear();
    if let Some(here) = here {
        here.leave().await;
    }
    run
}

/// Waits for the slot, and runs the command with it.
async fn with(options: &Options, show: &Show, client: &Client, signals: &mut Signals) -> Result<Run> {
    let lease = LeaseTimes::new(options.ttl, options.grace);
    let since = Instant::now();
    let acquired = async {
        // Nothing was started yet: who has lost it asks again, within the same wait.
        let (hold, asked, stands) = loop {
            let mut hold = options.hold(client, &lease, show, since).await?;
            if let Some((asked, stands)) = options.confirmed(&mut hold, client, &lease).await? {
                break (hold, asked, stands);
            }
        };
        let lease = lease.within(stands);
        Ok::<_, Error>((hold, lease, lease.end(asked, stands)))
    };
    let (mut hold, lease, end) = tokio::select! {
        biased;
        signal = signals.number() => return Ok(Run::interrupted(signal)),
        acquired = acquired => acquired?,
    };
    show.clear();
    show.granted(hold.granted());
    let (opened, connection) = hold.socket().map(watch::channel).unzip();
    let job = options.job(&hold, &lease, end, connection);
    let (renewed, ends) = watch::channel(end);
    let update = Renewal { lease, end: renewed, opened };
    let loss = Loss::new(show, client);
    let absent = async || {
        loss.absent();
        options.again(client, lease.ttl).await;
    };
    let outcome = tokio::select! {
        biased;
        outcome = supervise(&job, ends, |notice| loss.notice(notice)) => outcome,
        never = keep(&mut hold, absent, &update, &loss) => match never {},
    };
    // If it was lost, or nobody answers, there is nothing to give back.
    let _gone = timeout(RELEASING, hold.release()).await;
    Ok(Run::Ended(outcome.map_err(Error::Start)?))
}

/// What the command's supervision hears while the slot is held.
struct Renewal {
    lease: LeaseTimes,
    /// When the command has to be over.
    end: watch::Sender<Moment>,
    /// The connection that the slot belongs to.
    opened: Option<watch::Sender<Arc<OwnedFd>>>,
}

/// Renews the lease for as long as that is possible, also if the agent ends and another goes on. When the slot is lost
/// the command has its time to stop, unless it has less already.
async fn keep(
    hold: &mut Hold,
    absent: impl AsyncFnMut(),
    Renewal { lease, end, opened }: &Renewal,
    loss: &Loss<'_>,
) -> Infallible {
    let renewed = |asked, stands| {
        loss.renewed(asked);
        end.send_replace(lease.end(asked, stands));
    };
    let opened = |connection| _ = opened.as_ref().map(|opened| opened.send_replace(connection));
    let time_to_stop = match hold.maintain(renewed, opened, absent).await {
        Stop::InGrace => lease.time_to_stop(),
        _ => Duration::ZERO, // At once, or for a reason that we do not know: somebody else may be inside.
    };
    loss.received(hold.why_lost().cloned().unwrap_or(peerlock::Error::Lost));
    end.send_modify(|end| *end = (*end).min(Moment::now() + time_to_stop));
    // What has to be done comes before what we say of it: that takes for ever where nobody reads it.
    yield_now().await;
    loss.notify();
    pending().await
}

impl Options {
    /// A `run` under a slot of the same name would wait for that slot, which waits for it.
    fn check_held(&self) -> Result<()> {
        if self.request.waits() && held().lines().any(|held| held == self.name) {
            let name = &self.name;
            return Err(Error::Usage(format!(
                "this runs under a slot of {name} already, and would wait for itself: leave the inner `peerlock run` \
                 out, give it --try, or unset {HELD} if {name} has a slot for it, too"
            )));
        }
        Ok(())
    }

    /// Whom to ask, and the peer that we are ourselves if there is no agent to ask.
    async fn client(&self, show: &Show) -> Result<(Client, Option<Box<LocalPeer>>)> {
        let is_peer = self.no_agent || self.alone || self.peer.is_asked_for();
        if is_peer && self.agent.is_given() {
            let contradiction =
                "--agent asks for a slot of the agent, and --join, --listen and --secret-file for a peer";
            return Err(Error::Usage(format!("{contradiction}: leave one out")));
        }
        if !is_peer {
            return Ok((self.agent.agent().await?, None));
        }
        if self.peer.join.is_empty() && !self.alone {
            let meant = "without an agent and without --join this would be a cluster of its own, and exclude nobody";
            return Err(Error::Usage(format!("{meant}: give --join, or --alone if that is what you want")));
        }
        let here = self.peer.start().await?;
        show.listening(&here, &self.name);
        Ok((here.peer.client(), Some(Box::new(here))))
    }

    /// Waits in line for the slot, from `since` on. If the agent goes away meanwhile, at the next one, behind those who
    /// have asked there before.
    async fn hold(&self, client: &Client, lease: &LeaseTimes, show: &Show, since: Instant) -> Result<Hold> {
        let label = self.label.clone().unwrap_or_else(|| label(&self.command));
        // An agent that was not named has just answered: if it does not now, it has ended in this moment.
        let is_named = self.agent.is_named();
        let answered = (!is_named).then(Instant::now);
        let again = || self.again(client, self.left(since).map_or(ABSENT, |left| left.clamp(RESTARTS, ABSENT)));
        loop {
            let request = self.request.of(&self.name, lease.ttl, label.clone(), since.elapsed()).grace(lease.grace);
            let acquired = tokio::select! {
                biased;
                acquired = client.hold_with(request, |place| show.waiting(&self.name, place), again) => acquired,
                never = show.live(client, &self.name) => match never {},
            };
            match acquired {
                Err(peerlock::Error::Broken { .. } | peerlock::Error::NoAgent { .. })
                    if answered.is_some_and(|at| is_worth_waiting(at.elapsed(), self.left(since), is_named)) =>
                {
                    again().await;
                }
                acquired => return Ok(acquired?),
            }
        }
    }

    fn left(&self, since: Instant) -> Option<Duration> {
        self.request.left(since.elapsed())
    }

    /// Renews the lease of a slot that was just granted: when that was asked for, and how long it stands from then.
    /// What was said on the way here may be old, if we were frozen: nothing if the slot is lost already.
    async fn confirmed(
        &self,
        hold: &mut Hold,
        client: &Client,
        lease: &LeaseTimes,
    ) -> Result<Option<(Moment, Duration)>> {
        match hold.confirm(|| self.again(client, lease.ttl)).await {
            Ok(renewed) => Ok(Some(renewed)),
            Err(peerlock::Error::Lost | peerlock::Error::SessionLost { .. }) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// The agent that we ask has gone: waits for the next one, or starts it. One that was named is somebody else's to
    /// start.
    async fn again(&self, client: &Client, left: Duration) {
        match client {
            Client::Agent(_) if self.agent.is_named() => sleep(NAMED).await,
            Client::Agent(agent) => start::again(agent.endpoint(), left).await,
            _ => {} // A peer of our own does not go before we do.
        }
    }

    fn job(
        &self,
        hold: &Hold,
        lease: &LeaseTimes,
        end: Moment,
        connection: Option<watch::Receiver<Arc<OwnedFd>>>,
    ) -> Job {
        let (granted, deadline) = (hold.granted(), unix_seconds(end));
        let variable = |name: &str, value: String| (OsString::from(name), OsString::from(value));
        Job {
            command: self.command.clone(),
            env: vec![
                variable("PEERLOCK_NAME", self.name.clone()),
                variable("PEERLOCK_FENCING", granted.fencing.to_string()),
                variable("PEERLOCK_SLOT", granted.slot.to_string()),
                variable("PEERLOCK_DEADLINE", format!("{deadline:.3}")),
                variable(HELD, format!("{}{}\n", held(), self.name)),
            ],
            on_lost: match self.on_lost {
                WhenLost::Term => OnLost::Term,
                WhenLost::Kill => OnLost::Kill,
                WhenLost::None => OnLost::Leave,
            },
            grace: lease.time_to_stop(),
            slack: lease.margin,
            connection,
        }
    }
}

/// Whether to look for an agent that has been gone for so long, with so much left of the wait. One that is ours to
/// start has the time of a start even if nothing is left.
fn is_worth_waiting(gone: Duration, left: Option<Duration>, is_named: bool) -> bool {
    let has_time = left.is_none_or(|left| !left.is_zero());
    gone < ABSENT && (has_time || !is_named && gone < RESTARTS)
}

fn held() -> String {
    std::env::var(HELD).unwrap_or_default()
}

/// On the clock of the wall, for scripts.
fn unix_seconds(moment: Moment) -> f64 {
    let at = SystemTime::now() + moment.since(Moment::now());
    at.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs_f64()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn absent_agent_is_awaited_within_the_wait() {
        let s = Duration::from_secs;
        for (gone, left, is_named, waits) in [
            (s(29), None, true, true),
            (s(30), None, true, false),
            (s(29), Some(s(1)), true, true),
            (s(30), Some(s(1)), false, false),
            (s(0), Some(s(0)), true, false),
            (s(1), Some(s(0)), false, true),
            (s(3), Some(s(0)), false, false),
        ] {
            assert_eq!(is_worth_waiting(gone, left, is_named), waits, "{gone:?} {left:?} {is_named}");
        }
    }
}
