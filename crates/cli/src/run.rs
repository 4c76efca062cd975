//! `peerlock run`: runs a command while holding a slot.

mod label;
mod lease;
mod loss;
mod once;
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
use peerlock::{Class, Client, Hold, PeriodView, Stop};
use peerlock_supervise::{Job, Moment, OnLost, Outcome, Signals, supervise};
use tokio::sync::watch;
use tokio::task::yield_now;
use tokio::time::{sleep, timeout};

use crate::client::{AgentArgs, RequestArgs, silence};
use crate::error::exit;
use crate::local_peer::{LocalPeer, PeerArgs};
use crate::{Error, Result, duration, start};
pub use label::of as label;
use lease::LeaseTimes;
use loss::Loss;
use once::Once;
pub use once::describe as describe_period;
pub use peerlock_types::roughly;
use show::Show;
pub use waiting::with_holder;

/// The environment variable with the resources of all slots under which the command runs, one per line.
const HELD: &str = "PEERLOCK_HELD";

/// How long to wait for the confirmation of a release. The exit of this process releases the slot, too.
const RELEASING: Duration = Duration::from_secs(5);
const ABSENT: Duration = Duration::from_secs(30);
/// How long to wait for an agent that exited between its discovery and the first request, if no time is left.
const RESTARTS: Duration = Duration::from_secs(3);
/// Interval of connection attempts to a named agent, which this program never starts.
const INTERVAL: Duration = Duration::from_millis(100);

const EXAMPLES: &str = "\
The command inherits terminal, input and output, and its exit code is returned. Its environment has:
  PEERLOCK_NAME       the resource
  PEERLOCK_SLOT       the slot
  PEERLOCK_FENCING    the fencing number
  PEERLOCK_DEADLINE   Unix time at which it is killed unless the lease is renewed
  PEERLOCK_HELD       the resources whose slots it runs under, one per line

Exit codes of peerlock:
  75 not acquired in time (or -E)           76 slot lost and command stopped
  69 no agent or no quorum                  64 wrong options
  126, 127 as in a shell                    128+n after signal n

Examples:
  peerlock run backup -- rsync -a /home backup:          one at a time in the cluster of the agent
  peerlock run -n 3 -w 10m render -- ./render.sh         three at a time; wait at most 10 minutes
  peerlock run --once-per 1h report -- ./report.sh       one successful run per hour, whichever host begins
  peerlock run --try -E 0 sync -- ./sync.sh              skip, without an error code, if no slot is free
  peerlock run --join 10.0.0.7 backup -- ./backup.sh     in the cluster of another machine, without an agent";

/// Run a command while holding a slot of a resource
///
/// Queues for a slot of NAME, runs the command while the slot is held, and releases the slot. If the slot is lost, the
/// command is stopped before another client can acquire it.
///
/// The slot comes from the agent of this user on this machine (`peerlock agent`), which is started if necessary, or
/// from root's agent if this user may use it. With --join or --alone, this process is itself a peer while it runs.
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub struct Options {
    /// Name of the resource (1 to 255 bytes), the same for all clients that share it
    name: String,
    /// Command and its arguments
    #[arg(last = true, required = true, value_name = "COMMAND")]
    command: Vec<OsString>,
    #[command(flatten)]
    request: RequestArgs,
    #[command(flatten)]
    once: Once,
    /// Lease duration: how long the slot is kept if this process hangs
    ///
    /// If the machine dies, other hosts wait for the session of its agent instead: 15 s by default.
    #[arg(long, value_name = "DURATION", value_parser = duration, default_value = "30s")]
    ttl: Duration,
    /// How to end the command when the slot is lost
    #[arg(long, value_enum, default_value = "term")]
    on_lost: WhenLost,
    /// Label that other users see [default: user@host: program]
    #[arg(long)]
    label: Option<String>,
    /// Stop the command this long before the lease expires [default: a fifth of the lease]
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    grace: Option<Duration>,
    /// Exit code if the slot is not acquired in time
    #[arg(short = 'E', long, value_name = "CODE", default_value_t = exit::NOT_ACQUIRED)]
    conflict_exit_code: u8,
    /// Report events on standard error as JSON lines
    ///
    /// The events are: listening, waiting, granted, skipped, notice, lost, ended, failed.
    #[arg(long)]
    json: bool,
    /// Print only errors
    #[arg(short, long, conflicts_with = "json")]
    quiet: bool,
    #[command(flatten, next_help_heading = "As a peer")]
    peer: PeerArgs,
    #[command(flatten, next_help_heading = "With an agent")]
    agent: AgentArgs,
    /// Do not use an agent: join the cluster from this process (needs --join or --alone)
    #[arg(long, help_heading = "As a peer", conflicts_with = "agent")]
    no_agent: bool,
    /// Create a cluster of this process only: no exclusion with other machines
    ///
    /// Other processes can join it with --join while this one runs.
    #[arg(long, help_heading = "As a peer", conflicts_with_all = ["agent", "join"])]
    alone: bool,
}

