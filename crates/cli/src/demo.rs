//! `peerlock demo`: a cluster of peers in one process, with clients, and the live page to watch them.

use std::future::pending;
use std::io::{Write as _, stdout};
use std::net::SocketAddr;
use std::time::Duration;

use clap::Args;
use futures_util::future::{join_all, try_join_all};
use peerlock::{Endpoint, Peer, Request, Secret, Token};
use peerlock_base::{Key, Rng, Span};
use peerlock_http::{App, Listener, serve};
use peerlock_supervise::Signals;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};

use crate::say::say;
use crate::{Error, Result, duration};

/// What the clients want. By name, so that the page shows the first, which is wanted most, first.
const NAMES: [&str; 6] = ["backup", "deploy", "invoices", "reindex", "thumbnails", "vacuum"];
const EXAMPLES: &str = "\
Examples:
  peerlock demo                                          eight peers, three slots
  peerlock demo --slots 1 --peers 16 --hold 50ms         a lock that goes round fast
  peerlock demo --http 127.0.0.1:7401 --for 10m          where others expect it, and not for ever";

/// So many connections there may be at the page's port: browsers have six each.
const MOST_CONNECTIONS: usize = 256;
/// How long the peers may take to say goodbye.
const GOODBYE: Duration = Duration::from_secs(5);

/// Start a cluster of peers in this process, with clients and a live page
///
/// Real peers on loopback, each with clients that think, ask for a slot, stay inside and leave. The page shows where
/// the tokens are, who waits, and for how long. Nothing is left when it ends.
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub struct Options {
    /// How many peers
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u16).range(2..=64))]
    peers: u16,
    /// How many may be inside at a time
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=64))]
    slots: u32,
    /// How many clients each peer has
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u16).range(1..=1000))]
    clients: u16,
    /// How many resources they choose from
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u8).range(1..=NAMES.len() as i64))]
    resources: u8,
    /// How long a client stays inside, on average
    #[arg(long, value_name = "DUR", default_value = "700ms")]
    hold: Span,
    /// How long it thinks before it asks again, on average
    #[arg(long, value_name = "DUR", default_value = "500ms")]
    think: Span,
    /// Where the page is served: a port of this machine, 0 for any that is free
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:0")]
    http: SocketAddr,
    /// End after this long, and not only on Ctrl-C
    #[arg(long = "for", value_name = "DUR", value_parser = duration)]
    runs_for: Option<Duration>,
}

/// Runs until Ctrl-C, or for as long as was asked for.
pub fn run(options: &Options) -> Result<()> {
    if !options.http.ip().is_loopback() {
        let message =
            format!("the demo's page is for this machine only: give --http 127.0.0.1:{}", options.http.port());
        return Err(Error::Usage(message));
    }
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().map_err(Error::Start)?;
    runtime.block_on(demo(options))
}

async fn demo(options: &Options) -> Result<()> {
    let signals = Signals::ending().map_err(Error::Start)?;
    let endpoint = Endpoint::Tcp(options.http.to_string());
    let token = Token::generate().map_err(Error::Start)?;
    let listener = Listener::bind(&endpoint, Some(token.clone()), MOST_CONNECTIONS).await?;
    let page = token.page(listener.endpoint());
    let peers = start(options.peers).await?;
    let mut services = peers.iter().map(|peer| peer.service().clone());
    let first = services.next().expect("a demo has two peers at least");
    let app = App::demo(first, services.collect());
    let mut clients = JoinSet::new();
    for (number, peer) in (1..).zip(&peers) {
        for client in 1..=options.clients {
            let label = format!("job {number}.{client}");
            clients.spawn(come_and_go(peer.clone(), label, Plan::of(options)));
        }
    }
    let began = Instant::now();
    let Options { peers: many, slots, .. } = options;
    // A pipe that nobody reads any more does not keep the demo from running.
    _ = writeln!(stdout(), "{many} peers, {slots} slots. The page: {page}\nCtrl-C ends it.");
    serve(vec![listener], app, end(signals, options.runs_for)).await;

    clients.shutdown().await;
    let mut entries = 0;
    for peer in &peers {
        entries += peer.service().counters().await.map_or(0, |counters| counters.granted);
    }
    // They have nobody left to give anything to: whoever does not come to an end is left behind.
    _ = timeout(GOODBYE, join_all(peers.iter().map(Peer::leave))).await;
    _ = writeln!(stdout(), "{entries} entries in {:.1} s.", began.elapsed().as_secs_f64());
    Ok(())
}

/// This many peers, the others joining the first.
async fn start(many: u16) -> Result<Vec<Peer>> {
    let secret = Secret::generate();
    let builder =
        || Peer::builder().listen(SocketAddr::from(([127, 0, 0, 1], 0))).secret(secret.clone()).votes_from_memory();
    let first = builder().start().await?;
    let address = first.address().to_string();
    let others = try_join_all((1..many).map(|_| builder().join(&*address).start())).await?;
    Ok(std::iter::once(first).chain(others).collect())
}

/// Resolves when somebody or the system wants the demo to end, or its time is up.
async fn end(mut signals: Signals, after: Option<Duration>) {
    let time_is_up = async {
        match after {
            Some(after) => sleep(after).await,
            None => pending().await,
        }
    };
    tokio::select! {
        () = time_is_up => {}
        _ = signals.number() => {}
    }
}

/// What a client does.
#[derive(Clone)]
struct Plan {
    names: &'static [&'static str],
    slots: u32,
    hold: Span,
    think: Span,
}

impl Plan {
    fn of(options: &Options) -> Self {
        let names = &NAMES[..usize::from(options.resources)];
        Self { names, slots: options.slots, hold: options.hold, think: options.think }
    }
}

/// One client: thinks, asks, stays inside, leaves, and thinks again, until its peer stops.
async fn come_and_go(peer: Peer, label: String, plan: Plan) {
    let mut rng = Rng::new(peer.me().get() ^ Key::of(label.as_bytes()).get() as u64);
    let pause = |rng: &mut Rng, mean| sleep(Duration::from_nanos(rng.exponential(mean).as_nanos()));
    let client = peer.client();
    loop {
        pause(&mut rng, plan.think).await;
        // The first is wanted more often than the others, so that its line is worth watching.
        let name = plan.names[(rng.below(plan.names.len() as u64 + 1) as usize).saturating_sub(1)];
        match client.acquire(Request::new(name).slots(plan.slots).label(&*label)).await {
            Ok(grant) => {
                pause(&mut rng, plan.hold).await;
                _ = grant.release().await;
            }
            Err(peerlock::Error::Stopped) => return,
            // It thinks, and asks again.
            Err(error) => say(format_args!("{label}: {error}")),
        }
    }
}
