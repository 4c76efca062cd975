//! Agents are killed and replaced while jobs run. The log and the exit codes of the jobs show whether any was affected.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tempfile::TempDir;
use tokio::time::sleep;

use super::checker::Log;
use super::client::{append, now};
use super::host::second_build;
use super::world::{World, rounds, until};

const JOBS: u64 = 20;
const SLOTS: u32 = 4;

/// Returns the expected exit code of a job, which is none of peerlock's.
fn code_of(job: u64) -> i32 {
    10 + i32::try_from(job % 40).unwrap()
}

struct Job {
    number: u64,
    process: Child,
}

impl Drop for Job {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn job(mut run: Command, number: u64, stay: Duration, (log, output): (&Path, fs::File)) -> Job {
    let script = format!(
        "t() {{ read up _ < /proc/uptime; echo $((${{up%.*}} * 1000000000 + 1${{up#*.}}0000000 - 1000000000)); }}\n\
         echo \"enter $(t) {number} $PEERLOCK_FENCING $PEERLOCK_SLOT 18446744073709551615\" >> {log}\n\
         sleep {stay}\n\
         echo \"leave $(t) {number} $PEERLOCK_FENCING $PEERLOCK_SLOT\" >> {log}\n\
         exit {code}",
        log = log.display(),
        stay = stay.as_secs_f64(),
        code = code_of(number),
    );
    append(log, &format!("ask {} {number}", now()));
    run.arg("-n").arg(SLOTS.to_string()).args(["jobs", "--", "sh", "-c", &script]);
    run.stdin(Stdio::null()).stdout(Stdio::null()).stderr(output);
    Job { number, process: run.spawn().unwrap() }
}

/// Waits for all jobs. Each must exit with its code after exactly one stay, and stays must not overlap.
async fn all_end(jobs: &mut [Job], log: &Path) -> Log {
    for job in &mut *jobs {
        let what = format!("the exit of job {}", job.number);
        let status = until(&what, async || job.process.try_wait().unwrap()).await;
        assert_eq!(status.code(), Some(code_of(job.number)), "job {}: {status}", job.number);
    }
    let mut read = Log::default();
    read.read(&fs::read_to_string(log).unwrap()).unwrap_or_else(|wrong| panic!("{wrong}"));
    read.check(SLOTS as usize).unwrap_or_else(|wrong| panic!("{wrong}"));
    for job in jobs {
        assert_eq!(read.summary().of(job.number), 1, "job {} must run once", job.number);
    }
    println!("{} jobs, longest wait {:?}", read.summary().all(), Duration::from_nanos(read.longest_wait()));
    read
}

pub fn entered(log: &Path) -> usize {
    fs::read_to_string(log).unwrap_or_default().lines().filter(|line| line.starts_with("enter")).count()
}

pub struct Machine {
    dir: TempDir,
}

impl Machine {
    pub fn new() -> Self {
        Self { dir: tempfile::Builder::new().prefix("peerlock-").tempdir().unwrap() }
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    pub fn peerlock(&self, verb: &str) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_peerlock"));
        command.arg(verb).env_clear().env("PATH", std::env::var_os("PATH").unwrap());
        command.env("PEERLOCK_DATA_DIR", self.path("data")).env("PEERLOCK_RUNTIME_DIR", self.path(""));
        command
    }

    pub fn output(&self, name: &str) -> fs::File {
        fs::File::options().append(true).create(true).open(self.path(name)).unwrap()
    }

    pub fn agent(&self, options: &[&str]) -> Child {
        let mut command = self.peerlock("agent");
        command.args(["--listen", "127.0.0.1:0"]).args(options);
        command.stdin(Stdio::null()).stdout(self.output("agent.log")).stderr(self.output("agent.log"));
        command.spawn().unwrap()
    }

    pub fn pid(&self) -> Option<Pid> {
        let lock = fs::read_to_string(self.path("data/agent.lock")).ok()?;
        lock.lines().next()?.parse().ok().map(Pid::from_raw)
    }

    fn jobs(&self, numbers: std::ops::Range<u64>, log: &Path) -> Vec<Job> {
        self.jobs_that_stay(numbers, log, |number| Duration::from_millis(1000 + number % 4 * 700))
    }

