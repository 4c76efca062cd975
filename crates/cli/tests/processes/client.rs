//! The clients: this very test program, started once more with orders in its environment.

use std::fs::{File, OpenOptions};
use std::io::Write as _;
use std::path::Path;
use std::time::Duration;

use nix::time::{ClockId, clock_gettime};
use peerlock::{Agent, Client, Error, Granted, Progress, Request};

/// Where a client finds its orders.
pub const ORDERS: &str = "PEERLOCK_TEST_CLIENT";

/// What a client does.
#[derive(Debug, Clone)]
pub struct Orders {
    pub number: u64,
    pub socket: String,
    pub log: String,
    pub slots: u32,
    pub ttl: Duration,
    /// How long it stays inside.
    pub stay: Duration,
    /// How often it goes in, unless there is a file `stop` beside the log.
    pub entries: u64,
    /// The slot is bound to the connection; else it is detached.
    pub hold: bool,
    /// It asks again when it was sent away, and waits for its agent when that is gone.
    pub persists: bool,
}

impl Orders {
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

/// The time on the clock that all processes of the machine read, and that goes on while they are frozen.
pub fn now() -> u64 {
    let time = clock_gettime(ClockId::CLOCK_BOOTTIME).unwrap();
    time.tv_sec() as u64 * 1_000_000_000 + time.tv_nsec() as u64
}

/// Appends a line to the log, in one piece.
pub fn append(log: &Path, line: &str) {
    open(log).write_all(format!("{line}\n").as_bytes()).unwrap();
}

fn open(log: &Path) -> File {
    OpenOptions::new().append(true).create(true).open(log).unwrap()
}

/// How soon a client that persists asks again.
const RETRY: Duration = Duration::from_millis(50);

/// Not a test: what a client runs.
#[test]
fn client() {
    if has_orders() {
        carry_out_orders();
    }
}

/// Whether this process is a client.
pub fn has_orders() -> bool {
    std::env::var_os(ORDERS).is_some()
}

/// Does what a client is to do.
pub fn carry_out_orders() {
    let orders = std::env::var(ORDERS).expect("orders");
    let mut client = Visitor::new(Orders::parse(&orders).expect("good orders"));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let outcome = runtime.block_on(client.run());
    if let Err(error) = outcome {
        client.write(&format!("error {} {} {error}", now(), client.orders.number));
        // Without the words of a failed test.
        std::process::exit(1);
    }
}

struct Visitor {
    orders: Orders,
    request: Request,
    agent: Client,
    log: File,
}

/// The resource that they all want.
pub const NAME: &str = "r";

impl Visitor {
    fn new(orders: Orders) -> Self {
        let request = Request::new(NAME).slots(orders.slots).ttl(orders.ttl).label(orders.number.to_string());
        let agent = Agent::at(orders.socket.parse().unwrap(), None).client();
        let log = open(Path::new(&orders.log));
        Self { orders, request, agent, log }
    }

    fn write(&mut self, line: &str) {
        self.log.write_all(format!("{line}\n").as_bytes()).unwrap();
    }

    async fn run(&mut self) -> Result<(), Error> {
        let stop = Path::new(&self.orders.log).with_file_name("stop");
        let mut entries = 0;
        while entries < self.orders.entries && !stop.exists() {
            match self.enter().await {
                Ok(inside) => entries += u64::from(inside),
                Err(error) if self.orders.persists => {
                    self.write(&format!("failed {} {} {error}", now(), self.orders.number));
                    tokio::time::sleep(RETRY).await;
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Once in and out. False if the slot was lost before it was used.
    async fn enter(&mut self) -> Result<bool, Error> {
        let (asked, number) = (now(), self.orders.number);
        self.write(&format!("ask {asked} {number}"));
        let (granted, held) = if self.orders.hold {
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
        let inside = self.stay(asked, &granted).await?;
        drop(held);
        Ok(inside)
    }

    async fn stay(&mut self, asked: u64, granted: &Granted) -> Result<bool, Error> {
        // It ends with its agent's session at the latest, whatever was asked for.
        let Granted { grant, fencing, slot, ttl, .. } = granted;
        let ttl = ttl.as_nanos() as u64;
        let mut until = asked + ttl;
        if now() + ttl / 2 > until {
            // It has waited for so long that it cannot tell when the lease began.
            let before = now();
            match self.agent.renew(NAME, grant).await {
                Ok(ttl) => until = before + ttl.as_nanos() as u64,
                Err(Error::Lost) => return Ok(false),
                Err(error) => return Err(error),
            }
        }
        let (number, from) = (self.orders.number, now());
        let inside = from < until;
        if inside {
            self.write(&format!("enter {from} {number} {fencing} {slot} {until}"));
            self.remain(granted, until).await;
            self.write(&format!("leave {} {number} {fencing} {slot}", now()));
        }
        match self.agent.release(NAME, grant).await {
            Ok(()) => {}
            Err(Error::Lost) if inside => {
                self.write(&format!("lost {} {number} {fencing} {slot}", now()));
            }
            Err(Error::Lost) => {}
            Err(error) => return Err(error),
        }
        Ok(inside)
    }

    /// Stays inside for as long as it was told to, and no longer than it is sure to be alone.
    async fn remain(&mut self, granted: &Granted, mut until: u64) {
        let Granted { grant, fencing, slot, .. } = granted;
        let (number, leave) = (self.orders.number, now() + self.orders.stay.as_nanos() as u64);
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
                // The agent may be gone: what it has said last counts.
                Err(_) => {}
            }
        }
    }
}
