//! One process of a run, with its share of the peers.

use std::cell::RefCell;
use std::io::{Stdin, Stdout, stdin, stdout};
use std::mem::take;
use std::process::exit;
use std::rc::Rc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use peerlock_catalogue::Setting;
use peerlock_sim::{Actor, Came, Drive, Outside, Record, RecordOf, Recorder, Share, Trial, Wire, seed_of};
use peerlock_types::{PeerId, Time};
use serde::Serialize;

use crate::clock::{self, Pace};
use crate::links::{self, Links, Received};
use crate::wire::{ChildReport, Order, Prepare, Update};
use crate::{Error, frame};

const BUFFER: usize = 1 << 16;

const LONG: Duration = Duration::from_secs(3600);

enum Input {
    Order(Order),
    Orphaned,
    Received(Received),
}

/// Runs a child of [`run`](crate::run()), which exits with its parent.
///
/// # Errors
///
/// Returns an error if it has no parent, or cannot connect to the other processes.
pub fn child() -> Result<(), Error> {
    let (inputs, input) = channel();
    let orders = inputs.clone();
    thread::spawn(move || {
        let mut stdin: Stdin = stdin();
        while let Ok(Some(order)) = frame::read_value(&mut stdin) {
            if let Order::Die = order {
                let _ = kill(Pid::this(), Signal::SIGKILL);
            }
            let _ = orders.send(Input::Order(order));
        }
        let _ = orders.send(Input::Orphaned);
    });
    let Ok(Input::Order(Order::Prepare(prepare))) = input.recv() else {
        return Err(Error::Refused("this command is internal: use peerlock-lab live".into()));
    };
    let received = links::listen(prepare.address, prepare.key, inputs, Input::Received);
    match received {
        Ok(port) => emit(&ChildReport::Ready(port)),
        Err(error) => {
            emit(&ChildReport::Failed(format!("cannot listen at {}: {error}", prepare.address)));
            return Ok(());
        }
    }
    let played = connect(&prepare, input);
    if let Err(error) = &played {
        emit(&ChildReport::Failed(error.to_string()));
    }
    played
}

fn emit(report: &ChildReport) {
    let mut out: Stdout = stdout();
    if frame::write_value(&mut out, report).is_err() {
        exit(0); // The parent has exited.
    }
}

fn connect(prepare: &Prepare, input: Receiver<Input>) -> Result<(), Error> {
    let setting: Setting =
        serde_json::from_str(&prepare.setting).map_err(|error| Error::Refused(format!("invalid setting: {error}")))?;
    let (mut links, mut connected) = (None, 0);
    let pace = loop {
        match input.recv() {
            Ok(Input::Order(Order::Meet(addresses))) => {
                let connections = Links::to(&addresses, prepare.key, prepare.share.me);
                links = Some(connections.map_err(Error::io("connect to another process of the run"))?);
            }
            Ok(Input::Order(Order::Clock)) => emit(&ChildReport::Clock(clock::now())),
            Ok(Input::Order(Order::Cut(processes))) => {
                if let Some(links) = &mut links {
                    links.cut(processes);
                }
            }
            Ok(Input::Received(Received::Connected)) => connected += 1,
            Ok(Input::Order(Order::Begin(pace))) => break pace,
            Ok(Input::Order(Order::Stop) | Input::Orphaned) | Err(_) => return Ok(()),
            Ok(_) => {}
        }
        // The others connect to a restarted process later, when the parent has notified them.
        if links.is_some() && (connected == prepare.share.processes() || prepare.resumes) {
            connected = 0;
            emit(&ChildReport::Linked);
        }
    };
    let links = links.ok_or_else(|| Error::Refused("the run started before the processes were connected".into()))?;
    let player = Player { prepare, population: setting.hosts() as u64, links, input, pace };
    setting.drive(player).map_err(peerlock_catalogue::Error::from)?
}

struct Player<'a> {
    prepare: &'a Prepare,
    population: u64,
    links: Links,
    input: Receiver<Input>,
    pace: Pace,
}