    fn jobs_that_stay(&self, numbers: std::ops::Range<u64>, log: &Path, stay: impl Fn(u64) -> Duration) -> Vec<Job> {
        let one = |number: u64| {
            let output = self.output(&format!("job-{number}.log"));
            job(self.peerlock("run"), number, stay(number), (log, output))
        };
        numbers.map(one).collect()
    }

    pub fn is_running(pid: Pid) -> bool {
        fs::read_to_string(format!("/proc/{pid}/stat")).is_ok_and(|stat| !stat.contains(") Z "))
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let jobs = fs::read_dir(self.dir.path()).into_iter().flatten().flatten();
            let jobs = jobs.map(|file| file.path()).filter(|file| file.to_string_lossy().contains("/job-"));
            for file in ["data/agent.log", "agent.log", "jobs"].map(|file| self.path(file)).into_iter().chain(jobs) {
                let text = fs::read_to_string(&file).unwrap_or_default();
                let lines: Vec<&str> = text.lines().collect();
                if !lines.is_empty() {
                    eprintln!("--- {}\n{}", file.display(), lines[lines.len().saturating_sub(80)..].join("\n"));
                }
            }
        }
        // A zombie of the data directory's agent would keep its process ID.
        if let Some(pid) = self.pid().filter(|pid| Self::is_running(*pid)) {
            let _ = kill(pid, Signal::SIGKILL);
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Next {
    Silent,
    Supervisor,
    AnotherRun,
}

async fn jobs_outlive_their_agent(next: Next) {
    for round in 0..rounds(1) {
        let machine = Machine::new();
        let log = machine.path("jobs");
        let mut supervised = (next == Next::Supervisor).then(|| machine.agent(&[]));
        if supervised.is_some() {
            until("an agent", async || machine.path("agent.sock").exists().then_some(())).await;
        }
        let mut jobs = machine.jobs(0..JOBS, &log);
        for kills in 1..=3 {
            until("running jobs", async || (entered(&log) >= 5 * kills).then_some(())).await;
            let pid = machine.pid().expect("a running agent");
            kill(pid, Signal::SIGKILL).unwrap();
            match next {
                Next::Silent => {}
                Next::Supervisor => {
                    if let Some(agent) = &mut supervised {
                        agent.wait().unwrap();
                        sleep(Duration::from_millis(100)).await;
                        *agent = machine.agent(&[]);
                    }
                }
                Next::AnotherRun => {
                    let number = JOBS + kills as u64;
                    jobs.extend(machine.jobs(number..number + 1, &log));
                }
            }
            let another = || machine.pid().filter(|other| *other != pid && Machine::is_running(*other));
            until("another agent", async || another()).await;
        }
        println!("{next:?}, round {round}:");
        all_end(&mut jobs, &log).await;
        if let Some(mut agent) = supervised {
            let _ = agent.kill();
            let _ = agent.wait();
        }
    }
}

#[tokio::test]
async fn jobs_outlive_their_agent_and_restart_it() {
    jobs_outlive_their_agent(Next::Silent).await;
}

#[tokio::test]
async fn jobs_outlive_their_agent_and_await_its_supervisor() {
    jobs_outlive_their_agent(Next::Supervisor).await;
}

#[tokio::test]
async fn jobs_outlive_their_agent_and_find_the_next_one() {
    jobs_outlive_their_agent(Next::AnotherRun).await;
}

#[tokio::test]
async fn stopped_replaced_and_drained_agents_stop_no_job() {
    let machine = Machine::new();
    let log = machine.path("jobs");
    let mut first = machine.agent(&[]);
    until("an agent", async || machine.path("agent.sock").exists().then_some(())).await;
    let mut jobs = machine.jobs(0..JOBS, &log);
    until("running jobs", async || (entered(&log) >= 5).then_some(())).await;
    kill(Pid::from_raw(first.id().cast_signed()), Signal::SIGTERM).unwrap();
    assert!(first.wait().unwrap().success());
    // As in an upgrade: the jobs may have started an agent meanwhile.
    let mut second = machine.agent(&["--replace"]);
    until("running jobs", async || (entered(&log) >= 10).then_some(())).await;
    let mut third = machine.agent(&["--replace"]);
    assert!(second.wait().unwrap().success(), "the agent was replaced");
    all_end(&mut jobs, &log).await;
    // Long enough for two more commands on a busy machine.
    let mut last = machine.jobs_that_stay(JOBS..JOBS + 3, &log, |_| Duration::from_secs(8));
    until("running jobs", async || (entered(&log) >= JOBS as usize + 3).then_some(())).await;
    let drained = until("an answer", async || {
        let status = machine.peerlock("drain").args(["--wait", "0s"]).status().unwrap();
        (status.code() != Some(69)).then_some(status)
    })
    .await;
    assert_eq!(drained.code(), Some(75), "jobs still hold slots");
    let refused = machine.peerlock("run").args(["jobs", "--", "true"]).stderr(Stdio::null()).status().unwrap();
    assert_eq!(refused.code(), Some(69), "new requests are refused");
    all_end(&mut last, &log).await;
    assert!(third.wait().unwrap().success(), "the agent has left");
}

/// Several agents wait for the data directory: one that a command started, and two that replace the running one. Each
/// of them takes the directory over, or exits at once because another one has it.
#[tokio::test]
async fn concurrent_replacements_leave_one_agent() {
    let machine = Machine::new();
    let socket = machine.path("agent.sock");
    let mut first = machine.agent(&[]);
    until("an agent", async || std::os::unix::net::UnixStream::connect(&socket).ok().map(drop)).await;
    // As if started by a command that has found no agent.
    let mut late = machine.agent(&["--idle", "10m", "--detached"]);
    let late = until("its exit", async || late.try_wait().unwrap()).await;
    assert!(first.try_wait().unwrap().is_none() && !late.success(), "another agent runs: {late}");
    let mut both = [machine.agent(&["--replace"]), machine.agent(&["--replace"])];
    // After two signals the agent exits without an orderly end.
    assert!(matches!(first.wait().unwrap().code(), Some(0 | 143)), "the agent was replaced");
    let ended = until("one of them", async || both.iter_mut().find_map(|agent| agent.try_wait().unwrap())).await;
    assert!(matches!(ended.code(), Some(0 | 143)), "it was replaced, and did not time out: {ended}");
    until("the other", async || machine.peerlock("ls").status().unwrap().success().then_some(())).await;
    let pid = machine.pid().expect("a running agent");
    assert!(both.iter().any(|agent| agent.id().cast_signed() == pid.as_raw()), "the lock names the remaining agent");
    for agent in &mut both {
        let _ = agent.kill();
        let _ = agent.wait();
    }
}

#[tokio::test]
async fn rolling_upgrade_stops_no_job() {
    let mut world = World::new(SLOTS, Duration::from_secs(60), Duration::ZERO);
    let upgraded = world.path("peerlock-next");
    let commit = second_build(&upgraded);
    let version = Command::new(&upgraded).arg("--version").output().unwrap().stdout;
    assert!(String::from_utf8(version).unwrap().contains(&commit));
    let mut agents = world.cluster(5).await;
    let log = world.path("jobs");
    let sockets: Vec<PathBuf> = agents.iter().map(|agent| agent.socket.clone()).collect();
    let mut jobs = Vec::new();
    let more = |jobs: &mut Vec<Job>, count: u64| {
        for _ in 0..count {
            let number = jobs.len() as u64;
            let programs = [Path::new(env!("CARGO_BIN_EXE_peerlock")), &upgraded];
            let mut run = Command::new(programs[number as usize / 3 % 2]);
            run.arg("run").arg("--agent").arg(&sockets[number as usize % sockets.len()]);
            let stay = Duration::from_millis(300 + number % 5 * 300);
            jobs.push(job(run, number, stay, (&log, world.output("job", number))));
        }
    };
    more(&mut jobs, 15);
    for at in 0..5 {
        let before = entered(&log);
        until("running jobs", async || (entered(&log) >= before + 2).then_some(())).await;
        let old = agents.remove(at);
        agents.insert(at, world.replace(old, &upgraded).await);
        more(&mut jobs, 5);
    }
    all_end(&mut jobs, &log).await;
    for agent in &agents {
        let pid = agent.api.about().await.unwrap().pid;
        let program = fs::canonicalize(&upgraded).unwrap();
        assert_eq!(fs::read_link(format!("/proc/{pid}/exe")).unwrap(), program, "the other build is running");
    }
}
