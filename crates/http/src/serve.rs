//! The loop that takes connections.

use std::convert::Infallible;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::middleware::from_fn_with_state;
use futures_util::future::join_all;
use hyper::Request;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::{Service as _, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::watch;
use tokio::time::{sleep, timeout};

use crate::connections::{Connections, Site};
use crate::guard::guard;
use crate::input::Caller;
use crate::listen::{Listener, Socket};

/// A connection that says nothing, or not a whole head, is closed after this long.
const SILENCE: Duration = Duration::from_secs(30);
/// How long a client has to take its last answer when the agent stops.
const LAST_WORDS: Duration = Duration::from_secs(2);
/// When there are no more file descriptors, we wait for one to become free.
const PAUSE: Duration = Duration::from_millis(100);

/// Answers at all listeners until `shutdown` resolves. Then waits and holds are told that the agent stops, event
/// streams end, and after two seconds at most nothing is left.
pub async fn serve(listeners: Vec<Listener>, site: impl Into<Site>, shutdown: impl Future<Output = ()>) {
    let Site { router, connections } = site.into();
    let doors = listeners.iter().map(|listener| {
        let guarded = router.clone().layer(from_fn_with_state(Arc::new(listener.door.clone()), guard));
        accept(listener, guarded, &connections)
    });
    let doors = join_all(doors);
    tokio::select! {
        _ = doors => {}
        () = shutdown => {}
    }
    drop(listeners);
    connections.close().await;
}

async fn accept(listener: &Listener, router: Router, connections: &Connections) -> Infallible {
    loop {
        let accepted = match &listener.socket {
            Socket::Unix(socket) => socket.accept().await.map(|(stream, _)| {
                // 0 is a process that has no number here, such as one of another container.
                let pid = stream.peer_cred().ok().and_then(|peer| u32::try_from(peer.pid()?).ok());
                let caller = Caller(pid.filter(|pid| *pid > 0));
                tokio::spawn(connection(stream, router.clone(), caller, connections.begin()));
            }),
            Socket::Tcp(socket) => socket.accept().await.map(|(stream, _)| {
                // Without it answers are slower, and as good.
                _ = stream.set_nodelay(true);
                tokio::spawn(connection(stream, router.clone(), Caller(None), connections.begin()));
            }),
        };
        if let Err(error) = accepted {
            tracing::warn!(%error, "a connection could not be accepted");
            sleep(PAUSE).await;
        }
    }
}

/// One connection's life. It ends when the client closes it, and with it what its request waits for or holds.
async fn connection(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    router: Router,
    caller: Caller,
    mut closing: watch::Receiver<bool>,
) {
    let router = TowerToHyperService::new(router);
    let service = service_fn(move |mut request: Request<Incoming>| {
        request.extensions_mut().insert(caller);
        router.call(request)
    });
    let mut builder = http1::Builder::new();
    builder.timer(TokioTimer::new()).header_read_timeout(SILENCE);
    let mut served = pin!(builder.serve_connection(TokioIo::new(stream), service));
    let ended = tokio::select! {
        ended = served.as_mut() => ended,
        _ = async { closing.wait_for(|closing| *closing).await.is_ok() } => {
            served.as_mut().graceful_shutdown();
            timeout(LAST_WORDS, served).await.unwrap_or(Ok(()))
        }
    };
    if let Err(error) = ended {
        tracing::debug!(%error, "a connection ended");
    }
}