impl Drive for Player<'_> {
    type Output = Result<(), Error>;

    fn drive<S>(self, setting: &S, _trials: u32, seed: u64) -> Self::Output
    where
        S: Trial<Actor: Actor<Message: Wire, Note: Wire + Clone>>,
    {
        let Prepare { trial, share, resumes, .. } = self.prepare;
        let book = Rc::new(RefCell::new(Book::default()));
        let sink = {
            let book = Rc::clone(&book);
            move |at, record: RecordOf<S::Actor>| book.borrow_mut().note(at, &record)
        };
        let mut recorder = Recorder::new(sink);
        let mut world = setting.world(seed_of(*trial, seed));
        world.observe(&mut recorder);
        world.retain_only(share.clone());
        let mut rest =
            Rest { share, population: self.population, links: self.links, input: self.input, pace: self.pace, book };
        let played = world.play_part(&mut rest, *resumes);
        rest.book.borrow_mut().send();
        played.map_err(|violation| Error::Refused(violation.to_string()))?;
        emit(&ChildReport::Counted(world.counted()));
        Ok(())
    }
}

#[derive(Default)]
struct Book {
    records: Vec<u8>,
    update: Vec<(Time, Update)>,
}

impl Book {
    fn note<M: Serialize, N: Serialize>(&mut self, at: Time, record: &Record<M, N>) {
        let update = match *record {
            Record::Asked { peer, .. } => Some(Update::Asked(peer)),
            Record::Entered { peer, .. } => Some(Update::Entered(peer)),
            Record::Left { peer, .. } | Record::GaveUp { peer, .. } => Some(Update::Over(peer)),
            Record::Delivered { to, .. } => Some(Update::Got(to)),
            _ => None,
        };
        self.update.extend(update.map(|update| (at, update)));
        let bytes = postcard::to_allocvec(&(at, record)).expect("a record is plain data");
        frame::write(&mut self.records, &bytes).expect("a record is short, and memory takes it");
        if self.records.len() > BUFFER {
            self.send();
        }
    }

    fn send(&mut self) {
        if !self.records.is_empty() {
            emit(&ChildReport::Records(take(&mut self.records), take(&mut self.update)));
        }
    }
}

struct Rest<'a> {
    share: &'a Share,
    population: u64,
    links: Links,
    input: Receiver<Input>,
    pace: Pace,
    book: Rc<RefCell<Book>>,
}

impl<A: Actor<Message: Wire>> Outside<A> for Rest<'_> {
    fn now(&mut self) -> Time {
        self.pace.now()
    }

    fn send(&mut self, from: PeerId, to: PeerId, message: A::Message) {
        // The records go first: no peer may react to an unrecorded event of a process that is killed now.
        self.book.borrow_mut().send();
        let bytes = postcard::to_allocvec(&(from, to, message)).expect("a message is plain data");
        self.links.send(self.share.home(to), &bytes);
    }

    fn served(&mut self, is_served: bool) {
        self.book.borrow_mut().send();
        emit(&ChildReport::Served(is_served));
    }

    fn wait(&mut self, until: Option<Time>) -> Came<A::Message> {
        self.book.borrow_mut().send();
        let patience = until.map_or(LONG, |until| self.pace.until(until));
        match self.input.recv_timeout(patience) {
            Err(RecvTimeoutError::Timeout) => Came::Nothing,
            Ok(Input::Orphaned) | Err(RecvTimeoutError::Disconnected) => exit(0),
            Ok(Input::Received(Received::Frame(bytes))) => match postcard::from_bytes(&bytes) {
                Ok((from, to, message)) => Came::Message { from, to, message },
                Err(_) => Came::Nothing, // Impossible: the sender is authenticated.
            },
            Ok(Input::Received(Received::Disconnected(process))) => {
                let peers = (0..self.population).map(PeerId::new);
                Came::Gone(peers.filter(|peer| self.share.home(*peer) == process).collect())
            }
            Ok(Input::Order(Order::Clock)) => {
                emit(&ChildReport::Clock(clock::now()));
                Came::Nothing
            }
            Ok(Input::Order(Order::Moved(process, address))) => {
                self.links.moved(process, address);
                Came::Nothing
            }
            Ok(Input::Order(Order::Cut(processes))) => {
                self.links.cut(processes);
                Came::Nothing
            }
            Ok(Input::Order(Order::Stop)) => Came::Stop,
            Ok(_) => Came::Nothing,
        }
    }
}
