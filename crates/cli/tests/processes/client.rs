//! The clients: this test program, started with a task in its environment.

use std::fs::{File, OpenOptions};
use std::io::Write as _;
use std::path::Path;
use std::time::Duration;

use nix::time::{ClockId, clock_gettime};
use peerlock::{Agent, Client, Error, Granted, Progress, Request};

pub const TASK: &str = "PEERLOCK_TEST_CLIENT";

#[derive(Debug, Clone)]
pub struct Task {
    pub number: u64,
    pub socket: String,
    pub log: String,
    pub slots: u32,
    pub ttl: Duration,
    pub stay: Duration,
    /// How often it acquires a slot, unless a file `stop` appears beside the log.
    pub entries: u64,
    /// Whether its grants are bound to a connection; otherwise they are detached.
    pub hold: bool,
    /// Whether it continues after an error, even while its agent is absent.
    pub persists: bool,
}

impl Task {
    pub fn to_text(&self) -> String {
        let Self { number, socket, log, slots, ttl, stay, entries, hold, persists } = self;
        let (ttl, stay) = (ttl.as_millis(), stay.as_micros());
        format!("{number}\n{socket}\n{log}\n{slots}\n{ttl}\n{stay}\n{entries}\n{hold}\n{persists}")
    }

    fn parse(text: &str) -> Option<Self> {
        let mut lines = text.lines();
        Some(Self {
            number: lines.next()?.parse().ok()?,
            socket: lines.next()?.to_owned(),
            log: lines.next()?.to_owned(),
            slots: lines.next()?.parse().ok()?,
            ttl: Duration::from_millis(lines.next()?.parse().ok()?),
            stay: Duration::from_micros(lines.next()?.parse().ok()?),
            entries: lines.next()?.parse().ok()?,
            hold: lines.next()?.parse().ok()?,
            persists: lines.next()?.parse().ok()?,
        })
    }
}

/// Returns the time of a clock that all processes of the machine share, and that also runs while they are frozen.
pub fn now() -> u64 {
    let time = clock_gettime(ClockId::CLOCK_BOOTTIME).unwrap();
    time.tv_sec() as u64 * 1_000_000_000 + time.tv_nsec() as u64
}

pub fn append(log: &Path, line: &str) {
    open(log).write_all(format!("{line}\n").as_bytes()).unwrap();
}

fn open(log: &Path) -> File {
    OpenOptions::new().append(true).create(true).open(log).unwrap()
}

const RETRY: Duration = Duration::from_millis(50);

/// Not a test, but the main function of a client.
#[test]
fn client() {
    if is_client() {
        run_task();
    }
}

pub fn is_client() -> bool {
    std::env::var_os(TASK).is_some()
}

pub fn run_task() {
    let task = std::env::var(TASK).expect("task");
    let mut client = TaskRun::new(Task::parse(&task).expect("good task"));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let outcome = runtime.block_on(client.run());
    if let Err(error) = outcome {
        client.write(&format!("error {} {} {error}", now(), client.task.number));
        // A panic would print the message of a failed test.
        std::process::exit(1);
    }
}

struct TaskRun {
    task: Task,
    request: Request,
    agent: Client,
    log: File,
}

pub const NAME: &str = "r";

impl TaskRun {
    fn new(task: Task) -> Self {
        let request = Request::new(NAME).slots(task.slots).ttl(task.ttl).label(task.number.to_string());
        let agent = Agent::at(task.socket.parse().unwrap(), None).client();
        let log = open(Path::new(&task.log));
        Self { task, request, agent, log }
    }

    fn write(&mut self, line: &str) {
        self.log.write_all(format!("{line}\n").as_bytes()).unwrap();
    }

    async fn run(&mut self) -> Result<(), Error> {
        let stop = Path::new(&self.task.log).with_file_name("stop");
        let mut entries = 0;
        while entries < self.task.entries && !stop.exists() {
            match self.enter().await {
                Ok(used) => entries += u64::from(used),
                Err(error) if self.task.persists => {
                    self.write(&format!("failed {} {} {error}", now(), self.task.number));
                    tokio::time::sleep(RETRY).await;
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Acquires and releases a slot once. Returns false if the slot was lost before it was used.
    async fn enter(&mut self) -> Result<bool, Error> {
        let (asked, number) = (now(), self.task.number);
        self.write(&format!("ask {asked} {number}"));
        let (granted, held) = if self.task.hold {
            let (log, mut waits) = (&mut self.log, false);
            let queued = |place: Progress| {
                if let Some(ahead) = place.ahead.filter(|_| !std::mem::replace(&mut waits, true)) {
                    log.write_all(format!("waits {} {number} {ahead}\n", now()).as_bytes()).unwrap();
                }
            };
            match self.agent.hold(&self.request, queued).await {
                Ok(hold) => (hold.granted().clone(), Some(hold)),
                Err(Error::Lost) => return Ok(false),
                Err(error) => return Err(error),
            }
        } else {
            (self.agent.acquire_detached(&self.request).await?, None)
        };
        let used = self.stay(asked, &granted).await?;
        drop(held);
        Ok(used)
    }

    async fn stay(&mut self, asked: u64, granted: &Granted) -> Result<bool, Error> {
        let Granted { grant, fencing, slot, ttl, .. } = granted;
        let ttl = ttl.as_nanos() as u64;
        let mut until = asked + ttl;
        if now() + ttl / 2 > until {
            // After a long wait, the beginning of the lease is unknown.
            let before = now();
            match self.agent.renew(NAME, grant).await {
                Ok(ttl) => until = before + ttl.as_nanos() as u64,
                Err(Error::Lost) => return Ok(false),
                Err(error) => return Err(error),
            }
        }
        let (number, from) = (self.task.number, now());
        let used = from < until;
        if used {
            self.write(&format!("enter {from} {number} {fencing} {slot} {until}"));
            self.remain(granted, until).await;
            self.write(&format!("leave {} {number} {fencing} {slot}", now()));
        }
        match self.agent.release(NAME, grant).await {
            Ok(()) => {}
            Err(Error::Lost) if used => {
                self.write(&format!("lost {} {number} {fencing} {slot}", now()));
            }
            Err(Error::Lost) => {}
            Err(error) => return Err(error),
        }
        Ok(used)
    }

    async fn remain(&mut self, granted: &Granted, mut until: u64) {
        let Granted { grant, fencing, slot, .. } = granted;
        let (number, leave) = (self.task.number, now() + self.task.stay.as_nanos() as u64);
        loop {
            let time = now();
            if time >= leave.min(until) {
                return;
            }
            let pause = (leave - time).min((until - time) / 3).max(1_000_000);
            tokio::time::sleep(Duration::from_nanos(pause)).await;
            if now() >= leave {
                return;
            }
            let before = now();
            match self.agent.renew(NAME, grant).await {
                Ok(ttl) => {
                    until = before + ttl.as_nanos() as u64;
                    self.write(&format!("renewed {before} {number} {fencing} {slot} {until}"));
                }
                Err(Error::Lost) => return,
                // Without a reply, the last confirmed lease counts.
                Err(_) => {}
            }
        }
    }
}
