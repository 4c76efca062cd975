//! The parent: starts, kills and stops the processes, and has their records checked.

use std::io::{self, BufReader};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::Duration;

use peerlock_catalogue::Setting;
use peerlock_sim::{Report, Share};
use peerlock_types::{PeerId, Span, Time};

use crate::clock::{self, Pace, Reading};
use crate::judge::Judge;
use crate::kill::{Kill, Target};
use crate::machine::Machine;
use crate::stats::Stats;
use crate::wire::{ChildReport, Order, Prepare};
use crate::{Error, check, frame};

#[derive(Clone, Debug)]
pub struct Options {
    pub program: PathBuf,
    /// The machines of the processes, in turns; this one if empty.
    pub machines: Vec<Machine>,
    pub processes: usize,
    pub speed: u32,
    pub kills: Vec<Kill>,
    /// The time of a partition between the halves of the processes.
    pub cut: Option<(Span, Span)>,
    /// The time without an acquisition after which the run is aborted.
    pub patience: Span,
}

#[derive(Debug)]
pub struct Live {
    pub report: Report,
    pub processes: usize,
    pub deaths: Vec<Death>,
    pub spared: Vec<Kill>,
    /// The largest error between the times of two processes, in real time; zero on one machine.
    pub clocks_apart: Duration,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Death {
    pub trial: u32,
    pub peers: Vec<PeerId>,
    pub at: Time,
    pub before: u64,
    pub after: u64,
    pub goes_on: Option<Span>,
}

const TIMEOUT: Duration = Duration::from_secs(60);

/// The time until the start, in which all processes are notified.
const START_DELAY: u64 = 50_000_000;

/// The number of readings of a remote clock, of which the fastest counts.
const READINGS: u32 = 20;

const LOOPBACK: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

const MOST_PROCESSES: usize = 256;

/// Runs all trials of a setting. `progress` is called for every acquisition.
///
/// # Errors
///
/// Returns an error if the setting cannot run on sockets, a process failed, or a rule was violated.
pub fn run(setting: &Setting, options: &Options, progress: &dyn Fn(u64)) -> Result<Live, Error> {
    check(setting)?;
    if setting.churn > Some(0) && !options.kills.is_empty() {
        return Err(Error::Refused("churn replaces peers at random: leave out --kill or churn".into()));
    }
    let mut setting = setting.clone();
    if !options.kills.is_empty() || options.cut.is_some() {
        // With a fault, peers maintain the overlay, and unexpected messages are no violation.
        setting = setting.with_detection(DETECTION);
    }
    let apart = apart(&setting, options)?;
    let processes = options.processes.max(1) + apart.len();
    if options.cut.is_some() && processes < 2 {
        return Err(Error::Refused("a partition needs two processes: use --processes".into()));
    }
    let (mut trials, mut deaths, mut spared, mut clocks_apart) = <(Vec<_>, Vec<_>, Vec<_>, Duration)>::default();
    for trial in 0..setting.trials() {
        let mut run = Run::start(&setting, trial, options, &apart)?;
        run.play(progress)?;
        clocks_apart = clocks_apart.max(run.clocks_apart()?);
        let stats = run.end()?;
        deaths.extend(stats.deaths());
        spared.extend(stats.spared);
        trials.push(stats.trial);
    }
    let judged = setting.drive(Judge(trials)).map_err(peerlock_catalogue::Error::from)?;
    let report = judged.map_err(Error::Refused)?.map_err(peerlock_catalogue::Error::from)?;
    Ok(Live { report, processes, deaths, spared, clocks_apart })
}

const DETECTION: Span = Span::from_secs(5);

/// Returns the peers with their own process: the potential victims.
fn apart(setting: &Setting, options: &Options) -> Result<Vec<PeerId>, Error> {
    let all = setting.hosts() as u64;
    let by_number = |kill: &Kill| match kill.target {
        Target::Peer(peer) => Some(peer),
        _ => None,
    };
    let named: Option<Vec<PeerId>> = options.kills.iter().map(by_number).collect();
    let mut apart = named.unwrap_or_else(|| (0..all).map(PeerId::new).collect());
    apart.sort_unstable();
    apart.dedup();
    if let Some(peer) = apart.iter().find(|peer| peer.get() >= all) {
        return Err(Error::Refused(format!("cannot kill peer {peer}: peers are numbered from 0 to {}", all - 1)));
    }
    if apart.len() + options.processes > MOST_PROCESSES {
        return Err(Error::Refused(format!(
            "{} processes exceed the limit of {MOST_PROCESSES}: every potential victim has its own; use fewer peers, \
             or name the victims",
            apart.len() + options.processes
        )));
    }
    Ok(apart)
}

/// The process, its incarnation, and a report; `None` at the end of its output.
type Received = (usize, u32, Option<ChildReport>);

struct Run<'a> {
    setting: &'a Setting,
    options: &'a Options,
    trial: u32,
    share: Share,
    key: [u8; 16],
    workers: Vec<Worker>,
    reports: Sender<Received>,
    received: Receiver<Received>,
    pace: Pace,
    stats: Stats,
    open: Vec<(usize, u32)>,
    is_cut: bool,
}

