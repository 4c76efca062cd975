//! The parent: starts the processes, kills victims, ends all processes, and has the run judged.

use std::io::{self, BufReader};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::Duration;

use peerlock_catalogue::{Load, Setting};
use peerlock_sim::{Report, Share};
use peerlock_types::{PeerId, Span, Time};

use crate::clock::{self, Pace, Reading};
use crate::judge::Judge;
use crate::kill::{Kill, Target};
use crate::place::Place;
use crate::stats::Stats;
use crate::wire::{ChildReport, Order, Prepare};
use crate::{Error, check, frame, population};

/// The options of a run.
#[derive(Clone, Debug)]
pub struct Options {
    /// The program whose hidden command `live-child` calls [`child`](crate::child()).
    pub program: PathBuf,
    /// The machines of the processes, in turns; loopback if empty.
    pub places: Vec<Place>,
    /// The number of processes that share the peers.
    pub processes: usize,
    /// The scale of the run's time over real time.
    pub speed: u32,
    /// The kills.
    pub kills: Vec<Kill>,
    /// The time of a partition between the first half of the processes and the second.
    pub cut: Option<(Span, Span)>,
    /// The run is given up after this time without an acquisition, in the run's time.
    pub patience: Span,
}

/// The result of a run.
#[derive(Debug)]
pub struct Live {
    /// The same report as of a simulation.
    pub report: Report,
    /// The number of processes: the shared ones, and one for each potential victim.
    pub processes: usize,
    /// The kills in the order of time.
    pub deaths: Vec<Death>,
    /// Kills without a victim: there was no such peer at that moment, or it was dead already.
    pub spared: Vec<Kill>,
    /// The largest error between the times of two processes, in real time: zero on one machine, else the uncertainty of
    /// their clock readings.
    pub clocks_apart: Duration,
}

/// The effect of a kill. All times are the run's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Death {
    /// The trial, counted from 0.
    pub trial: u32,
    /// The killed peers, all of one process.
    pub peers: Vec<PeerId>,
    /// The time of the signal.
    pub at: Time,
    /// The acquisitions before …
    pub before: u64,
    /// … and after it.
    pub after: u64,
    /// The time until the next acquisition; `None` if there was none.
    pub goes_on: Option<Span>,
}

/// The timeout for processes to start and meet, and to end.
const STARTS: Duration = Duration::from_secs(60);

/// The time from the last connection to the start, long enough to notify all processes.
const BREATH: u64 = 50_000_000;

/// The number of readings of a remote clock, of which the quickest counts.
const READINGS: u32 = 20;

const LOOPBACK: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

/// The limit of processes.
const MOST_PROCESSES: usize = 256;

/// Plays all trials of a setting, one after the other. `progress` receives every acquisition.
///
/// # Errors
///
/// Returns an error if the setting cannot be run on sockets, a process failed, or a rule was broken.
pub fn run(setting: &Setting, options: &Options, progress: &dyn Fn(u64)) -> Result<Live, Error> {
    check(setting)?;
    if let Load::Rounds(rounds) = &setting.load
        && rounds.churn > 0
        && !options.kills.is_empty()
    {
        let why =
            "churn has peers fail and come all the time: leave --kill out, or use --kill WHO@TIME+TIME without churn";
        return Err(Error::Refused(why.into()));
    }
    let mut setting = setting.clone();
    if !options.kills.is_empty() || options.cut.is_some() {
        // Marks the setting as faulty: peers then maintain the overlay, and unexpected messages break no rule.
        setting.faults.detection.get_or_insert(DETECTION);
    }
    let apart = apart(&setting, options)?;
    let processes = options.processes.max(1) + apart.len();
    if options.cut.is_some() && processes < 2 {
        let why = "there is one process, and nothing to cut it off from: use --processes";
        return Err(Error::Refused(why.into()));
    }
    let (mut left, mut deaths, mut spared, mut clocks_apart) = <(Vec<_>, Vec<_>, Vec<_>, Duration)>::default();
    for trial in 0..setting.trials {
        let mut crew = Crew::start(&setting, trial, options, &apart)?;
        crew.play(progress)?;
        clocks_apart = clocks_apart.max(crew.clocks_apart()?);
        let stats = crew.end()?;
        deaths.extend(stats.deaths());
        spared.extend(stats.spared);
        left.push(stats.left);
    }
    let judged = setting.drive(Judge(left)).map_err(peerlock_catalogue::Error::from)?;
    let report = judged.map_err(Error::Refused)?.map_err(peerlock_catalogue::Error::from)?;
    Ok(Live { report, processes, deaths, spared, clocks_apart })
}

