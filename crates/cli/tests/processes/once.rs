//! Cron lines with `run --once-per` on several hosts: one successful run per period, whichever host begins.
//!
//! By hand, 20 hosts over 50 periods, ten minutes: `PEERLOCK_CRON=20x50 cargo test --test processes once::`.

use std::fs;
use std::process::{Command, Stdio};
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tokio::time::{Instant, sleep_until};

use super::world::{DEADLINE, SESSION, World, until};

/// Longer than a session, the skew, the jobs and [`HOLD`] together, so that a killed host delays no later period.
const PERIOD: Duration = Duration::from_secs(12);
/// Longer than a waiting run needs to find the end of another one while a generation is being opened.
const HOLD: &str = "5s";

/// Appends `begin` and `done` of a job with its period; the job of the period `$3` fails at its first attempt.
const JOB: &str = r#"
    echo "begin $1 $2 $$" >> "$0"
    sleep 0.4
    if test "$2" = "$3" && ! grep -q "failed $2" "$0"; then echo "failed $2" >> "$0"; exit 3; fi
    echo "done $1 $2" >> "$0""#;

#[tokio::test]
async fn cron_lines_of_all_hosts_run_once_per_period() {
    let size = std::env::var("PEERLOCK_CRON").unwrap_or_else(|_| "4x4".into());
    let (hosts, periods) = size.split_once('x').expect("PEERLOCK_CRON is HOSTSxPERIODS");
    let (hosts, periods): (usize, u32) = (hosts.parse().unwrap(), periods.parse().unwrap());
    let mut world = World::new(1, DEADLINE, DEADLINE);
    world.session = Some(SESSION);
    let mut agents = world.cluster(hosts).await;
    let (log, failing, killed) = (world.path("jobs"), 1, 2);
    let start = Instant::now();
    let mut lines = Vec::new();
    for period in 0..periods {
        for (host, agent) in agents.iter().enumerate() {
            let skew = Duration::from_millis(world.rng.below(700));
            let mut command = Command::new(env!("CARGO_BIN_EXE_peerlock"));
            command.args(["run", "--once-per", &format!("{}s", PERIOD.as_secs()), "--agent"]).arg(&agent.socket);
            command.args(["--hold-for", HOLD, "report", "--", "sh", "-c", JOB]).arg(&log);
            command.args([host.to_string(), period.to_string(), failing.to_string()]);
            command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(world.output("cron", host as u64));
            lines.push((start + PERIOD * period + skew, period, command));
        }
    }
    lines.sort_by_key(|(at, ..)| *at);
    let mut runs = Vec::new();
    let mut victim = None;
    for (at, period, mut command) in lines {
        sleep_until(at).await;
        runs.push((period, command.spawn().unwrap()));
        if period == killed && victim.is_none() {
            // Its host dies in the middle of the job: agent, `run` and the job.
            let (host, job) = until("a job", async || {
                let text = fs::read_to_string(&log).unwrap();
                let begun = text.lines().filter_map(|line| line.strip_prefix("begin "));
                let mut begun = begun.map(|line| line.split(' ').map(|it| it.parse().unwrap()).collect::<Vec<i32>>());
                begun.find(|it| it[1] == killed as i32).map(|it| (it[0], it[2]))
            })
            .await;
            let agent = &mut agents[host as usize].process;
            agent.signal(Signal::SIGKILL);
            agent.ends().await;
            let (_, run) = runs.last_mut().unwrap();
            run.kill().unwrap();
            _ = kill(Pid::from_raw(-job), Signal::SIGKILL);
            victim = Some(host);
        }
    }
    let mut codes = Vec::new();
    for (period, run) in &mut runs {
        let code = until("the exit of a run", async || run.try_wait().unwrap()).await.code();
        codes.push((*period, code));
    }
    let text = fs::read_to_string(&log).unwrap();
    for period in 0..periods {
        let of = |what: &str| {
            text.lines().filter(|line| line.starts_with(what) && line.ends_with(&format!(" {period}"))).count()
        };
        assert_eq!(of("done "), 1, "period {period}, {victim:?}:\n{text}");
        assert_eq!(of("failed "), usize::from(period == failing), "period {period}:\n{text}");
        let failed = codes.iter().filter(|(of, code)| *of == period && *code == Some(3)).count();
        assert_eq!(failed, usize::from(period == failing), "period {period}: {codes:?}");
        let skipped = codes.iter().filter(|(of, code)| *of == period && *code == Some(0)).count();
        assert!(skipped >= hosts - 2, "the others end with 0: {codes:?}");
    }
}
