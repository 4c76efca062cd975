//! Agents and clients as processes.

use std::cell::RefCell;
use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{Read as _, Seek as _, SeekFrom, Write as _};
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use peerlock::{Request, Voter};
use peerlock_http::client::Agent as Api;
use peerlock_types::{PeerId, Rng};
use tempfile::TempDir;

use super::checker::{Log, Summary};
use super::client::{TASK, Task, append, now};
use super::secret::secret_of;

/// The limit of every wait, which even a machine with ten times the load does not reach.
pub const DEADLINE: Duration = Duration::from_secs(120);

pub const SESSION: Duration = Duration::from_secs(3);

/// Longer than any test: for leases that do not expire, and stays that a kill ends.
pub const AN_HOUR: Duration = Duration::from_secs(3_600);
pub const BRIEF: Duration = Duration::from_millis(5);
/// The number of stays of a client that continues until [`World::stop`].
pub const ENDLESS: u64 = u64::MAX;

pub const ANY_PORT: SocketAddr = SocketAddr::V4(SocketAddrV4::new(Ipv4Addr::LOCALHOST, 0));

pub struct Process {
    child: Child,
    pub number: u64,
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Process {
    pub fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(self.child.id().cast_signed()), signal).unwrap();
    }

    /// Stops the process, and returns when all its threads are stopped, which the signal reaches one after the other.
    pub async fn freeze(&self) {
        self.signal(Signal::SIGSTOP);
        let tasks = format!("/proc/{}/task", self.child.id());
        until("a frozen process", async || {
            let mut threads = fs::read_dir(&tasks).unwrap().map(|task| {
                // The state follows the name, which is in parentheses.
                let stat = fs::read_to_string(task.unwrap().path().join("stat")).unwrap_or_default();
                stat.rsplit(") ").next().is_some_and(|rest| rest.starts_with('T'))
            });
            threads.all(|stopped| stopped).then_some(())
        })
        .await;
    }

    pub async fn ends(&mut self) -> ExitStatus {
        let what = format!("the exit of process {}", self.number);
        until(&what, async || self.child.try_wait().unwrap()).await
    }

    /// Returns the processor time, in clock ticks of 10 ms, and the memory in bytes.
    pub fn cost(&self) -> (u64, u64) {
        let stat = fs::read_to_string(format!("/proc/{}/stat", self.child.id())).unwrap();
        // The second field is the name in parentheses; numbers follow from the third on.
        let words: Vec<&str> = stat.rsplit(") ").next().unwrap().split(' ').collect();
        let number = |field: usize| words[field - 3].parse::<u64>().unwrap();
        (number(14) + number(15), number(24) * 4096)
    }

    pub fn has_ended(&mut self) -> bool {
        self.child.try_wait().unwrap().is_some()
    }
}

pub struct Agent {
    pub process: Process,
    pub socket: PathBuf,
    pub address: SocketAddr,
    pub api: Api,
    command: Vec<OsString>,
}

pub struct Started {
    pub process: Process,
    pub socket: PathBuf,
    command: Vec<OsString>,
}

/// The directory and the settings of a test. Prints the ends of all logs if the test fails.
pub struct World {
    dir: TempDir,
    pub seed: u64,
    pub rng: Rng,
    pub slots: u32,
    pub ttl: Duration,
    pub stay: Duration,
    pub session: Option<Duration>,
    pub persists: bool,
    pub env: Vec<(String, String)>,
    clients: u64,
    agents: u64,
    log: RefCell<(u64, Log)>,
}

impl Drop for World {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("seed {} (PEERLOCK_SEED)", self.seed);
            if std::env::var_os("PEERLOCK_KEEP").is_some() {
                self.dir.disable_cleanup(true);
                eprintln!("all files remain in {}", self.dir.path().display());
            }
            let mut files: Vec<_> = fs::read_dir(self.dir.path()).unwrap().map(|file| file.unwrap().path()).collect();
            files.sort();
            for file in files.iter().filter(|file| file.extension().is_some_and(|extension| extension == "log")) {
                let text = fs::read_to_string(file).unwrap_or_default();
                let lines: Vec<&str> = text.lines().collect();
                let tail = &lines[lines.len().saturating_sub(15)..];
                if !tail.is_empty() {
                    eprintln!("--- {}\n{}", file.file_name().unwrap().display(), tail.join("\n"));
                }
            }
        }
    }
}

