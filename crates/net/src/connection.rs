//! The task of one connection.

use std::net::SocketAddr;
use std::sync::Arc;

use peerlock_types::PeerId;
use tokio::net::TcpStream;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::sync::{OwnedSemaphorePermit, mpsc};
use tokio::time::timeout;

use crate::channel::Channel;
use crate::handshake::Role;
use crate::link::{RunningLink, Shared};
use crate::{Refusal, Unreached, interfaces};

#[derive(Debug)]
pub(crate) enum Outcome {
    Linked(PeerId),
    /// Another connection with this peer is the link, or will be shortly.
    Duplicate(PeerId),
    Failed(Unreached),
    Ended(PeerId),
}

/// Reports an outcome to the hub, however the task ends.
pub(crate) struct Report {
    number: u64,
    hub: mpsc::UnboundedSender<(u64, Outcome)>,
    peer: Option<PeerId>,
    last: Option<Outcome>,
}

impl Report {
    pub fn new(number: u64, hub: mpsc::UnboundedSender<(u64, Outcome)>) -> Self {
        Self { number, hub, peer: None, last: Some(Outcome::Failed(Refusal::Broken.into())) }
    }

    fn linked(&mut self) {
        if let Some(peer) = self.peer {
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

pub(crate) async fn dial(address: SocketAddr, mut report: Report, shared: Arc<Shared>) {
    let stream = match timeout(shared.config.handshake, TcpStream::connect(address)).await {
        Ok(Ok(stream)) => stream,
        Ok(Err(error)) => {
            report.last = Some(Outcome::Failed(Unreached::Connection(error.to_string())));
            return;
        }
        Err(_) => {
            report.last = Some(Outcome::Failed(Unreached::Connection("no answer".to_owned())));
            return;
        }
    };
    let opened = timeout(shared.config.handshake, open(stream, Role::Dialler, address, &shared, &mut report)).await;
    match opened.unwrap_or(Err(Refusal::Timeout)) {
        Ok(link) => run(link, report).await,
        Err(refusal) => {
            shared.table.refused(refusal);
            report.refused(refusal);
        }
    }
}

pub(crate) async fn answer(
    (stream, address, entry): (TcpStream, SocketAddr, OwnedSemaphorePermit),
    mut report: Report,
    shared: Arc<Shared>,
) {
    let goes = shared.admission.arrive(address);
    let opened = tokio::select! {
        // A finished handshake counts, even if its place was needed at the same moment.
        biased;
        opened = timeout(shared.config.handshake, open(stream, Role::Listener, address, &shared, &mut report)) => {
            opened.unwrap_or(Err(Refusal::Timeout))
        }
        _ = goes => Err(Refusal::Crowded),
    };
    shared.admission.leave(address);
    drop(entry);
    match opened {
        Ok(link) => run(link, report).await,
        Err(refusal) => {
            shared.table.refused(refusal);
            shared.log.refused(refusal, address);
            report.refused(refusal);
        }
    }
}

async fn open(
    stream: TcpStream,
    role: Role,
    address: SocketAddr,
    shared: &Arc<Shared>,
    report: &mut Report,
) -> Result<RunningLink<OwnedReadHalf, OwnedWriteHalf>, Refusal> {
    // A failure costs only latency.
    _ = stream.set_nodelay(true);
    let (from, to) = stream.into_split();
    let secret = shared.table.secret();
    let channel = Channel::open(from, to, role, &shared.identity, &secret).await?;
    if channel.name == shared.identity.name() {
        return Err(if interfaces::is_here(address.ip()) { Refusal::Myself } else { Refusal::Twin });
    }
    report.peer = Some(channel.name.number());
    RunningLink::open(channel, secret.preferred(), address, Arc::clone(shared)).await
}

async fn run(link: RunningLink<OwnedReadHalf, OwnedWriteHalf>, mut report: Report) {
    report.linked();
    link.run().await;
}
