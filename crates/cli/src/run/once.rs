//! `run --once-per`: at most one successful run per period in the whole cluster.
//!
//! The holder concludes its run: after a success, the slot stays taken until the period ends. Until then the others,
//! which wait for the slot, find the run in the details of the resource, and end.

use std::time::{Duration, SystemTime};

use clap::Args;
use jiff::tz::TimeZone;
use jiff::{Timestamp, Zoned};
use peerlock::{Client, Conclusion, PeriodView};
use peerlock_supervise::{Moment, Outcome};
use peerlock_types::visible;
use tokio::time::{sleep, timeout};

use crate::{Error, Result, duration};

const SHORTEST: Duration = Duration::from_secs(1);
const LONGEST: Duration = Duration::from_secs(30 * 24 * 60 * 60);
/// The next run may start this much early, so that a timer with a little jitter runs in each period.
const MOST_SLACK: Duration = Duration::from_secs(5 * 60);
/// How often a waiting process asks whether the run has taken place elsewhere, and how long it waits for the answer.
const INTERVAL: Duration = Duration::from_secs(1);
const PATIENCE: Duration = Duration::from_secs(3);

#[derive(Args)]
pub struct Once {
    /// Run at most once successfully per period in the whole cluster, such as 1h or 20h
    ///
    /// After a success, other runs end with 0 until the period has passed since the start, less a tenth of it (at
    /// most 5 minutes). After a failure the next host may run.
    #[arg(long, value_name = "PERIOD", value_parser = duration)]
    once_per: Option<Duration>,
    /// Exact time from the start of a run during which no other may start [default: the period less a tenth]
    #[arg(long, value_name = "DURATION", value_parser = duration, requires = "once_per")]
    hold_for: Option<Duration>,
    /// Number of failed runs after which the period has no further one
    #[arg(long, value_name = "NUMBER", default_value_t = Conclusion::ATTEMPTS, requires = "once_per",
        value_parser = clap::value_parser!(u32).range(1..=1000))]
    attempts: u32,
    /// Count a failed run as the run of the period
    #[arg(long, requires = "once_per", conflicts_with = "attempts")]
    even_if_failed: bool,
}

impl Once {
    pub fn is_given(&self) -> bool {
        self.once_per.is_some()
    }

    /// Checks the options, before the command has run. With several slots, several runs could take place.
    pub fn check(&self, slots: Option<u32>) -> Result<()> {
        if self.is_given() && slots.is_some_and(|slots| slots != 1) {
            return Err(Error::Usage("a resource of --once-per has one slot: leave -n out".into()));
        }
        let given = [("--once-per", self.once_per), ("--hold-for", self.hold_for)];
        let wrong = given.into_iter().find(|(_, given)| given.is_some_and(|it| !(SHORTEST..=LONGEST).contains(&it)));
        wrong.map_or(Ok(()), |(option, _)| {
            Err(Error::Usage(format!("{option} is out of range: give a duration between 1s and 720h (30 days)")))
        })
    }

    /// Returns the end of the run to report; `None` if its period has passed already.
    pub fn conclusion(&self, started: Moment, outcome: &Outcome) -> Option<Conclusion> {
        let period = self.once_per?;
        let hold = self.hold_for.unwrap_or(period - (period / 10).min(MOST_SLACK));
        let hold = hold.saturating_sub(Moment::now().since(started));
        let succeeded = self.even_if_failed || matches!(outcome, Outcome::Exited(0));
        (hold >= Duration::from_millis(100)).then_some(Conclusion { succeeded, attempts: self.attempts, hold })
    }

    /// Resolves when the run of the period has taken place elsewhere. Pending for ever without a period.
    pub async fn over(&self, client: &Client, name: &str) -> PeriodView {
        loop {
            if let Some(period) = self.period(client, name).await {
                return period;
            }
            sleep(INTERVAL).await;
        }
    }

    /// Returns the latest run, if no other may start in this period.
    pub async fn period(&self, client: &Client, name: &str) -> Option<PeriodView> {
        self.once_per?;
        timeout(PATIENCE, client.show(name)).await.ok()?.ok()?.period.filter(|period| period.holds)
    }
}