pub async fn until<T>(what: &str, mut answer: impl AsyncFnMut() -> Option<T>) -> T {
    let answered = async {
        loop {
            if let Some(answer) = answer().await {
                return answer;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(DEADLINE, answered).await.unwrap_or_else(|_| panic!("{what}: nothing after {DEADLINE:?}"))
}

impl World {
    pub fn new(slots: u32, ttl: Duration, stay: Duration) -> Self {
        let seed = std::env::var("PEERLOCK_SEED").map_or(1, |seed| seed.parse().expect("PEERLOCK_SEED is a number"));
        let dir = tempfile::Builder::new().prefix("peerlock-").tempdir().unwrap();
        Self {
            dir,
            seed,
            rng: Rng::new(seed),
            slots,
            ttl,
            stay,
            session: None,
            persists: false,
            env: Vec::new(),
            clients: 0,
            agents: 0,
            log: RefCell::default(),
        }
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    pub fn log(&self) -> PathBuf {
        self.path("clients.log")
    }

    pub fn agent_command(&mut self, address: SocketAddr, join: &[SocketAddr], secret: &str) -> (Command, PathBuf) {
        self.agents += 1;
        let number = self.agents;
        let socket = self.path(&format!("a{number}.sock"));
        let mut command = Command::new(env!("CARGO_BIN_EXE_peerlock"));
        command.arg("agent").arg("--listen").arg(address.to_string());
        for join in join {
            command.arg("--join").arg(join.to_string());
        }
        command.arg("--secret-file").arg(self.secret(secret));
        command.arg("--data-dir").arg(self.path(&format!("a{number}.data")));
        command.arg("--http").arg(&socket).envs(self.env.clone());
        if let Some(session) = self.session {
            command.arg("--session").arg(format!("{}ms", session.as_millis()));
        }
        command.stdin(Stdio::null()).stdout(self.output("agent", number)).stderr(self.output("agent", number));
        (command, socket)
    }

    pub fn agents(&self) -> u64 {
        self.agents
    }

    pub fn output(&self, what: &str, number: u64) -> File {
        let path = self.path(&format!("{what}-{number:02}.log"));
        File::options().append(true).create(true).open(path).unwrap()
    }

    pub fn output_of(&self, agent: u64) -> String {
        fs::read_to_string(self.path(&format!("agent-{agent:02}.log"))).unwrap()
    }

    fn secret(&self, name: &str) -> PathBuf {
        use std::os::unix::fs::OpenOptionsExt as _;
        let path = self.path(&format!("{name}.secret"));
        if !path.exists() {
            let mut file = File::options().write(true).create_new(true).mode(0o600).open(&path).unwrap();
            std::io::Write::write_all(&mut file, secret_of(name).as_bytes()).unwrap();
        }
        path
    }

    pub async fn agent(&mut self, join: &[SocketAddr]) -> Agent {
        let (command, socket) = self.agent_command(ANY_PORT, join, "ours");
        self.start_agent(command, socket).await
    }

    pub async fn start_agent(&self, command: Command, socket: PathBuf) -> Agent {
        self.answers(self.launch(command, socket)).await
    }

    pub fn launch(&self, command: Command, socket: PathBuf) -> Started {
        let words = [command.get_program()].into_iter().chain(command.get_args()).map(OsString::from).collect();
        Started { process: self.spawn(command), socket, command: words }
    }

    pub async fn restart(&self, agent: Agent) -> Agent {
        self.answers(self.relaunch(agent)).await
    }

    /// Restarts an agent without --join, which its data directory makes unnecessary.
    pub fn relaunch(&self, mut agent: Agent) -> Started {
        while let Some(index) = agent.command.iter().position(|word| word == "--join") {
            agent.command.drain(index..index + 2);
        }
        self.relaunch_as_before(agent)
    }

    /// Restarts an agent with the same command, at its previous port.
    pub fn relaunch_as_before(&self, agent: Agent) -> Started {
        let Agent { process, socket, address, mut command, .. } = agent;
        let number = process.number;
        drop(process);
        if let Some(listens) = command.iter_mut().find(|word| **word == *ANY_PORT.to_string()) {
            *listens = address.to_string().into();
        }
        let mut again = Command::new(&command[0]);
        again.args(&command[1..]).envs(self.env.clone()).stdin(Stdio::null());
        again.stdout(self.output("agent", number)).stderr(self.output("agent", number));
        Started { process: Process { child: again.spawn().unwrap(), number }, socket, command }
    }

    pub async fn replace(&self, mut old: Agent, program: &Path) -> Agent {
        let mut command = old.command.clone();
        command[0] = program.into();
        if let Some(listens) = command.iter_mut().find(|word| **word == *ANY_PORT.to_string()) {
            *listens = old.address.to_string().into();
        }
        let mut next = Command::new(&command[0]);
        let number = old.process.number;
        next.args(&command[1..]).arg("--replace").stdin(Stdio::null());
        next.stdout(self.output("agent", number)).stderr(self.output("agent", number));
        let process = Process { child: next.spawn().unwrap(), number };
        assert!(old.process.ends().await.success(), "agent {number} was replaced");
        self.answers(Started { process, socket: old.socket.clone(), command }).await
    }

    pub async fn answers(&self, started: Started) -> Agent {
        let Started { mut process, socket, command } = started;
        let api = api_at(&socket);
        until("an agent that answers", async || {
            assert!(!process.has_ended(), "agent {} has exited", process.number);
            api.peers().await.ok()
        })
        .await;
        let log = self.output_of(process.number);
        let address = log.split(" peer started host=").last().and_then(|rest| rest.split("address=").nth(1));
        let address = address.and_then(|rest| rest.split(' ').next()).expect("an address in its log").parse().unwrap();
        Agent { process, socket, address, api, command }
    }

    pub async fn restart_all(&self, agents: Vec<Agent>) -> Vec<Agent> {
        let started: Vec<_> = agents.into_iter().map(|agent| self.relaunch(agent)).collect();
        let mut again = Vec::new();
        for agent in started {
            again.push(self.answers(agent).await);
        }
        again
    }

    pub async fn cluster(&mut self, agents: usize) -> Vec<Agent> {
        let mut all: Vec<Agent> = vec![self.agent(&[]).await];
        while all.len() < agents {
            let join = [all[0].address];
            all.push(self.agent(&join).await);
        }
        meet(&all, agents).await;
        all
    }

    pub fn spawn(&self, mut command: Command) -> Process {
        Process { child: command.spawn().unwrap(), number: self.agents }
    }

    pub fn client(&mut self, agent: &Agent, entries: u64, hold: bool) -> Process {
        self.clients += 1;
        let task = Task {
            number: self.clients,
            socket: agent.socket.to_str().unwrap().to_owned(),
            log: self.log().to_str().unwrap().to_owned(),
            slots: self.slots,
            ttl: self.ttl,
            stay: self.stay,
            entries,
            hold,
            persists: self.persists,
        };
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["client::client", "--exact", "--nocapture"]).env(TASK, task.to_text());
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(self.output("client", self.clients));
        Process { child: command.spawn().unwrap(), number: self.clients }
    }

    pub fn kill(&self, client: &Process) {
        append(&self.log(), &format!("killed {} {}", now(), client.number));
        client.signal(Signal::SIGKILL);
    }

    pub fn stop(&self) {
        fs::write(self.path("stop"), "").unwrap();
    }

    pub fn tally(&self) -> Summary {
        self.with_log(|log| log.summary().clone())
    }

    pub fn check(&self) -> Summary {
        self.with_log(|log| log.check(self.slots as usize)).unwrap_or_else(|wrong| panic!("{wrong}"));
        self.tally()
    }

    pub fn with_log<T>(&self, look: impl FnOnce(&Log) -> T) -> T {
        let mut log = self.log.borrow_mut();
        let (read, log) = &mut *log;
        let mut text = Vec::new();
        if let Ok(mut file) = File::open(self.log()) {
            file.seek(SeekFrom::Start(*read)).unwrap();
            file.read_to_end(&mut text).unwrap();
        }
        // The last line may be incomplete.
        text.truncate(text.iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end + 1));
        *read += text.len() as u64;
        log.read(std::str::from_utf8(&text).unwrap()).unwrap_or_else(|wrong| panic!("{wrong}"));
        look(log)
    }

    pub async fn more(&self, entries: usize) {
        let enough = self.tally().all() + entries;
        until("more entries", async || (self.tally().all() >= enough).then_some(())).await;
    }
}

pub fn rounds(usually: usize) -> usize {
    std::env::var("ROUNDS").map_or(usually, |rounds| rounds.parse().expect("ROUNDS is a number"))
}

pub fn api_at(socket: &Path) -> Api {
    Api::new(socket.to_str().unwrap().parse().unwrap(), None)
}

pub async fn served(world: &World, clients: impl IntoIterator<Item = &Process>) {
    let before = world.tally();
    for client in clients {
        let number = client.number;
        until(&format!("stays of client {number}"), async || {
            let summary = world.tally();
            if let Some((_, why)) = summary.errors.iter().find(|(client, _)| *client == number) {
                panic!("client {number} has exited: {why}");
            }
            (summary.of(number) >= before.of(number) + 3).then_some(())
        })
        .await;
    }
}

pub async fn agent_of(agents: &[Agent], find: impl AsyncFn() -> Option<PeerId>) -> usize {
    until("the wanted agent", async || {
        let peer = find().await?;
        for (index, agent) in agents.iter().enumerate() {
            if agent.api.peers().await.ok()?.first()?.peer == peer {
                return Some(index);
            }
        }
        None
    })
    .await
}

pub async fn meet(agents: &[Agent], up: usize) {
    for agent in agents {
        until("peers that know each other", async || {
            let peers = agent.api.peers().await.ok()?;
            (peers.iter().filter(|peer| peer.up).count() == up).then_some(())
        })
        .await;
    }
}

/// Waits until this many agents vote and the change of voters is complete. Until then a majority of the old voters is
/// needed as well, so a failure may stop the cluster.
pub async fn voted(agents: &[Agent], voters: usize) {
    until(&format!("{voters} voters"), async || {
        let peers = agents[0].api.cluster().await.ok()?.peers;
        let vote = peers.iter().filter(|peer| matches!(peer.voter, Voter::Votes | Voter::Leads)).count();
        (vote == voters).then_some(())
    })
    .await;
    // With the same leader, the first grant is decided after the entry that ends the change, and the second one makes
    // that decision known to a majority.
    for decision in ["left", "settled"] {
        let name = format!("{decision} {}", now());
        let founds = Request::new(name.as_str()).try_only();
        let granted = until("a decision", async || agents[0].api.acquire(&founds).await.ok()).await;
        _ = agents[0].api.release(&name, &granted.grant).await;
    }
}

pub async fn until_written(path: &Path, words: &str) {
    until(&format!("{words:?} in {}", path.display()), async || {
        fs::read_to_string(path).unwrap_or_default().contains(words).then_some(())
    })
    .await;
}

pub fn metric(agent: &Agent, name: &str) -> u64 {
    let mut stream = UnixStream::connect(&agent.socket).unwrap();
    stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix("peerlock_")?.strip_prefix(name)?.strip_prefix(' '));
    line.unwrap_or_else(|| panic!("{text}")).parse().unwrap()
}
