//! The life of one connection, in a task of its own: from the first byte to the last.

use std::net::SocketAddr;
use std::sync::Arc;

use peerlock_base::PeerId;
use tokio::net::TcpStream;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::sync::{OwnedSemaphorePermit, mpsc};
use tokio::time::timeout;

use crate::channel::Channel;
use crate::proof::Role;
use crate::session::{Session, Shared};
use crate::{Refusal, Unreached, interfaces};

/// What became of a connection.
#[derive(Debug)]
pub(crate) enum Outcome {
    /// It is the link with this peer.
    Linked(PeerId),
    /// It is not needed: there is another with this peer, or will be in a moment.
    Duplicate(PeerId),
    /// It led nowhere.
    Failed(Unreached),
    /// It was the link with this peer, and is over.
    Ended(PeerId),
}

/// Tells the hub of a connection, whatever becomes of its task.
pub(crate) struct Report {
    number: u64,
    hub: mpsc::UnboundedSender<(u64, Outcome)>,
    /// Who is at the other end, once we know.
    peer: Option<PeerId>,
    /// What is said when it is over.
    last: Option<Outcome>,
}

impl Report {
    pub fn new(number: u64, hub: mpsc::UnboundedSender<(u64, Outcome)>) -> Self {
        Self { number, hub, peer: None, last: Some(Outcome::Failed(Refusal::Broken.into())) }
    }

    fn linked(&mut self) {
        if let Some(peer) = self.peer {
            // Nobody listens when the whole peer stops.
            _ = self.hub.send((self.number, Outcome::Linked(peer)));
            self.last = Some(Outcome::Ended(peer));
        }
    }

    fn refused(&mut self, refusal: Refusal) {
        self.last = Some(match (refusal, self.peer) {
            (Refusal::Duplicate, Some(peer)) => Outcome::Duplicate(peer),
            _ => Outcome::Failed(refusal.into()),
        });
    }
}

impl Drop for Report {
    fn drop(&mut self) {
        self.last.take().into_iter().for_each(|last| _ = self.hub.send((self.number, last)));
    }
}

/// Connects to whoever is here, and stays as long as it is the link with them.
pub(crate) async fn dial(address: SocketAddr, mut report: Report, shared: Arc<Shared>) {
    let stream = match timeout(shared.config.proof, TcpStream::connect(address)).await {
        Ok(Ok(stream)) => stream,
        Ok(Err(error)) => {
            report.last = Some(Outcome::Failed(Unreached::Connection(error.to_string())));
            return;
        }
        Err(_) => {
            report.last = Some(Outcome::Failed(Unreached::Connection("nobody answers".to_owned())));
            return;
        }
    };
    let opened = timeout(shared.config.proof, open(stream, Role::Dialler, address, &shared, &mut report)).await;
    match opened.unwrap_or(Err(Refusal::Timeout)) {
        Ok(session) => run(session, report).await,
        Err(refusal) => {
            shared.table.refused(refusal);
            report.refused(refusal);
        }
    }
}

/// Hears whoever has come from here, and stays as long as it is the link with them.
pub(crate) async fn answer(
    (stream, address, entry): (TcpStream, SocketAddr, OwnedSemaphorePermit),
    mut report: Report,
    shared: Arc<Shared>,
) {
    let goes = shared.doorstep.arrive(address);
    let opened = tokio::select! {
        // What is over is over, also if its place was needed in the same moment.
        biased;
        opened = timeout(shared.config.proof, open(stream, Role::Listener, address, &shared, &mut report)) => {
            opened.unwrap_or(Err(Refusal::Timeout))
        }
        _ = goes => Err(Refusal::Crowded),
    };
    shared.doorstep.leave(address);
    drop(entry);
    match opened {
        Ok(session) => run(session, report).await,
        Err(refusal) => {
            shared.table.refused(refusal);
            shared.log.refused(refusal, address);
            report.refused(refusal);
        }
    }
}

/// Finds out who is at the other end, and whether this is to be our link with them.
async fn open(
    stream: TcpStream,
    role: Role,
    address: SocketAddr,
    shared: &Arc<Shared>,
    report: &mut Report,
) -> Result<Session<OwnedReadHalf, OwnedWriteHalf>, Refusal> {
    // What is written is to go at once. Where that cannot be had it goes later.
    _ = stream.set_nodelay(true);
    let (from, to) = stream.into_split();
    let channel = Channel::open(from, to, role, &shared.identity).await?;
    if channel.name == shared.identity.name() {
        return Err(if interfaces::is_here(address.ip()) { Refusal::Myself } else { Refusal::Twin });
    }
    report.peer = Some(channel.name.number());
    Session::open(channel, role, address, Arc::clone(shared)).await
}

async fn run(session: Session<OwnedReadHalf, OwnedWriteHalf>, mut report: Report) {
    report.linked();
    session.run().await;
}
