//! libp2p's side of a session: one stream per connection, opened by the dialler, and the bound on strangers.
//!
//! `libp2p-stream` would do most of it, but it forgets the sender of no connection that ever was (memory that any
//! stranger can make grow), opens streams on a connection of its own choice, and drops incoming streams when nobody
//! happens to be at the door.
//!
//! The proof runs inside the connection's task and dies with it. The link has a task of its own: polling it within the
//! connection's was tried and took a tenth longer per message, for every message then costs two rounds of libp2p's
//! loop.

use std::collections::{HashMap, VecDeque};
use std::convert::Infallible;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker, ready};

use libp2p::core::transport::PortUse;
use libp2p::core::upgrade::ReadyUpgrade;
use libp2p::core::{Endpoint, Multiaddr};
use libp2p::swarm::handler::{ConnectionEvent, DialUpgradeError, FullyNegotiatedInbound, FullyNegotiatedOutbound};
use libp2p::swarm::{
    CloseConnection, ConnectionDenied, ConnectionHandler, ConnectionHandlerEvent, ConnectionId, FromSwarm,
    ListenFailure, NetworkBehaviour, Stream, StreamProtocol, StreamUpgradeError, SubstreamProtocol, THandlerInEvent,
    ToSwarm,
};
use peerlock_base::PeerId;
use tokio::task::JoinHandle;
use tokio::time::{Sleep, sleep};

use crate::Refusal;
use crate::address::Address;
use crate::doorstep::Goes;
use crate::identity::number;
use crate::log::Log;
use crate::proof::Role;
use crate::session::{Remote, Session, Shared};

const PROTOCOL: StreamProtocol = StreamProtocol::new("/peerlock/2");

/// What became of a connection.
#[derive(Debug)]
pub(crate) enum Outcome {
    /// It is the link with this peer.
    Linked(PeerId),
    /// It never became a link with this peer, who is here.
    Refused(PeerId, Refusal, Address),
    /// It was the link with this peer, and is over.
    Ended(PeerId),
}

/// Gives every connection its session.
pub(crate) struct Behaviour {
    shared: Arc<Shared>,
    /// Connections that somebody else has made and that have proved nothing yet.
    strangers: HashMap<ConnectionId, Address>,
    log: Log,
    actions: VecDeque<ToSwarm<(ConnectionId, Outcome), Infallible>>,
    waker: Option<Waker>,
}

impl Behaviour {
    pub fn new(shared: Arc<Shared>) -> Self {
        Self { shared, strangers: HashMap::new(), log: Log::default(), actions: VecDeque::new(), waker: None }
    }

    fn handler(&self, name: libp2p::PeerId, address: Address, role: Role, goes: Option<Goes>) -> Handler {
        Handler::new(Remote { peer: number(&name), name, address, role }, goes, Arc::clone(&self.shared))
    }

    /// Somebody who came to us did not become a link.
    fn refused(&self, refusal: Refusal, address: impl fmt::Display) {
        self.shared.table.refused(refusal);
        self.log.refused(refusal, address);
    }

    fn act(&mut self, action: ToSwarm<(ConnectionId, Outcome), Infallible>) {
        self.actions.push_back(action);
        if let Some(waker) = self.waker.take() {
            waker.wake();
        }
    }
}

impl NetworkBehaviour for Behaviour {
    type ConnectionHandler = Handler;
    type ToSwarm = (ConnectionId, Outcome);

    fn handle_pending_inbound_connection(
        &mut self,
        connection: ConnectionId,
        _: &Multiaddr,
        remote: &Multiaddr,
    ) -> Result<(), ConnectionDenied> {
        self.strangers.insert(connection, ours(remote)?);
        Ok(())
    }

    fn handle_established_inbound_connection(
        &mut self,
        _: ConnectionId,
        name: libp2p::PeerId,
        _: &Multiaddr,
        remote: &Multiaddr,
    ) -> Result<Handler, ConnectionDenied> {
        let address = ours(remote)?;
        // It may have been told to go when its handshake was just done.
        let goes = self.shared.doorstep.goes(address).ok_or_else(|| ConnectionDenied::new(Refusal::Crowded))?;
        Ok(self.handler(name, address, Role::Listener, Some(goes)))
    }

