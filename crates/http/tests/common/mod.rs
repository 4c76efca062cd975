//! A single-peer agent with its own Unix socket and port.
#![allow(dead_code, reason = "each test file uses some of it")]

use std::time::Duration;

use peerlock_http::client::Agent;
use peerlock_http::{App, Endpoint, LONGEST_LEASE, Listener, Program, Token, serve};
use peerlock_service::memory::Network;
use peerlock_service::{PeerId, ResourceDetails, Service};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};

/// Longer than any step takes on a loaded machine.
pub const LONG: Duration = Duration::from_secs(60);

const TOKEN: &str = "0123456789abcdef0123";

pub fn token() -> Token {
    Token::new(TOKEN).unwrap()
}

pub struct Stand {
    pub directory: TempDir,
    pub service: Service,
    pub unix: Endpoint,
    pub tcp: Endpoint,
    app: App,
    stop: Option<oneshot::Sender<()>>,
    server: JoinHandle<()>,
}

impl Stand {
    pub async fn start() -> Self {
        Self::with(1024, LONGEST_LEASE).await
    }

    pub async fn with(most: usize, longest_lease: Duration) -> Self {
        let service = Service::builder().start(Network::new(1).endpoint(PeerId::new(1))).await.unwrap();
        let directory = tempfile::tempdir().unwrap();
        let unix = Endpoint::Unix(directory.path().join("run/agent.sock"));
        let listeners = vec![
            Listener::bind(&unix, None, most).await.unwrap(),
            Listener::bind(&"127.0.0.1:0".parse().unwrap(), Some(token()), most).await.unwrap(),
        ];
        let tcp = listeners[1].endpoint().clone();
        let (stop, stopped) = oneshot::channel();
        let app = App::agent(service.clone(), Program::default(), longest_lease, None);
        let server = tokio::spawn(serve(listeners, app.clone(), async { _ = stopped.await }));
        Self { directory, service, unix, tcp, app, stop: Some(stop), server }
    }

    pub fn unix(&self) -> Agent {
        Agent::new(self.unix.clone(), None)
    }

    pub fn tcp(&self) -> Agent {
        Agent::new(self.tcp.clone(), Some(token()))
    }

    pub fn connections(&self) -> usize {
        self.app.connections().0
    }

    pub fn address(&self) -> &str {
        let Endpoint::Tcp(address) = &self.tcp else { panic!("not a port") };
        address
    }

    pub async fn stop(&mut self) {
        _ = self.stop.take().unwrap().send(());
        timeout(LONG, &mut self.server).await.expect("it stops").unwrap();
    }

    pub async fn show(&self) -> ResourceDetails {
        self.unix().show("a").await.unwrap()
    }

    pub async fn until(&self, what: &str, is: impl Fn(&ResourceDetails) -> bool) {
        let looked = timeout(LONG, async {
            while !is(&self.show().await) {
                sleep(Duration::from_millis(5)).await;
            }
        });
        assert!(looked.await.is_ok(), "not {what}: {:?}", self.show().await);
    }
}

pub struct Answer {
    pub status: u16,
    pub head: String,
    pub body: String,
}

impl Answer {
    pub fn json(&self) -> serde_json::Value {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error}: {}\n\n{}", self.head, self.body))
    }
}

impl Stand {
    /// Sends a raw request to the port, with the token unless another is given.
    pub async fn ask(&self, method: &str, path: &str, headers: &[(&str, &str)], body: &str) -> Answer {
        let mut lines = vec![format!("{method} {path} HTTP/1.1"), "Connection: close".to_owned()];
        if !headers.iter().any(|(name, _)| name.eq_ignore_ascii_case("host")) {
            lines.push("Host: localhost".to_owned());
        }
        if !headers.iter().any(|(name, _)| name.eq_ignore_ascii_case("authorization")) {
            lines.push(format!("Authorization: Bearer {TOKEN}"));
        }
        lines.extend(headers.iter().map(|(name, value)| format!("{name}: {value}")));
        if !body.is_empty() {
            lines.push(format!("Content-Length: {}", body.len()));
        }
        let mut stream = TcpStream::connect(self.address()).await.unwrap();
        stream.write_all(format!("{}\r\n\r\n{body}", lines.join("\r\n")).as_bytes()).await.unwrap();
        let mut bytes = Vec::new();
        timeout(LONG, stream.read_to_end(&mut bytes)).await.expect("an answer").unwrap();
        let text = String::from_utf8(bytes).unwrap();
        let (head, body) = text.split_once("\r\n\r\n").unwrap();
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        Answer { status, head: head.to_ascii_lowercase(), body: body.to_owned() }
    }
}
