//! An agent over TCP, through a proxy that may end one side of a connection.
#![allow(clippy::unwrap_used, reason = "a test may fail loudly")]

use std::time::Duration;

use peerlock::testing::Network;
use peerlock::{Agent, Client, Endpoint, Error, Listing, Request, Stop, Token};
use peerlock_http::{App, Listener, serve};
use peerlock_service::Service;
use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::broadcast;
use tokio::time::timeout;

const LONG: Duration = Duration::from_secs(60);
const TOKEN: &str = "0123456789abcdef0123";

struct Stand {
    service: Service,
    app: App,
    endpoint: Endpoint,
    behind: Endpoint,
    cut: broadcast::Sender<Cut>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Cut {
    /// Ends the agent's side. The client's side stays open and silent.
    Agents,
    Both,
}

impl Stand {
    async fn start() -> Self {
        let peer = Network::new().peer().await.unwrap();
        let app = App::new(peer.service().clone());
        let token = Token::new(TOKEN).unwrap();
        let listener = Listener::bind(&"127.0.0.1:0".parse().unwrap(), Some(token), 1024).await.unwrap();
        let behind = listener.endpoint().clone();
        let service = peer.service().clone();
        tokio::spawn(serve(vec![listener], app.clone(), async move {
            std::future::pending::<()>().await;
            drop(peer);
        }));
        let proxy = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let endpoint = Endpoint::Tcp(proxy.local_addr().unwrap().to_string());
        let cut = broadcast::Sender::new(8);
        tokio::spawn(forward(proxy, behind.clone(), cut.clone()));
        Self { service, app, endpoint, behind, cut }
    }

    fn remote(&self) -> Client {
        Agent::at(self.endpoint.clone(), Some(Token::new(TOKEN).unwrap())).client()
    }

    async fn is_free(&self) -> bool {
        self.service.show("a").await.unwrap().holders[0].free
    }