    fn handle_established_outbound_connection(
        &mut self,
        _: ConnectionId,
        name: libp2p::PeerId,
        remote: &Multiaddr,
        _: Endpoint,
        _: PortUse,
    ) -> Result<Handler, ConnectionDenied> {
        Ok(self.handler(name, ours(remote)?, Role::Dialler, None))
    }

    fn on_swarm_event(&mut self, event: FromSwarm<'_>) {
        if let FromSwarm::ListenFailure(ListenFailure { connection_id, .. }) = event
            && let Some(address) = self.strangers.remove(&connection_id)
        {
            let refusal = if self.shared.doorstep.leave(address) { Refusal::Broken } else { Refusal::Crowded };
            self.refused(refusal, address);
        }
    }

    fn on_connection_handler_event(&mut self, name: libp2p::PeerId, connection: ConnectionId, outcome: Outcome) {
        let came_from = self.strangers.remove(&connection);
        let came_to_us = came_from.is_some();
        if let Some(address) = came_from {
            self.shared.doorstep.leave(address);
        }
        match &outcome {
            Outcome::Refused(_, refusal, address) if came_to_us => self.refused(*refusal, address),
            // Whoever dialled is told.
            Outcome::Refused(_, refusal, _) => self.shared.table.refused(*refusal),
            Outcome::Linked(_) | Outcome::Ended(_) => {}
        }
        if !matches!(outcome, Outcome::Linked(_)) {
            self.act(ToSwarm::CloseConnection { peer_id: name, connection: CloseConnection::One(connection) });
        }
        self.act(ToSwarm::GenerateEvent((connection, outcome)));
    }

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<ToSwarm<Self::ToSwarm, THandlerInEvent<Self>>> {
        match self.actions.pop_front() {
            Some(action) => Poll::Ready(action),
            None => {
                self.waker = Some(cx.waker().clone());
                Poll::Pending
            }
        }
    }
}

/// An address of the kind that we listen on.
fn ours(address: &Multiaddr) -> Result<Address, ConnectionDenied> {
    Address::from_multiaddr(address).ok_or_else(|| ConnectionDenied::new(format!("{address} is no address of ours")))
}

/// The life of a connection, from libp2p's handshake to its end.
enum Stage {
    /// We dialled and have not yet asked for the stream.
    Asking,
    /// There is no stream yet.
    Waiting,
    Proving(Pin<Box<dyn Future<Output = Result<Session<Stream>, Refusal>> + Send>>),
    Linked(Running),
    Over,
}

/// A link's task. It ends by itself when the connection does, once everything that had come is read; and at once if
/// nobody waits for it any more.
struct Running(JoinHandle<()>);

impl Drop for Running {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Sees a connection through its life.
pub(crate) struct Handler {
    remote: Remote,
    shared: Arc<Shared>,
    stage: Stage,
    /// When the proof must be done …
    deadline: Pin<Box<Sleep>>,
    /// … if nobody else needs the place before that.
    goes: Option<Goes>,
}

impl Handler {
    fn new(remote: Remote, goes: Option<Goes>, shared: Arc<Shared>) -> Self {
        let stage = match remote.role {
            Role::Dialler => Stage::Asking,
            Role::Listener => Stage::Waiting,
        };
        let deadline = Box::pin(sleep(shared.config.proof));
        Self { remote, shared, stage, deadline, goes }
    }

    fn start(&mut self, stream: Stream) {
        // A second stream has no business here; it is closed by being dropped.
        if let Stage::Waiting = self.stage {
            self.stage = Stage::Proving(Box::pin(Session::open(stream, self.remote, Arc::clone(&self.shared))));
        }
    }