/// The default detection time of dead peers: as in `simulate` with backups.
const DETECTION: Span = Span::from_secs(5);

/// Returns the peers with their own process: all potential victims.
fn apart(setting: &Setting, options: &Options) -> Result<Vec<PeerId>, Error> {
    let all = population(setting);
    let by_number = |kill: &Kill| match kill.target {
        Target::Peer(peer) => Some(peer),
        _ => None,
    };
    let named: Option<Vec<PeerId>> = options.kills.iter().map(by_number).collect();
    let mut apart = named.unwrap_or_else(|| (0..all).map(PeerId::new).collect());
    apart.sort_unstable();
    apart.dedup();
    if let Some(peer) = apart.iter().find(|peer| peer.get() >= all) {
        return Err(Error::Refused(format!("there is no peer {peer} to be killed: there are {all}, from 0 on")));
    }
    if apart.len() + options.processes > MOST_PROCESSES {
        return Err(Error::Refused(format!(
            "{} processes are too many: whoever may be killed has one of its own, so use fewer peers, or name who is \
             to be killed",
            apart.len() + options.processes
        )));
    }
    Ok(apart)
}

/// A message to the parent: the process, its incarnation, and the content; `None` at the end of its output.
type Received = (usize, u32, Option<ChildReport>);

/// All processes of one trial. They end when this is dropped.
struct Crew<'a> {
    setting: &'a Setting,
    options: &'a Options,
    trial: u32,
    share: Share,
    key: [u8; 16],
    workers: Vec<Worker>,
    child_report: Sender<Received>,
    received: Receiver<Received>,
    pace: Pace,
    stats: Stats,
    /// Processes and incarnations whose output has not ended.
    speak: Vec<(usize, u32)>,
    /// Whether the two halves are cut off from each other.
    is_cut: bool,
}

/// One process.
struct Worker {
    /// `None` after it was killed.
    child: Option<Child>,
    orders: Option<ChildStdin>,
    /// The incarnation of the process.
    life: u32,
    address: Option<SocketAddr>,
    /// The last reading of its clock; `None` until it answers.
    showed: Option<u64>,
    /// Its clock at the start of the run.
    clock: Reading,
    is_linked: bool,
    is_served: bool,
    has_counted: bool,
    records: Vec<u8>,
}