struct Worker {
    child: Option<Child>,
    orders: Option<ChildStdin>,
    incarnation: u32,
    address: Option<SocketAddr>,
    clock_value: Option<u64>,
    clock: Reading,
    is_linked: bool,
    is_served: bool,
    has_counted: bool,
    records: Vec<u8>,
}

impl Drop for Run<'_> {
    fn drop(&mut self) {
        for child in self.workers.iter_mut().filter_map(|worker| worker.child.as_mut()) {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

impl<'a> Run<'a> {
    fn start(setting: &'a Setting, trial: u32, options: &'a Options, apart: &[PeerId]) -> Result<Self, Error> {
        let mut key = [0; 16];
        getrandom::fill(&mut key).map_err(|error| Error::Refused(format!("no random numbers: {error}")))?;
        let share = Share { me: 0, together: options.processes.max(1), apart: apart.to_vec() };
        let (reports, received) = channel();
        let pace = Pace { started: u64::MAX, speed: options.speed };
        let (workers, stats, open, is_cut) = (Vec::new(), Stats::default(), Vec::new(), false);
        let mut run =
            Self { setting, options, trial, share, key, workers, reports, received, pace, stats, open, is_cut };
        for process in 0..run.share.processes() {
            let worker = run.spawn(process, 0)?;
            run.workers.push(worker);
        }
        run.until("start", |worker| worker.address.is_some())?;
        let addresses = run.addresses();
        (0..run.workers.len()).try_for_each(|process| run.order(process, &Order::Meet(addresses.clone())))?;
        run.until("connect", |worker| worker.is_linked)?;
        Ok(run)
    }

    fn addresses(&self) -> Vec<Option<SocketAddr>> {
        self.workers.iter().map(|worker| worker.address.filter(|_| worker.child.is_some())).collect()
    }

    fn machine(&self, process: usize) -> Option<&'a Machine> {
        let machines = &self.options.machines;
        machines.get(process % machines.len().max(1))
    }

    fn address(&self, process: usize) -> IpAddr {
        self.machine(process).map_or(LOOPBACK, |machine| machine.address)
    }

    fn spawn(&mut self, process: usize, incarnation: u32) -> Result<Worker, Error> {
        let mut command = self.machine(process).map_or_else(|| local(&self.options.program), Machine::child);
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().map_err(Error::io("start a process of the run"))?;
        let (orders, out) = (child.stdin.take(), child.stdout.take());
        let reports = self.reports.clone();
        thread::spawn(move || {
            let mut out = BufReader::new(out.expect("its output is piped"));
            while let Ok(Some(report)) = frame::read_value(&mut out) {
                let _ = reports.send((process, incarnation, Some(report)));
            }
            let _ = reports.send((process, incarnation, None));
        });
        self.open.push((process, incarnation));
        let mut worker = Worker {
            child: Some(child),
            orders,
            incarnation,
            address: None,
            clock_value: Some(0),
            clock: Reading::default(),
            is_linked: false,
            is_served: false,
            has_counted: false,
            records: Vec::new(),
        };
        let prepare = Prepare {
            setting: serde_json::to_string(self.setting).expect("a setting is strings, numbers and booleans"),
            trial: self.trial,
            share: Share { me: process, ..self.share.clone() },
            address: self.address(process),
            key: self.key,
            resumes: incarnation > 0,
        };
        emit(&mut worker, process, &Order::Prepare(Box::new(prepare)))?;
        Ok(worker)
    }

    fn order(&mut self, process: usize, order: &Order) -> Result<(), Error> {
        match &mut self.workers[process] {
            worker if worker.child.is_some() => emit(worker, process, order),
            _ => Ok(()), // The process is dead.
        }
    }

    fn until(&mut self, action: &str, is_done: impl Fn(&Worker) -> bool) -> Result<(), Error> {
        let last = clock::now() + TIMEOUT.as_nanos() as u64;
        while let Some(late) = self.workers.iter().position(|worker| worker.child.is_some() && !is_done(worker)) {
            let patience = Duration::from_nanos(last.saturating_sub(clock::now()));
            match self.received.recv_timeout(patience) {
                Ok(received) => self.on_received(received, &|_| ())?,
                Err(_) => {
                    let why = format!("it did not {action} within {} s", TIMEOUT.as_secs());
                    return Err(Error::Child { process: late, why });
                }
            }
        }
        Ok(())
    }

    fn on_received(&mut self, (process, incarnation, report): Received, progress: &dyn Fn(u64)) -> Result<(), Error> {
        let (now, address) = (self.pace.now(), self.address(process));
        if report.is_none() {
            self.open.retain(|one| *one != (process, incarnation));
        }
        let worker = &mut self.workers[process];
        if let Some(ChildReport::Records(bytes, updates)) = report {
            worker.records.extend(bytes);
            let lives = incarnation == worker.incarnation && worker.child.is_some();
            updates.into_iter().for_each(|(at, update)| self.stats.record(now, at, update, lives, progress));
            return Ok(());
        }
        if incarnation != worker.incarnation {
            return Ok(()); // The process was killed.
        }
        match report {
            Some(ChildReport::Ready(port)) => worker.address = Some(SocketAddr::new(address, port)),
            Some(ChildReport::Clock(value)) => worker.clock_value = Some(value),
            Some(ChildReport::Linked) => worker.is_linked = true,
            Some(ChildReport::Served(is_served)) => worker.is_served = is_served,
            Some(ChildReport::Counted(counted)) => {
                worker.has_counted = true;
                self.stats.trial.counted.push(counted);
            }
            Some(ChildReport::Failed(why)) => return Err(Error::Child { process, why }),
            Some(ChildReport::Records(..)) => {}
            None if worker.child.is_none() || worker.has_counted => {}
            None => return Err(Error::Child { process, why: "it exited before the end of the run".into() }),
        }
        Ok(())
    }

    /// Starts the run in a process, by its own clock.
    fn begin(&mut self, process: usize) -> Result<(), Error> {
        let started = self.workers[process].clock.convert(self.pace.started);
        self.order(process, &Order::Begin(Pace { started, ..self.pace }))
    }

    /// Reads the clock of a process on another machine. The fastest of several answers is the most exact.
    fn read_clock(&mut self, process: usize) -> Result<Reading, Error> {
        let mut best: Option<Reading> = None;
        let times = if self.machine(process).is_some() { READINGS } else { 0 };
        for _ in 0..times {
            let sent = clock::now();
            self.workers[process].clock_value = None;
            self.order(process, &Order::Clock)?;
            self.until("send its clock", |worker| worker.clock_value.is_some())?;
            let received = clock::now();
            if let Some(value) = self.workers[process].clock_value {
                let reading = Reading::of(sent, value, received);
                best = Some(best.filter(|best| best.error <= reading.error).unwrap_or(reading));
            }
        }
        Ok(best.unwrap_or_default())
    }

    /// Returns the largest error between the times of two processes: the error of both readings, plus the drift since.
    fn clocks_apart(&mut self) -> Result<Duration, Error> {
        let mut worst = 0;
        for process in 0..self.workers.len() {
            if self.workers[process].child.is_some() {
                let now = self.read_clock(process)?;
                worst = worst.max(self.workers[process].clock.error_by(now));
            }
        }
        Ok(Duration::from_nanos(2 * worst))
    }

    fn play(&mut self, progress: &dyn Fn(u64)) -> Result<(), Error> {
        for process in 0..self.workers.len() {
            self.workers[process].clock = self.read_clock(process)?;
        }
        self.pace.started = clock::now() + START_DELAY;
        for process in 0..self.workers.len() {
            self.begin(process)?;
        }
        let mut schedule: Vec<(Time, Action)> = self.schedule();
        loop {
            while let Some(&(at, action)) = schedule.first()
                && at <= self.pace.now()
            {
                schedule.remove(0);
                if let Some(later) = self.inject(action)? {
                    schedule.push(later);
                    schedule.sort_by_key(|(at, _)| *at);
                }
            }
            let is_served = self.workers.iter().all(|worker| worker.child.is_none() || worker.is_served);
            let is_stuck = self.pace.now().since(self.stats.last_entry) > self.options.patience;
            if schedule.is_empty() && (is_served || is_stuck) {
                return Ok(());
            }
            let next = schedule.first().map_or(Duration::from_millis(100), |(at, _)| self.pace.until(*at));
            match self.received.recv_timeout(next.min(Duration::from_millis(100))) {
                Ok(received) => self.on_received(received, progress)?,
                Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => {}
            }
        }
    }

    fn schedule(&self) -> Vec<(Time, Action)> {
        let kills = self.options.kills.iter().map(|kill| (Time::ZERO + kill.after, Action::Kill(*kill)));
        let cut = self.options.cut.into_iter();
        let cuts = cut.flat_map(|(from, to)| [(from, Action::Cut), (to, Action::Repair)]);
        let mut schedule: Vec<_> = kills.chain(cuts.map(|(after, action)| (Time::ZERO + after, action))).collect();
        schedule.sort_by_key(|(at, _)| *at);
        schedule
    }

    fn inject(&mut self, action: Action) -> Result<Option<(Time, Action)>, Error> {
        match action {
            Action::Kill(kill) => {
                let process = self.stats.find(kill.target).map(|victim| self.share.home(victim));
                let Some(process) = process.filter(|process| self.workers[*process].child.is_some()) else {
                    self.stats.spared.push(kill);
                    return Ok(None);
                };
                self.kill(process)?;
                Ok(kill.down.map(|down| (self.pace.now() + down, Action::Restart(process))))
            }
            Action::Restart(process) => self.restart(process).map(|()| None),
            Action::Cut | Action::Repair => {
                self.is_cut = action == Action::Cut;
                (0..self.workers.len()).try_for_each(|process| self.cut(process)).map(|()| None)
            }
        }
    }

    fn cut(&mut self, process: usize) -> Result<(), Error> {
        let half = self.workers.len() / 2;
        let is_beyond = |other: &usize| self.is_cut && (*other < half) != (process < half);
        let others = (0..self.workers.len()).filter(is_beyond).collect();
        self.order(process, &Order::Cut(others))
    }

    fn kill(&mut self, process: usize) -> Result<(), Error> {
        let Some(mut child) = self.workers[process].child.take() else { return Ok(()) };
        let sent = self.pace.now();
        if self.machine(process).is_some() {
            // The local child is only a connection to the process.
            emit(&mut self.workers[process], process, &Order::Die)?;
        } else {
            child.kill().map_err(Error::io("kill a process of the run"))?;
        }
        child.wait().map_err(Error::io("wait for a process of the run"))?;
        self.workers[process].orders = None;
        let exited = self.pace.now();
        let peers = (0..self.setting.hosts() as u64).map(PeerId::new);
        let peers: Vec<PeerId> = peers.filter(|peer| self.share.home(*peer) == process).collect();
        self.stats.record_kill(sent, exited, self.trial, peers);
        Ok(())
    }

    fn restart(&mut self, process: usize) -> Result<(), Error> {
        let incarnation = self.workers[process].incarnation + 1;
        let mut worker = self.spawn(process, incarnation)?;
        worker.records = std::mem::take(&mut self.workers[process].records);
        self.workers[process] = worker;
        self.until("restart", |worker| worker.address.is_some())?;
        let addresses = self.addresses();
        let address = addresses[process];
        self.order(process, &Order::Meet(addresses))?;
        self.until("connect again", |worker| worker.is_linked)?;
        self.cut(process)?;
        for other in (0..self.workers.len()).filter(|other| *other != process) {
            address.map_or(Ok(()), |address| self.order(other, &Order::Moved(process, address)))?;
        }
        self.workers[process].clock = self.read_clock(process)?;
        self.begin(process)
    }

    fn end(mut self) -> Result<Stats, Error> {
        for process in 0..self.workers.len() {
            self.order(process, &Order::Stop)?;
        }
        self.until("end", |worker| worker.has_counted)?;
        for worker in &mut self.workers {
            worker.orders = None;
            if let Some(mut child) = worker.child.take() {
                child.wait().map_err(Error::io("wait for a process of the run"))?;
            }
        }
        let last = clock::now() + TIMEOUT.as_nanos() as u64;
        while let Some(&(process, _)) = self.open.first() {
            match self.received.recv_timeout(Duration::from_nanos(last.saturating_sub(clock::now()))) {
                Ok(received) => self.on_received(received, &|_| ())?,
                Err(_) => return Err(Error::Child { process, why: "its output is still open after its exit".into() }),
            }
        }
        let mut stats = std::mem::take(&mut self.stats);
        stats.trial.records = self.workers.iter_mut().map(|worker| std::mem::take(&mut worker.records)).collect();
        Ok(stats)
    }
}

fn local(program: &Path) -> Command {
    let mut command = Command::new(program);
    command.arg("live-child");
    command
}

fn emit(worker: &mut Worker, process: usize, order: &Order) -> Result<(), Error> {
    let Some(orders) = &mut worker.orders else { return Ok(()) };
    match frame::write_value(orders, order) {
        // It has exited: its output has the reason.
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        written => written.map_err(|error| Error::Child { process, why: format!("cannot send it orders: {error}") }),
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Action {
    Kill(Kill),
    Restart(usize),
    Cut,
    Repair,
}