#[derive(Clone, Copy, ValueEnum)]
enum WhenLost {
    /// Send SIGTERM, and SIGKILL before the lease expires
    Term,
    /// Send SIGKILL
    Kill,
    /// Let it run
    None,
}

enum Run {
    Ended(Outcome),
    /// A signal arrived before the command was started.
    Interrupted(Outcome),
    /// The run of this period has taken place.
    Skipped(PeriodView),
}

impl Run {
    /// Creates the result for a signal that the terminal has sent to the whole process group.
    fn interrupted(signal: u8) -> Self {
        Self::Interrupted(Outcome::Signalled { signal, in_foreground: false })
    }
}

pub fn run(options: &Options) -> Result<ExitCode> {
    let show = Show::new(options.json, options.quiet);
    let runtime = peerlock::runtime().map_err(Error::Start)?;
    let outcome = runtime.block_on(execute(options, &show));
    show.clear();
    match outcome {
        Ok(Run::Ended(outcome)) => {
            show.ended(outcome.code());
            Ok(outcome.end())
        }
        Ok(Run::Interrupted(outcome)) => Ok(outcome.end()),
        Ok(Run::Skipped(period)) => {
            let code = if period.succeeded { 0 } else { options.conflict_exit_code };
            show.skipped(&options.name, &period, code);
            Ok(ExitCode::from(code))
        }
        Err(error) => {
            let code = code_of(&error, options.conflict_exit_code);
            show.failed(&error, code);
            Ok(ExitCode::from(code))
        }
    }
}

/// Returns the exit code of an error. `-E` is for a slot that was not acquired, not for a busy agent.
fn code_of(error: &Error, not_acquired: u8) -> u8 {
    match error {
        Error::Peerlock(why) | Error::Held { error: why, .. } if why.class() == Class::NotAcquired => not_acquired,
        error => exit::code(error),
    }
}

async fn execute(options: &Options, show: &Show) -> Result<Run> {
    options.check_held()?;
    options.once.check(options.request.slots())?;
    if options.once.is_given() && options.alone {
        let why = "--once-per has no effect with --alone, whose cluster ends with this process";
        return Err(Error::Usage(format!("{why}: leave --alone out, to use the agent of this machine")));
    }
    let mut signals = Signals::ending().map_err(Error::Start)?;
    let (client, here) = tokio::select! {
        biased;
        signal = signals.number() => return Ok(Run::interrupted(signal)),
        client = options.client(show) => client?,
    };
    let run = with_slot(options, show, &client, &mut signals).await;
    show.clear();
    if let Some(here) = here {
        here.leave().await;
    }
    run
}