impl Drop for Crew<'_> {
    fn drop(&mut self) {
        for child in self.workers.iter_mut().filter_map(|worker| worker.child.as_mut()) {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

impl<'a> Crew<'a> {
    /// Starts all processes, and lets them connect to each other.
    fn start(setting: &'a Setting, trial: u32, options: &'a Options, apart: &[PeerId]) -> Result<Self, Error> {
        let mut key = [0; 16];
        getrandom::fill(&mut key).map_err(|error| Error::Refused(format!("no random numbers: {error}")))?;
        let share = Share { me: 0, together: options.processes.max(1), apart: apart.to_vec() };
        let (child_report, received) = channel();
        let pace = Pace { started: u64::MAX, speed: options.speed };
        let (workers, stats, speak, is_cut) = (Vec::new(), Stats::default(), Vec::new(), false);
        let mut crew =
            Self { setting, options, trial, share, key, workers, child_report, received, pace, stats, speak, is_cut };
        for process in 0..crew.share.processes() {
            let worker = crew.spawn(process, 0)?;
            crew.workers.push(worker);
        }
        crew.until("start", |worker| worker.address.is_some())?;
        let addresses = crew.addresses();
        (0..crew.workers.len()).try_for_each(|process| crew.order(process, &Order::Meet(addresses.clone())))?;
        crew.until("meet the others", |worker| worker.is_linked)?;
        Ok(crew)
    }

    /// Returns the addresses of all live processes.
    fn addresses(&self) -> Vec<Option<SocketAddr>> {
        self.workers.iter().map(|worker| worker.address.filter(|_| worker.child.is_some())).collect()
    }

    /// Returns the machine of a process; `None` if it is this one.
    fn place(&self, process: usize) -> Option<&'a Place> {
        let places = &self.options.places;
        places.get(process % places.len().max(1))
    }

    /// Returns the address by which the others reach a process.
    fn home(&self, process: usize) -> IpAddr {
        self.place(process).map_or(LOOPBACK, |place| place.address)
    }

    fn spawn(&mut self, process: usize, life: u32) -> Result<Worker, Error> {
        let mut command = self.place(process).map_or_else(|| here(&self.options.program), Place::child);
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().map_err(Error::io("start a process of the run"))?;
        let (orders, out) = (child.stdin.take(), child.stdout.take());
        let child_report = self.child_report.clone();
        thread::spawn(move || {
            let mut out = BufReader::new(out.expect("its output is piped"));
            while let Ok(Some(word)) = frame::read_thing(&mut out) {
                let _ = child_report.send((process, life, Some(word)));
            }
            let _ = child_report.send((process, life, None));
        });
        self.speak.push((process, life));
        let mut worker = Worker {
            child: Some(child),
            orders,
            life,
            address: None,
            showed: Some(0),
            clock: Reading::default(),
            is_linked: false,
            is_served: false,
            has_counted: false,
            records: Vec::new(),
        };
        let prepare = Prepare {
            setting: serde_json::to_string(self.setting).expect("a setting is names, words and numbers"),
            trial: self.trial,
            share: Share { me: process, ..self.share.clone() },
            address: self.home(process),
            key: self.key,
            resumes: life > 0,
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

    /// Handles messages until `is_so` holds for all live processes.
    fn until(&mut self, what: &str, is_so: impl Fn(&Worker) -> bool) -> Result<(), Error> {
        let last = clock::now() + STARTS.as_nanos() as u64;
        while let Some(late) = self.workers.iter().position(|worker| worker.child.is_some() && !is_so(worker)) {
            let patience = Duration::from_nanos(last.saturating_sub(clock::now()));
            match self.received.recv_timeout(patience) {
                Ok(received) => self.on_received(received, &|_| ())?,
                Err(_) => {
                    let why = format!("it did not {what} within {} s", STARTS.as_secs());
                    return Err(Error::Child { process: late, why });
                }
            }
        }
        Ok(())
    }

    fn on_received(&mut self, (process, life, child_report): Received, progress: &dyn Fn(u64)) -> Result<(), Error> {
        let (now, home) = (self.pace.now(), self.home(process));
        if child_report.is_none() {
            self.speak.retain(|one| *one != (process, life));
        }
        let worker = &mut self.workers[process];
        if let Some(ChildReport::Records(bytes, update)) = child_report {
            worker.records.extend(bytes);
            let lives = life == worker.life && worker.child.is_some();
            update.into_iter().for_each(|(at, update)| self.stats.note(now, at, update, lives, progress));
            return Ok(());
        }
        if life != worker.life {
            return Ok(()); // Of a killed process.
        }
        match child_report {
            Some(ChildReport::Ready(port)) => worker.address = Some(SocketAddr::new(home, port)),
            Some(ChildReport::Clock(showed)) => worker.showed = Some(showed),
            Some(ChildReport::Linked) => worker.is_linked = true,
            Some(ChildReport::Served(is_served)) => worker.is_served = is_served,
            Some(ChildReport::Counted(counted)) => {
                worker.has_counted = true;
                self.stats.left.counted.push(counted);
            }
            Some(ChildReport::Failed(why)) => return Err(Error::Child { process, why }),
            Some(ChildReport::Records(..)) => {}
            None if worker.child.is_none() || worker.has_counted => {}
            None => return Err(Error::Child { process, why: "it has ended before it was told to".into() }),
        }
        Ok(())
    }

    /// Starts a process, with the run's start converted to its own clock.
    fn begin(&mut self, process: usize) -> Result<(), Error> {
        let started = self.workers[process].clock.there(self.pace.started);
        self.order(process, &Order::Begin(Pace { started, ..self.pace }))
    }

    /// Reads a process's clock several times; the quickest answer is the most exact. Processes of this machine share a
    /// clock.
    fn read_clock(&mut self, process: usize) -> Result<Reading, Error> {
        let mut best: Option<Reading> = None;
        let times = if self.place(process).is_some() { READINGS } else { 0 };
        for _ in 0..times {
            let asked = clock::now();
            self.workers[process].showed = None;
            self.order(process, &Order::Clock)?;
            self.until("say what its clock shows", |worker| worker.showed.is_some())?;
            let answered = clock::now();
            if let Some(showed) = self.workers[process].showed {
                let reading = Reading::of(asked, showed, answered);
                best = Some(best.filter(|best| best.error <= reading.error).unwrap_or(reading));
            }
        }
        Ok(best.unwrap_or_default())
    }

    /// Returns the largest error between the times of two processes: the uncertainty of both readings at the start,
    /// plus the drift since then.
    fn clocks_apart(&mut self) -> Result<Duration, Error> {
        let mut worst = 0;
        for process in 0..self.workers.len() {
            if self.workers[process].child.is_some() {
                let now = self.read_clock(process)?;
                worst = worst.max(self.workers[process].clock.astray(now));
            }
        }
        Ok(Duration::from_nanos(2 * worst))
    }

    /// Runs until every client has been served, or none is served any more.
    fn play(&mut self, progress: &dyn Fn(u64)) -> Result<(), Error> {
        for process in 0..self.workers.len() {
            self.workers[process].clock = self.read_clock(process)?;
        }
        self.pace.started = clock::now() + BREATH;
        for process in 0..self.workers.len() {
            self.begin(process)?;
        }
        let mut to_come: Vec<(Time, Deed)> = self.deeds();
        loop {
            while let Some(&(at, deed)) = to_come.first()
                && at <= self.pace.now()
            {
                to_come.remove(0);
                if let Some(later) = self.inject(deed)? {
                    to_come.push(later);
                    to_come.sort_by_key(|(at, _)| *at);
                }
            }
            let is_served = self.workers.iter().all(|worker| worker.child.is_none() || worker.is_served);
            let is_stuck = self.pace.now().since(self.stats.last_entry) > self.options.patience;
            if to_come.is_empty() && (is_served || is_stuck) {
                return Ok(());
            }
            let next = to_come.first().map_or(Duration::from_millis(100), |(at, _)| self.pace.until(*at));
            match self.received.recv_timeout(next.min(Duration::from_millis(100))) {
                Ok(received) => self.on_received(received, progress)?,
                Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => {}
            }
        }
    }

    fn deeds(&self) -> Vec<(Time, Deed)> {
        let kills = self.options.kills.iter().map(|kill| (Time::ZERO + kill.after, Deed::Kill(*kill)));
        let cut = self.options.cut.into_iter();
        let cuts = cut.flat_map(|(from, to)| [(from, Deed::Cut), (to, Deed::Repair)]);
        let mut deeds: Vec<_> = kills.chain(cuts.map(|(after, deed)| (Time::ZERO + after, deed))).collect();
        deeds.sort_by_key(|(at, _)| *at);
        deeds
    }

    /// Carries out an action; returns the one that follows from it, with its time.
    fn inject(&mut self, deed: Deed) -> Result<Option<(Time, Deed)>, Error> {
        match deed {
            Deed::Kill(kill) => {
                let process = self.stats.find(kill.target).map(|victim| self.share.home(victim));
                let Some(process) = process.filter(|process| self.workers[*process].child.is_some()) else {
                    self.stats.spared.push(kill);
                    return Ok(None);
                };
                self.kill(process)?;
                Ok(kill.down.map(|down| (self.pace.now() + down, Deed::Restart(process))))
            }
            Deed::Restart(process) => self.restart(process).map(|()| None),
            Deed::Cut | Deed::Repair => {
                self.is_cut = deed == Deed::Cut;
                (0..self.workers.len()).try_for_each(|process| self.cut(process)).map(|()| None)
            }
        }
    }

    /// Notifies a process of the processes from which it is cut off.
    fn cut(&mut self, process: usize) -> Result<(), Error> {
        let half = self.workers.len() / 2;
        let is_beyond = |other: &usize| self.is_cut && (*other < half) != (process < half);
        let others = (0..self.workers.len()).filter(is_beyond).collect();
        self.order(process, &Order::Cut(others))
    }

    fn kill(&mut self, process: usize) -> Result<(), Error> {
        let Some(mut child) = self.workers[process].child.take() else { return Ok(()) };
        let sent = self.pace.now();
        if self.place(process).is_some() {
            // The local child is only the connection to a remote process.
            emit(&mut self.workers[process], process, &Order::Die)?;
        } else {
            child.kill().map_err(Error::io("kill a process of the run"))?;
        }
        child.wait().map_err(Error::io("wait for a process of the run"))?;
        self.workers[process].orders = None;
        let gone = self.pace.now();
        let peers = (0..population(self.setting)).map(PeerId::new);
        let peers: Vec<PeerId> = peers.filter(|peer| self.share.home(*peer) == process).collect();
        self.stats.die(sent, gone, self.trial, peers);
        Ok(())
    }

    /// Replaces a killed process, and notifies the others.
    fn restart(&mut self, process: usize) -> Result<(), Error> {
        let life = self.workers[process].life + 1;
        let mut worker = self.spawn(process, life)?;
        worker.records = std::mem::take(&mut self.workers[process].records);
        self.workers[process] = worker;
        self.until("start again", |worker| worker.address.is_some())?;
        let addresses = self.addresses();
        let address = addresses[process];
        self.order(process, &Order::Meet(addresses))?;
        self.until("meet the others again", |worker| worker.is_linked)?;
        self.cut(process)?;
        for other in (0..self.workers.len()).filter(|other| *other != process) {
            address.map_or(Ok(()), |address| self.order(other, &Order::Moved(process, address)))?;
        }
        self.workers[process].clock = self.read_clock(process)?;
        self.begin(process)
    }

    /// Ends all processes and returns their records, including those of killed ones.
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
        let last = clock::now() + STARTS.as_nanos() as u64;
        while let Some(&(process, _)) = self.speak.first() {
            match self.received.recv_timeout(Duration::from_nanos(last.saturating_sub(clock::now()))) {
                Ok(received) => self.on_received(received, &|_| ())?,
                Err(_) => return Err(Error::Child { process, why: "it has ended, and its output has not".into() }),
            }
        }
        let mut stats = std::mem::take(&mut self.stats);
        stats.left.records = self.workers.iter_mut().map(|worker| std::mem::take(&mut worker.records)).collect();
        Ok(stats)
    }
}

/// Returns the command of a process on this machine.
fn here(program: &Path) -> Command {
    let mut command = Command::new(program);
    command.arg("live-child");
    command
}

fn emit(worker: &mut Worker, process: usize, order: &Order) -> Result<(), Error> {
    let Some(orders) = &mut worker.orders else { return Ok(()) };
    match frame::write_thing(orders, order) {
        // It has ended. Its output reports that, possibly with the reason.
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        child_report => {
            child_report.map_err(|error| Error::Child { process, why: format!("it takes no orders: {error}") })
        }
    }
}

/// An action of the run's schedule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Deed {
    Kill(Kill),
    Restart(usize),
    Cut,
    Repair,
}