/// Describes the run of a period and when the next one may start.
pub fn describe(name: &str, period: &PeriodView) -> String {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let zone = TimeZone::system();
    let [ended, next, now] = [period.ended, now + period.left, now].map(|at| zoned(at, &zone));
    let host = if period.host.is_empty() { "another host".into() } else { visible(&period.host) };
    let [ended, next] = [ended, next].map(|at| time(&at, &now));
    if period.succeeded {
        return format!("{name} ran until {ended} on {host}, next from {next}");
    }
    let times = if period.failures == 1 { "once".into() } else { format!("{} times", period.failures) };
    let next = if period.holds { format!("next attempt from {next}") } else { "another attempt may start".into() };
    format!("{name} failed {times}, last at {ended} on {host}, {next}")
}

fn zoned(at: Duration, zone: &TimeZone) -> Zoned {
    let millis = at.as_millis().try_into().unwrap_or(i64::MAX);
    Timestamp::from_millisecond(millis).unwrap_or(Timestamp::MAX).to_zoned(zone.clone())
}

/// Formats a time, with its date if that is not today.
fn time(at: &Zoned, now: &Zoned) -> String {
    let time = at.strftime("%H:%M:%S");
    if at.date() == now.date() { time.to_string() } else { format!("{} {time}", at.date()) }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn once(period: u64, hold_for: Option<u64>) -> Once {
        let s = Duration::from_secs;
        Once { once_per: Some(s(period)), hold_for: hold_for.map(s), attempts: 3, even_if_failed: false }
    }

    #[test]
    fn slot_is_held_for_the_period_less_its_slack() {
        let now = Moment::now();
        for (period, hold_for, seconds) in
            [(60, None, 54), (3_600, None, 3_300), (72_000, None, 71_700), (3_600, Some(20), 20)]
        {
            let conclusion = once(period, hold_for).conclusion(now, &Outcome::Exited(0)).unwrap();
            assert_eq!(conclusion.hold.as_secs_f64().ceil(), f64::from(seconds));
        }
        let before = now - Duration::from_secs(55);
        assert!(once(60, None).conclusion(before, &Outcome::Exited(0)).is_none(), "longer than its period");
    }

    #[test]
    fn only_exit_code_zero_is_a_success() {
        let mut once = once(60, None);
        let (now, signalled) = (Moment::now(), Outcome::Signalled { signal: 2, in_foreground: false });
        for (outcome, succeeded) in [(Outcome::Exited(0), true), (Outcome::Exited(1), false), (signalled, false)] {
            assert_eq!(once.conclusion(now, &outcome).unwrap().succeeded, succeeded, "{outcome:?}");
        }
        once.even_if_failed = true;
        assert!(once.conclusion(now, &Outcome::Exited(1)).unwrap().succeeded);
    }

    #[test]
    fn period_out_of_range_is_refused() {
        for (seconds, hold_for, good) in
            [(0, None, false), (1, None, true), (3600, Some(0), false), (3600, Some(1), true), (2_592_001, None, false)]
        {
            assert_eq!(once(seconds, hold_for).check(None).is_ok(), good, "{seconds} s, {hold_for:?}");
        }
        assert!(once(10, None).check(Some(1)).is_ok() && once(10, None).check(Some(2)).is_err());
    }

    #[test]
    fn run_of_the_period_is_described() {
        let at = |hour: i64, minute: i64| Duration::from_secs((hour * 60 + minute) as u64 * 60);
        let now = zoned(at(3, 10), &TimeZone::UTC);
        assert_eq!(time(&zoned(at(3, 55), &TimeZone::UTC), &now), "03:55:00");
        assert_eq!(time(&zoned(at(25, 0), &TimeZone::UTC), &now), "1970-01-02 01:00:00");
        for (succeeded, failures, holds, begin, end) in [
            (true, 1, true, "report ran until ", " on db2, next from "),
            (false, 1, false, "report failed once, last at ", " on db2, another attempt may start"),
            (false, 3, true, "report failed 3 times, last at ", " on db2, next attempt from "),
        ] {
            let period = json!({ "succeeded": succeeded, "failures": failures, "holds": holds, "host": "db2",
                "label": "", "fencing": 7, "ended_ms": 0, "left_ms": 60_000 });
            let period: PeriodView = serde_json::from_value(period).unwrap();
            let text = describe("report", &period);
            assert!(text.starts_with(begin) && text.contains(end), "{text}");
        }
    }
}
