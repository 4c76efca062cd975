//! A peer of a demo that can be killed, frozen, disconnected and restored.
//!
//! Each peer has a thread and a directory. A frozen peer's thread is blocked, with its clients. A killed peer continues
//! with its directory when it is started again.

use std::fs::DirBuilder;
use std::net::{Ipv4Addr, SocketAddr};
use std::os::unix::fs::DirBuilderExt as _;
use std::path::PathBuf;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use peerlock::store::Store;
use peerlock::{Identity, Secret, StartError, places};
use peerlock_net::{Config, Net};
use peerlock_service::{RealNetwork, Service};
use tokio::runtime::Handle;
use tokio::sync::{oneshot, watch};

use super::cut::Cuttable;
use super::workload::Workload;
use crate::{Error, Result};

/// Shorter than the default, so that a restored peer reconnects soon.
const REDIAL: Duration = Duration::from_secs(1);

pub struct Actor {
    pub number: usize,
    pub dir: PathBuf,
    /// Port 0 at first: any free port.
    pub address: SocketAddr,
    pub join: Option<SocketAddr>,
    pub secret: Secret,
    pub session: Duration,
    pub workload: Workload,
    pub running: Option<Running>,
}

pub struct Running {
    pub service: Service,
    runtime: Handle,
    cut: watch::Sender<bool>,
    /// The thread is blocked until this is dropped.
    frozen: Option<mpsc::Sender<()>>,
    end: oneshot::Sender<()>,
    thread: thread::JoinHandle<()>,
}

type Started = (Service, SocketAddr, Handle);

impl Actor {
    pub const ANYWHERE: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 0);

    pub async fn start(&mut self) -> Result<Service> {
        DirBuilder::new().recursive(true).mode(0o700).create(&self.dir).map_err(Error::Start)?;
        let ((cut, is_cut), (end, ends)) = (watch::channel(false), oneshot::channel());
        let (started, is_started) = oneshot::channel();
        let life = Life {
            identity: Identity::load_or_create(&places::identity(&self.dir)).map_err(StartError::from)?,
            config: Config { redial_most: REDIAL, ..Config::new(self.address) },
            secret: self.secret.clone(),
            join: self.join,
            builder: Service::builder().session(self.session).name(format!("peer-{}", self.number)),
            store: Store::dir(&self.dir).map_err(StartError::from)?,
            workload: self.workload.clone(),
            number: self.number,
            is_cut,
        };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(Error::Start)?;
        let live = move || runtime.block_on(life.live(started, ends));
        let thread = thread::Builder::new().name(format!("peer-{}", self.number)).spawn(live).map_err(Error::Start)?;
        // Without an answer the thread has panicked, and printed the panic.
        let (service, address, runtime) =
            is_started.await.unwrap_or(Err(StartError::Join(peerlock::Error::Stopped)))?;
        self.address = address;
        self.running = Some(Running { service: service.clone(), runtime, cut, frozen: None, end, thread });
        Ok(service)
    }

    pub async fn kill(&mut self) {
        let Some(Running { frozen, end, thread, .. }) = self.running.take() else { return };
        _ = end.send(());
        drop(frozen);
        _ = tokio::task::spawn_blocking(|| thread.join()).await;
    }
}

impl Running {
    pub fn freeze(&mut self) {
        let (frozen, goes_on) = mpsc::channel::<()>();
        self.frozen = Some(frozen);
        self.runtime.spawn(async move { _ = goes_on.recv() });
    }

    pub fn cut_off(&self) {
        self.cut.send_replace(true);
    }

    pub fn is_in_touch(&self) -> bool {
        self.frozen.is_none() && !*self.cut.borrow()
    }

    pub fn bring_back(&mut self) {
        self.frozen = None;
        self.cut.send_replace(false);
    }
}

struct Life {
    number: usize,
    identity: Identity,
    config: Config,
    secret: Secret,
    join: Option<SocketAddr>,
    builder: peerlock_service::Builder,
    store: (Store, peerlock::store::Known),
    workload: Workload,
    is_cut: watch::Receiver<bool>,
}

impl Life {
    async fn live(
        self,
        started: oneshot::Sender<std::result::Result<Started, StartError>>,
        ends: oneshot::Receiver<()>,
    ) {
        let start = async {
            let net = Net::start(self.config, self.identity, self.secret).await?;
            let address = net.address();
            let transport = Cuttable::new(RealNetwork::new(net), self.is_cut);
            let builder = self.join.into_iter().fold(self.builder, |builder, to| builder.join(to.to_string()));
            let (store, known) = self.store;
            Ok::<_, StartError>((builder.dir(store, known).start(transport).await?, address))
        };
        let service = match start.await {
            Ok((service, address)) => {
                _ = started.send(Ok((service.clone(), address, Handle::current())));
                service
            }
            Err(error) => {
                _ = started.send(Err(error));
                return;
            }
        };
        tokio::select! {
            biased;
            _ = ends => {}
            () = self.workload.live(&service, self.number) => {}
        }
    }
}