    /// Why it is not waited for any longer.
    fn waited_for(&mut self, cx: &mut Context<'_>) -> Poll<Refusal> {
        if self.goes.as_mut().is_some_and(|goes| Pin::new(goes).poll(cx).is_ready()) {
            return Poll::Ready(Refusal::Crowded);
        }
        self.deadline.as_mut().poll(cx).map(|()| Refusal::Timeout)
    }

    /// Goes on as far as it can.
    fn advance(&mut self, cx: &mut Context<'_>) -> Poll<Outcome> {
        let Remote { peer, address, .. } = self.remote;
        let outcome = match &mut self.stage {
            Stage::Proving(proving) => match proving.as_mut().poll(cx) {
                Poll::Ready(Ok(session)) => {
                    self.stage = Stage::Linked(Running(tokio::spawn(session.run())));
                    return Poll::Ready(Outcome::Linked(peer));
                }
                Poll::Ready(Err(refusal)) => Outcome::Refused(peer, refusal, address),
                Poll::Pending => Outcome::Refused(peer, ready!(self.waited_for(cx)), address),
            },
            Stage::Linked(running) => {
                // If it panicked, its guard was dropped as well.
                let _ = ready!(Pin::new(&mut running.0).poll(cx));
                Outcome::Ended(peer)
            }
            Stage::Asking | Stage::Waiting => Outcome::Refused(peer, ready!(self.waited_for(cx)), address),
            Stage::Over => return Poll::Pending,
        };
        self.stage = Stage::Over;
        Poll::Ready(outcome)
    }
}

type Upgrade = ReadyUpgrade<StreamProtocol>;

impl ConnectionHandler for Handler {
    type FromBehaviour = Infallible;
    type ToBehaviour = Outcome;
    type InboundProtocol = Upgrade;
    type OutboundProtocol = Upgrade;
    type InboundOpenInfo = ();
    type OutboundOpenInfo = ();

    fn listen_protocol(&self) -> SubstreamProtocol<Upgrade> {
        SubstreamProtocol::new(ReadyUpgrade::new(PROTOCOL), ())
    }

    fn connection_keep_alive(&self) -> bool {
        !matches!(self.stage, Stage::Over)
    }

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<ConnectionHandlerEvent<Upgrade, (), Outcome>> {
        if let Stage::Asking = self.stage {
            self.stage = Stage::Waiting;
            return Poll::Ready(ConnectionHandlerEvent::OutboundSubstreamRequest { protocol: self.listen_protocol() });
        }
        self.advance(cx).map(ConnectionHandlerEvent::NotifyBehaviour)
    }

    /// The connection is gone. What has come before, such as a refusal or a goodbye, is still to be read.
    fn poll_close(&mut self, cx: &mut Context<'_>) -> Poll<Option<Outcome>> {
        match (self.advance(cx), &self.stage) {
            (Poll::Ready(outcome), _) => Poll::Ready(Some(outcome)),
            (Poll::Pending, Stage::Linked(_)) => Poll::Pending,
            (Poll::Pending, Stage::Over) => Poll::Ready(None),
            (Poll::Pending, _) => {
                self.stage = Stage::Over;
                Poll::Ready(Some(Outcome::Refused(self.remote.peer, Refusal::Broken, self.remote.address)))
            }
        }
    }

    fn on_behaviour_event(&mut self, event: Infallible) {
        match event {}
    }

    fn on_connection_event(&mut self, event: ConnectionEvent<'_, Upgrade, Upgrade>) {
        match event {
            ConnectionEvent::FullyNegotiatedInbound(FullyNegotiatedInbound { protocol: stream, .. })
                if self.remote.role == Role::Listener =>
            {
                self.start(stream);
            }
            ConnectionEvent::FullyNegotiatedOutbound(FullyNegotiatedOutbound { protocol: stream, .. }) => {
                self.start(stream);
            }
            ConnectionEvent::DialUpgradeError(DialUpgradeError { error, .. }) => {
                let refusal = match error {
                    StreamUpgradeError::NegotiationFailed => Refusal::Version,
                    _ => Refusal::Broken,
                };
                self.stage = Stage::Proving(Box::pin(std::future::ready(Err(refusal))));
            }
            _ => {}
        }
    }
}