    async fn until_unconnected(&self) {
        until("without connections", async || self.app.connections().0 == 0).await;
    }
}

async fn forward(proxy: TcpListener, behind: Endpoint, cuts: broadcast::Sender<Cut>) {
    let Endpoint::Tcp(behind) = behind else { panic!("it is one") };
    loop {
        let (mut near, _) = proxy.accept().await.unwrap();
        let (behind, mut cut) = (behind.clone(), cuts.subscribe());
        tokio::spawn(async move {
            let mut far = TcpStream::connect(behind).await.unwrap();
            let how = tokio::select! {
                _ = copy_bidirectional(&mut near, &mut far) => return,
                how = cut.recv() => how,
            };
            drop(far);
            if how == Ok(Cut::Agents) {
                std::future::pending::<()>().await;
            }
        });
    }
}

async fn until(what: &str, mut is: impl AsyncFnMut() -> bool) {
    let looked = timeout(LONG, async {
        while !is().await {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    });
    assert!(looked.await.is_ok(), "never {what}");
}

fn long(name: &str) -> Request {
    Request::new(name).ttl(10 * LONG)
}

#[tokio::test]
async fn slot_stays_held_when_only_the_agent_sees_the_end() {
    let stand = Stand::start().await;
    let hold = stand.remote().hold(long("a"), |_| {}).await.unwrap();
    stand.cut.send(Cut::Agents).unwrap();
    stand.until_unconnected().await;
    assert!(!stand.is_free().await, "its holder continues");
    let next = stand.service.acquire(Request::new("a").try_only()).await;
    assert!(matches!(next, Err(Error::NotAcquired { .. })), "{next:?}");
    assert!(hold.renew().await.unwrap() > Duration::ZERO);
    hold.release().await.unwrap();
    until("free", async || stand.is_free().await).await;
}

#[tokio::test]
async fn holder_resumes_when_its_connection_ends() {
    let stand = Stand::start().await;
    let grant = stand.remote().acquire(long("a")).await.unwrap();
    for _ in 0..3 {
        let before = stand.app.connections().1;
        stand.cut.send(Cut::Both).unwrap();
        until("resumed", async || stand.app.connections().1 > before).await;
    }
    assert!(!grant.is_lost() && !stand.is_free().await);
    assert_eq!(
        stand.service.show("a").await.unwrap().holders[0].client.as_ref().unwrap().fencing,
        Some(grant.fencing())
    );
    grant.release().await.unwrap();
    until("free", async || stand.is_free().await).await;
}

#[tokio::test]
async fn request_is_repeated_when_its_connection_ends() {
    let stand = Stand::start().await;
    let first = stand.service.acquire(Request::new("a")).await.unwrap();
    let waits = tokio::spawn({
        let client = stand.remote();
        async move { client.acquire(long("a")).await }
    });
    let waiting = async |count| until("in the queue", async || queue(&stand).await == count).await;
    waiting(1).await;
    let before = stand.app.connections().1;
    stand.cut.send(Cut::Both).unwrap();
    until("repeated", async || stand.app.connections().1 > before).await;
    waiting(1).await;
    drop(first);
    let grant = timeout(LONG, waits).await.expect("it is granted").unwrap().unwrap();
    assert!(!grant.is_lost());
}

async fn queue(stand: &Stand) -> usize {
    stand.service.show("a").await.unwrap().queue.len()
}

#[tokio::test]
async fn dropping_releases_over_tcp() {
    let stand = Stand::start().await;
    drop(stand.remote().acquire(long("a")).await.unwrap());
    until("free", async || stand.is_free().await).await;
    drop(stand.remote().hold(long("a"), |_| {}).await.unwrap());
    until("free", async || stand.is_free().await).await;
}

/// The environment is global, so the client is a child process, which runs this test again.
#[test]
fn dropping_releases_over_tcp_in_a_blocking_client() {
    if std::env::var_os("PEERLOCK_API_TOKEN").is_some() {
        let client = peerlock::blocking::Client::agent().unwrap();
        let both = (client.acquire(long("a")).unwrap(), client.hold(long("b"), |_| {}).unwrap());
        drop(client);
        return drop(both);
    }
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let stand = runtime.block_on(Stand::start());
    let Endpoint::Tcp(address) = &stand.behind else { panic!("it is one") };
    let mut client = std::process::Command::new(std::env::current_exe().unwrap());
    client.args(["--exact", "dropping_releases_over_tcp_in_a_blocking_client"]);
    let ended = client.env("PEERLOCK_AGENT", address).env("PEERLOCK_API_TOKEN", TOKEN).output().unwrap();
    assert!(ended.status.success(), "{}", String::from_utf8_lossy(&ended.stdout));
    runtime.block_on(async {
        assert_eq!(stand.service.list(Listing::default()).await.unwrap().len(), 2, "both were held");
        for name in ["a", "b"] {
            assert!(stand.service.show(name).await.unwrap().holders[0].free, "{name}");
        }
    });
}

#[test]
fn token_is_taken_from_the_environment() {
    if let Some(expected) = std::env::var_os("EXPECTED") {
        let token = Agent::token();
        let found = token.map_or_else(
            |error| error.to_string(),
            |token| token.map_or("none".to_owned(), |token| token.as_str().to_owned()),
        );
        assert!(found.contains(expected.to_str().unwrap()), "{found}");
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("token");
    std::fs::write(&file, "0123456789-in-a-file\n").unwrap();
    let (file, missing) = (file.to_str().unwrap(), dir.path().join("missing"));
    for (token, file, expected) in [
        ("", "", "none"),
        (TOKEN, file, TOKEN),
        ("", file, "0123456789-in-a-file"),
        ("short", file, "$PEERLOCK_API_TOKEN: a token has at least"),
        ("", missing.to_str().unwrap(), "$PEERLOCK_API_TOKEN_FILE"),
    ] {
        let mut process = std::process::Command::new(std::env::current_exe().unwrap());
        process.args(["--exact", "token_is_taken_from_the_environment"]).env("EXPECTED", expected);
        let ended = process.env("PEERLOCK_API_TOKEN", token).env("PEERLOCK_API_TOKEN_FILE", file).output().unwrap();
        assert!(ended.status.success(), "{expected}: {}", String::from_utf8_lossy(&ended.stdout));
    }
}

/// The slot may have another holder, so the grace does not apply.
#[tokio::test]
async fn refused_renewal_without_a_line_stops_the_holder_at_once() {
    let stand = Stand::start().await;
    let mut hold = stand.remote().hold(Request::new("a").ttl(Duration::from_secs(9)), |_| {}).await.unwrap();
    stand.cut.send(Cut::Agents).unwrap();
    stand.until_unconnected().await;
    // Released by its ID, so the connection receives no line.
    stand.remote().release("a", &hold.granted().grant.clone()).await.unwrap();
    let stop = timeout(LONG, hold.maintain(|_, _| {}, |_| {}, async || {})).await.expect("it is lost");
    assert_eq!((stop, hold.why_lost()), (Stop::AtOnce, Some(&Error::Lost)));
}