async fn with_slot(options: &Options, show: &Show, client: &Client, signals: &mut Signals) -> Result<Run> {
    let lease = LeaseTimes::new(options.ttl, options.grace);
    let since = Instant::now();
    let acquired = async {
        // If the slot is lost before the command is started, it is requested again within the same wait.
        let (hold, asked, valid) = loop {
            let mut hold = options.hold(client, &lease, show, since).await?;
            if let Some((asked, valid)) = options.confirmed(&mut hold, client, &lease).await? {
                break (hold, asked, valid);
            }
        };
        let lease = lease.within(valid);
        Ok::<_, Error>((hold, lease, lease.end(asked, valid)))
    };
    let acquired = tokio::select! {
        biased;
        signal = signals.number() => return Ok(Run::interrupted(signal)),
        acquired = acquired => acquired,
        period = options.once.over(client, &options.name), if options.once.is_given() => {
            return Ok(Run::Skipped(period));
        }
        never = report_silence(client, show), if options.request.outlasts_silence(since.elapsed()) => match never {},
    };
    let (mut hold, lease, end) = match acquired {
        Err(Error::Peerlock(why)) if why.class() == Class::NotAcquired => {
            return match options.once.period(client, &options.name).await {
                Some(period) => Ok(Run::Skipped(period)),
                None => Err(options.not_acquired(client, show, why).await),
            };
        }
        acquired => acquired?,
    };
    let started = Moment::now();
    show.clear();
    show.granted(hold.granted());
    let (opened, connection) = hold.socket().map(watch::channel).unzip();
    let job = options.job(&hold, &lease, end, connection);
    let (renewed, ends) = watch::channel(end);
    let update = Renewal { lease, end: renewed, opened };
    let loss = Loss::new(show, client);
    let absent = async || {
        loss.absent();
        options.await_successor(client, lease.ttl).await;
    };
    let outcome = tokio::select! {
        biased;
        outcome = supervise(&job, ends, |notice| loss.notice(notice)) => outcome,
        never = maintain(&mut hold, absent, &update, &loss) => match never {},
    };
    let conclusion = outcome.as_ref().ok().and_then(|outcome| options.once.conclusion(started, outcome));
    match conclusion.filter(|_| hold.why_lost().is_none()) {
        Some(conclusion) => {
            // Signals during the command were for the command.
            let mut signals = Signals::ending().map_err(Error::Start)?;
            let concluded = tokio::select! {
                biased;
                concluded = hold.conclude(conclusion, || options.await_successor(client, lease.ttl)) => concluded,
                _ = signals.number() => Err(peerlock::Error::Stopped),
            };
            if let Err(why) = concluded {
                show.unrecorded(&options.name, &why);
            }
        }
        // Has no effect if the slot is lost or the agent has exited.
        None => _ = timeout(RELEASING, hold.release()).await,
    }
    Ok(Run::Ended(outcome.map_err(Error::Start)?))
}

/// Warns once if the agent does not answer for a while.
async fn report_silence(client: &Client, show: &Show) -> Infallible {
    show.unanswered(&silence(client).await);
    pending().await
}

struct Renewal {
    lease: LeaseTimes,
    end: watch::Sender<Moment>,
    opened: Option<watch::Sender<Arc<OwnedFd>>>,
}

/// Renews the lease as long as possible, also at the next agent. When the slot is lost, limits the command's deadline
/// to the time to stop.
async fn maintain(
    hold: &mut Hold,
    absent: impl AsyncFnMut(),
    Renewal { lease, end, opened }: &Renewal,
    loss: &Loss<'_>,
) -> Infallible {
    let renewed = |asked, valid| {
        loss.renewed(asked);
        end.send_replace(lease.end(asked, valid));
    };
    let opened = |connection| _ = opened.as_ref().map(|opened| opened.send_replace(connection));
    let time_to_stop = match hold.maintain(renewed, opened, absent).await {
        Stop::InGrace => lease.time_to_stop(),
        _ => Duration::ZERO, // Another client may hold the slot.
    };
    loss.received(hold.why_lost().cloned().unwrap_or(peerlock::Error::Lost));
    end.send_modify(|end| *end = (*end).min(Moment::now() + time_to_stop));
    // Signals the command before reporting: a write to standard error may block.
    yield_now().await;
    loss.notify();
    pending().await
}

impl Options {
    /// Refuses to wait for a slot that this process itself runs under.
    fn check_held(&self) -> Result<()> {
        if self.request.waits() && held().lines().any(|held| held == self.name) {
            let name = &self.name;
            return Err(Error::Usage(format!(
                "this command already runs under a slot of {name}, and would wait for itself: remove the inner \
                 `peerlock run`, give it --try, or unset {HELD} if {name} has enough slots"
            )));
        }
        Ok(())
    }

