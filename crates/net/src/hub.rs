//! The task that listens, dials and redials. Connections have their own tasks, which end with this one.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use peerlock_types::Rng;
use socket2::{Domain, Socket, Type};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use tokio::task::JoinSet;
use tokio::time::{sleep, sleep_until};

use crate::connection::{Outcome, Report, answer, dial};
use crate::dials::Dials;
use crate::link::Shared;
use crate::random::random;
use crate::{Refusal, Unreached};

/// The limit of most systems.
const BACKLOG: i32 = 1024;
/// The pause after a failed accept, for instance without free descriptors.
const PAUSE: Duration = Duration::from_millis(50);

pub(crate) enum Command {
    Dial { address: SocketAddr, maintain: bool },
    Forget(SocketAddr),
}

pub(crate) fn listen(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, None)?;
    if address.is_ipv6() {
        socket.set_only_v6(true)?;
    }
    // Allow a port with connections in TIME_WAIT.
    socket.set_reuse_address(true)?;
    socket.set_nonblocking(true)?;
    socket.bind(&address.into())?;
    socket.listen(BACKLOG)?;
    TcpListener::from_std(socket.into())
}

struct Hub {
    shared: Arc<Shared>,
    dials: Dials,
    /// An accepted connection holds a permit until it has proved itself or closes. There are more permits than places;
    /// otherwise all connections that arrive at once would be accepted before the first closes.
    entries: Arc<Semaphore>,
    connections: JoinSet<()>,
    last: u64,
    reports: mpsc::UnboundedSender<(u64, Outcome)>,
}

pub(crate) async fn run(listener: TcpListener, shared: Arc<Shared>, mut commands: mpsc::Receiver<Command>) {
    let rng = Rng::new(u64::from_ne_bytes(random()));
    let config = &shared.config;
    let dials = Dials::new(config.max_dials, (config.redial, config.redial_most), rng);
    let (reports, mut outcomes) = mpsc::unbounded_channel();
    let entries = Arc::new(Semaphore::new(config.max_entries()));
    let mut hub = Hub { shared, dials, entries, connections: JoinSet::new(), last: 0, reports };
    loop {
        let due = hub.dials.next();
        let alarm = async {
            match due {
                Some(due) => sleep_until(due.into()).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            (stream, address, entry) = accept(&listener, &hub.entries, &hub.shared) => {
                let report = hub.report();
                hub.connections.spawn(answer((stream, address, entry), report, Arc::clone(&hub.shared)));
            }
            Some((connection, outcome)) = outcomes.recv() => hub.on_outcome(connection, outcome),
            Some(_) = hub.connections.join_next() => {}
            command = commands.recv() => match command {
                Some(command) => hub.on_command(command),
                None => return,
            },
            () = alarm => hub.dial(),
        }
    }
}

async fn accept(
    listener: &TcpListener,
    entries: &Arc<Semaphore>,
    shared: &Shared,
) -> (TcpStream, SocketAddr, OwnedSemaphorePermit) {
    let entry = Arc::clone(entries).acquire_owned().await.expect("they are never closed");
    loop {
        match listener.accept().await {
            Ok((stream, address)) => return (stream, address, entry),
            Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => {}
            Err(error) => {
                shared.table.not_accepted();
                shared.log.not_accepted(&error);
                sleep(PAUSE).await;
            }
        }
    }
}

impl Hub {
    fn report(&mut self) -> Report {
        self.last += 1;
        Report::new(self.last, self.reports.clone())
    }

    fn on_command(&mut self, command: Command) {
        match command {
            Command::Dial { address, maintain } => {
                self.shared.table.know(address.ip());
                if !self.dials.want(address, maintain, Instant::now()) {
                    self.shared.table.unreached(address, Refusal::Crowded.into());
                }
            }
            Command::Forget(address) => self.dials.forget(address),
        }
    }

    fn dial(&mut self) {
        while let Some((address, again)) = self.dials.due(Instant::now()) {
            let report = self.report();
            self.dials.dialling(address, self.last);
            self.shared.table.dialled(again);
            self.connections.spawn(dial(address, report, Arc::clone(&self.shared)));
        }
    }

    fn on_outcome(&mut self, connection: u64, outcome: Outcome) {
        let (now, table) = (Instant::now(), &self.shared.table);
        match outcome {
            Outcome::Linked(peer) => self.dials.found(connection, peer, now),
            // Normal. If the other link has not come up here yet, dial again later.
            Outcome::Duplicate(peer) if table.is_up(peer) => self.dials.found(connection, peer, now),
            Outcome::Duplicate(_) => _ = self.dials.failed(connection, false, now),
            Outcome::Failed(why) => {
                let hopeless = why == Unreached::Refused(Refusal::Myself);
                if let Some(address) = self.dials.failed(connection, hopeless, now) {
                    table.unreached(address, why);
                }
            }
            Outcome::Ended(peer) if !table.is_up(peer) => self.dials.down(peer, now),
            Outcome::Ended(_) => {}
        }
    }
}
