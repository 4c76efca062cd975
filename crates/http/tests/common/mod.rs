//! An agent that is alone in its cluster, at a Unix socket and a port of its own.
#![allow(dead_code, reason = "each test file uses some of it")]

use std::time::Duration;

use peerlock_http::client::Agent;
use peerlock_http::{App, Details, Endpoint, Listener, Want, serve};
use peerlock_service::memory::Network;
use peerlock_service::{PeerId, Service};
use tempfile::TempDir;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};

/// Nothing takes so long, however loaded the machine is.
pub const LONG: Duration = Duration::from_secs(60);

pub struct Stand {
    pub directory: TempDir,
    pub service: Service,
    pub unix: Endpoint,
    pub tcp: Endpoint,
    stop: Option<oneshot::Sender<()>>,
    server: JoinHandle<()>,
}

impl Stand {
    pub async fn start() -> Self {
        let service = Service::builder().start(Network::new(1).endpoint(PeerId::new(1))).await.unwrap();
        let directory = tempfile::tempdir().unwrap();
        let unix = Endpoint::Unix(directory.path().join("run/agent.sock"));
        let listeners = vec![
            Listener::bind(&unix, None).await.unwrap(),
            Listener::bind(&"127.0.0.1:0".parse().unwrap(), None).await.unwrap(),
        ];
        let tcp = listeners[1].endpoint().clone();
        let (stop, stopped) = oneshot::channel();
        let app = App::new(service.clone());
        let server = tokio::spawn(serve(listeners, app, async { _ = stopped.await }));
        Self { directory, service, unix, tcp, stop: Some(stop), server }
    }

    /// A new client with connections of its own.
    pub fn unix(&self) -> Agent {
        Agent::new(self.unix.clone(), None)
    }

    pub fn tcp(&self) -> Agent {
        Agent::new(self.tcp.clone(), None)
    }

    pub fn address(&self) -> &str {
        let Endpoint::Tcp(address) = &self.tcp else { panic!("it is one") };
        address
    }

    /// Stops the server and waits until it has.
    pub async fn stop(&mut self) {
        _ = self.stop.take().unwrap().send(());
        timeout(LONG, &mut self.server).await.expect("it stops").unwrap();
    }

    /// What becomes of the resource `a`.
    pub async fn show(&self) -> Details {
        self.unix().show("a").await.unwrap()
    }

    /// Waits until the resource `a` is so.
    pub async fn until(&self, what: &str, is: impl Fn(&Details) -> bool) {
        let looked = timeout(LONG, async {
            while !is(&self.show().await) {
                sleep(Duration::from_millis(5)).await;
            }
        });
        assert!(looked.await.is_ok(), "not {what}: {:?}", self.show().await);
    }
}

pub fn want(label: &str) -> Want {
    Want { label: Some(label.into()), ..Want::default() }
}