    async fn client(&self, show: &Show) -> Result<(Client, Option<Box<LocalPeer>>)> {
        let is_peer = self.no_agent || self.alone || self.peer.is_given();
        if is_peer && self.agent.is_given() {
            let contradiction =
                "--agent uses an agent, and --join, --listen, --data-dir and --secret-file start a peer";
            return Err(Error::Usage(format!("{contradiction}: give only one kind")));
        }
        if !is_peer {
            return Ok((self.agent.agent_quietly(self.quiet).await?, None));
        }
        if self.peer.join.is_empty() && !self.alone {
            let meant = "without an agent and without --join, this would be a cluster of its own, without exclusion";
            return Err(Error::Usage(format!("{meant}: give --join, or --alone if that is intended")));
        }
        let here = self.peer.start().await?;
        show.listening(&here, &self.name);
        Ok((here.peer.client(), Some(Box::new(here))))
    }

    /// Queues for the slot within the wait, which counts from `since`, also at the next agent.
    async fn hold(&self, client: &Client, lease: &LeaseTimes, show: &Show, since: Instant) -> Result<Hold> {
        let label = self.label.clone().unwrap_or_else(|| label(&self.command));
        // A discovered agent has just answered. Without an answer here, it has exited since.
        let is_named = self.agent.is_named();
        let answered = (!is_named).then(Instant::now);
        let absent =
            || self.await_successor(client, self.left(since).map_or(ABSENT, |left| left.clamp(RESTARTS, ABSENT)));
        loop {
            let request = self.request.of(&self.name, lease.ttl, label.clone(), since.elapsed()).grace(lease.grace);
            let request = if self.once.is_given() { request.slots(1) } else { request };
            let acquired = tokio::select! {
                biased;
                acquired = client.hold_with(request, |place| show.waiting(&self.name, place), absent) => acquired,
                never = show.live(client, &self.name) => match never {},
            };
            match acquired {
                Err(peerlock::Error::Broken { .. } | peerlock::Error::NoAgent { .. })
                    if answered.is_some_and(|at| is_worth_waiting(at.elapsed(), self.left(since), is_named)) =>
                {
                    absent().await;
                }
                acquired => return Ok(acquired?),
            }
        }
    }

    async fn not_acquired(&self, client: &Client, show: &Show, error: peerlock::Error) -> Error {
        match show.names_holder(self.conflict_exit_code) {
            true => with_holder(error, client, &self.name).await,
            false => error.into(),
        }
    }

    fn left(&self, since: Instant) -> Option<Duration> {
        self.request.left(since.elapsed())
    }

    /// Renews the lease of a new grant. Returns the time of the renewal and the validity from then; `None` if the slot
    /// is lost, since this process may have been suspended before it received the grant.
    async fn confirmed(
        &self,
        hold: &mut Hold,
        client: &Client,
        lease: &LeaseTimes,
    ) -> Result<Option<(Moment, Duration)>> {
        match hold.confirm(|| self.await_successor(client, lease.ttl)).await {
            Ok(renewed) => Ok(Some(renewed)),
            Err(peerlock::Error::Lost | peerlock::Error::SessionLost { .. }) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    async fn await_successor(&self, client: &Client, left: Duration) {
        match client {
            Client::Agent(_) if self.agent.is_named() => sleep(INTERVAL).await,
            Client::Agent(agent) => start::await_successor(agent.endpoint(), left).await,
            _ => {} // A peer in this process.
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

/// Returns whether to wait for an agent that has been absent for this long. Even without time left, an agent that this
/// command may start gets time to restart.
fn is_worth_waiting(gone: Duration, left: Option<Duration>, is_named: bool) -> bool {
    let has_time = left.is_none_or(|left| !left.is_zero());
    gone < ABSENT && (has_time || !is_named && gone < RESTARTS)
}

fn held() -> String {
    std::env::var(HELD).unwrap_or_default()
}

fn unix_seconds(moment: Moment) -> f64 {
    let at = SystemTime::now() + moment.since(Moment::now());
    at.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs_f64()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chosen_exit_code_is_for_a_slot_that_was_not_acquired() {
        let late = || peerlock::Error::NotAcquired { name: "r".parse().unwrap(), place: None };
        let busy = peerlock::Error::Busy { limit: 5 };
        assert_eq!((exit::code(&busy.clone().into()), code_of(&busy.into(), 0)), (75, 75));
        assert_eq!(code_of(&late().into(), 0), 0);
        assert_eq!(code_of(&Error::Held { error: late(), holder: "ada".into() }, 9), 9);
    }

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
