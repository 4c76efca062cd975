//! The one task that owns libp2p's swarm: it listens, dials and redials. Messages never pass through it.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Instant;

use libp2p::Swarm;
use libp2p::core::transport::TransportError;
use libp2p::futures::StreamExt as _;
use libp2p::swarm::dial_opts::DialOpts;
use libp2p::swarm::{ConnectionId, DialError, SwarmEvent};
use peerlock_base::Rng;
use tokio::sync::mpsc;
use tokio::time::sleep_until;

use crate::behaviour::{Behaviour, Outcome};
use crate::dials::Dials;
use crate::random::random;
use crate::table::Table;
use crate::{Address, Config, Error, Refusal, Transport, Unreached, interfaces};

/// How often a port is tried that is free for TCP and must be free for UDP, too.
const PORTS: usize = 8;

/// What the application asks of the hub.
pub(crate) enum Command {
    Dial { address: Address, keep: bool },
    Forget(Address),
}

/// Opens the sockets and notes which port we got.
pub(crate) async fn listen(
    mut swarm: Swarm<Behaviour>,
    config: &Config,
    table: &Table,
) -> Result<Swarm<Behaviour>, Error> {
    let mut attempts = if config.listens_by_quic() && config.listen.port() == 0 { PORTS } else { 1 };
    loop {
        let (listener, listen) = open(&mut swarm, Address::tcp(config.listen)).await?;
        let socket = SocketAddr::new(config.listen.ip(), listen.socket.port());
        attempts -= 1;
        let quic = match config.listens_by_quic() {
            true => open(&mut swarm, Address::quic(socket)).await.map(drop),
            false => Ok(()),
        };
        match quic {
            Ok(()) => {
                // Set once: this is the only call.
                let _ = table.listen.set(socket);
                return Ok(swarm);
            }
            Err(error) if attempts == 0 => return Err(error),
            Err(_) => {
                swarm.remove_listener(listener);
            }
        }
    }
}

async fn open(
    swarm: &mut Swarm<Behaviour>,
    address: Address,
) -> Result<(libp2p::core::transport::ListenerId, Address), Error> {
    let failed = |source| Error::Listen { address, source };
    let listener = swarm.listen_on(address.to_multiaddr()).map_err(|error| failed(into_io(error)))?;
    loop {
        match swarm.select_next_some().await {
            SwarmEvent::NewListenAddr { listener_id, address } if listener_id == listener => {
                if let Some(address) = Address::from_multiaddr(&address) {
                    return Ok((listener, address));
                }
            }
            SwarmEvent::ListenerClosed { listener_id, reason, .. } if listener_id == listener => {
                return Err(failed(reason.err().unwrap_or_else(|| io::ErrorKind::NotConnected.into())));
            }
            // Others may find us before we are done; their sessions run by themselves.
            _ => {}
        }
    }
}

fn into_io(error: TransportError<io::Error>) -> io::Error {
    match error {
        TransportError::Other(error) => error,
        TransportError::MultiaddrNotSupported(_) => io::ErrorKind::Unsupported.into(),
    }
}

/// Runs until the application is gone.
pub(crate) async fn run(
    mut swarm: Swarm<Behaviour>,
    table: Arc<Table>,
    config: Config,
    mut commands: mpsc::Receiver<Command>,
) {
    let rng = Rng::new(u64::from_ne_bytes(random()));
    let mut dials = Dials::new(config.redial, config.redial_most, rng);
    loop {
        let due = dials.next();
        let alarm = async {
            match due {
                Some(due) => sleep_until(due.into()).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            event = swarm.select_next_some() => on_event(event, &mut dials, &table),
            command = commands.recv() => match command {
                Some(Command::Dial { address, keep }) => {
                    table.know(address.socket.ip());
                    if !dials.want(address, keep, Instant::now()) {
                        table.unreached(address, Refusal::Crowded.into());
                    }
                }
                Some(Command::Forget(address)) => dials.forget(address),
                None => return,
            },
            () = alarm => dial(&mut swarm, &mut dials, &table),
        }
    }
}

/// Dials whatever is due.
fn dial(swarm: &mut Swarm<Behaviour>, dials: &mut Dials, table: &Table) {
    let now = Instant::now();
    while let Some((address, again)) = dials.due(now) {
        let options = DialOpts::unknown_peer_id().address(address.to_multiaddr());
        let options = match address.transport {
            // From the port that we listen on, two peers that dial each other at once would meet in one TCP connection
            // (a simultaneous open) in which each takes itself for the dialler.
            Transport::Tcp => options.allocate_new_port().build(),
            Transport::Quic => options.build(),
        };
        let connection = options.connection_id();
        dials.dialling(address, connection);
        table.dialled(again);
        if let Err(error) = swarm.dial(options) {
            failed(connection, unreached(&error), dials, table);
        }
    }
}

fn on_event(event: SwarmEvent<(ConnectionId, Outcome)>, dials: &mut Dials, table: &Table) {
    match event {
        SwarmEvent::Behaviour((connection, outcome)) => match outcome {
            Outcome::Linked(peer) => dials.found(connection, peer, Instant::now()),
            // Nothing is wrong. If the other link has not come up on this side yet, we look again later.
            Outcome::Refused(peer, Refusal::Duplicate, _) if table.is_up(peer) => {
                dials.found(connection, peer, Instant::now());
            }
            Outcome::Refused(_, Refusal::Duplicate, _) => drop(dials.failed(connection, false, Instant::now())),
            Outcome::Refused(_, refusal, _) => failed(connection, refusal.into(), dials, table),
            // It may be up again already, by another connection.
            Outcome::Ended(peer) if !table.is_up(peer) => dials.down(peer, Instant::now()),
            Outcome::Ended(_) => {}
        },
        SwarmEvent::OutgoingConnectionError { connection_id, error, .. } => {
            failed(connection_id, unreached(&error), dials, table);
        }
        _ => {}
    }
}

fn failed(connection: ConnectionId, why: Unreached, dials: &mut Dials, table: &Table) {
    let hopeless = why == Unreached::Refused(Refusal::Myself);
    if let Some(address) = dials.failed(connection, hopeless, Instant::now()) {
        table.unreached(address, why);
    }
}

fn unreached(error: &DialError) -> Unreached {
    match error {
        // An address that we listen on is struck off the list, which leaves none.
        DialError::NoAddresses => Refusal::Myself.into(),
        DialError::LocalPeerId { address } => {
            let elsewhere = Address::from_multiaddr(address).filter(|found| !interfaces::is_here(found.socket.ip()));
            elsewhere.map_or(Refusal::Myself, |_| Refusal::Twin).into()
        }
        DialError::Transport(errors) => {
            Unreached::Connection(errors.first().map_or_else(|| error.to_string(), |(_, error)| root(error)))
        }
        error => Unreached::Connection(error.to_string()),
    }
}

/// The innermost cause, which is what a person can act on.
fn root(error: &dyn std::error::Error) -> String {
    let mut cause = error;
    while let Some(source) = cause.source() {
        cause = source;
    }
    cause.to_string()
}
