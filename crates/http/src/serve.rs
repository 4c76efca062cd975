//! Accepting and serving connections.

use std::convert::Infallible;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::http::{HeaderValue, header};
use axum::middleware::{from_fn, from_fn_with_state};
use axum::response::IntoResponse as _;
use futures_util::future::join_all;
use hyper::Request;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::{Service as _, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use peerlock_service::Class;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::{Semaphore, watch};
use tokio::time::{sleep, timeout};

use crate::Failure;
use crate::connection_limit::Place;
use crate::connections::{Connections, Site};
use crate::guard::guard;
use crate::input::{Caller, whole};
use crate::listen::{Listener, Socket};
use crate::presence::{Stream, attended};
use crate::tcp::tune;

/// A connection without a complete request head is closed after this long.
const SILENCE: Duration = Duration::from_secs(30);
/// How long a client has to read its last answer when the agent stops.
const LAST_WORDS: Duration = Duration::from_secs(2);
/// How long to wait for free file descriptors before accepting again.
const PAUSE: Duration = Duration::from_millis(100);
/// How many refused connections are answered at a time. The others are closed without an answer.
const REFUSALS: usize = 16;
/// Buffer limit for reading a request head and for writing: several times the longest name and a browser's headers. A
/// thousand unauthenticated connections use no more than 30 MB.
const MOST_HEAD: usize = 16 * 1024;
/// The kernel's ID of a user that is unknown in this user namespace.
const UNPRIVILEGED: u32 = 65_534;

/// Serves all listeners until `shutdown` resolves. Then notifies waiters and holders, ends event streams, and returns
/// after two seconds at most.
pub async fn serve(listeners: Vec<Listener>, site: impl Into<Site>, shutdown: impl Future<Output = ()>) {
    let Site { router, connections } = site.into();
    let doors = listeners.iter().map(|listener| {
        let guarded = from_fn_with_state(Arc::new(listener.guard.clone()), guard);
        let router = router.clone().layer(from_fn(attended)).layer(from_fn(whole)).layer(guarded);
        accept(listener, router, &connections)
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
    let refusals = Arc::new(Semaphore::new(REFUSALS));
    loop {
        let accepted = match &listener.socket {
            Socket::Unix(socket) => socket.accept().await.map(|(stream, _)| {
                let peer = stream.peer_cred().ok();
                // 0 means that the process has no ID in this PID namespace, for example that it is in another
                // container.
                let pid = peer.and_then(|peer| u32::try_from(peer.pid()?).ok()).filter(|pid| *pid > 0);
                let user = peer.map_or(UNPRIVILEGED, |peer| peer.uid());
                match listener.connection_limit.user(user) {
                    Ok(place) => {
                        let visit = Visit { caller: Caller(pid), place: Arc::new(place) };
                        tokio::spawn(connection(stream.into(), router.clone(), visit, connections.begin()));
                    }
                    Err(limit) => refuse(stream, limit, &refusals),
                }
            }),
            Socket::Tcp(socket) => socket.accept().await.map(|(stream, _)| {
                tune(&stream);
                match listener.connection_limit.unauthenticated() {
                    Ok((place, goes)) => {
                        let visit = Visit { caller: Caller(None), place: Arc::new(place) };
                        let connection = connection(stream.into(), router.clone(), visit, connections.begin());
                        tokio::spawn(async {
                            tokio::select! {
                                () = connection => {}
                                Ok(()) = goes => {}
                            }
                        });
                    }
                    Err(limit) => refuse(stream, limit, &refusals),
                }
            }),
        };
        if let Err(error) = accepted {
            tracing::warn!(%error, "a connection could not be accepted");
            sleep(PAUSE).await;
        }
    }
}

struct Visit {
    caller: Caller,
    place: Arc<Place>,
}

/// Serves one connection. When it ends, its request or stream is cancelled.
async fn connection(
    stream: Stream<impl AsyncWrite + Unpin + Send + 'static>,
    router: Router,
    Visit { caller, place }: Visit,
    mut closing: watch::Receiver<bool>,
) {
    let (router, client) = (TowerToHyperService::new(router), stream.client());
    let service = service_fn(move |mut request: Request<Incoming>| {
        request.extensions_mut().insert(caller);
        request.extensions_mut().insert(Arc::clone(&client));
        request.extensions_mut().insert(Arc::clone(&place));
        router.call(request)
    });
    let mut builder = http();
    // `half_close`: `presence` alone decides that a client has disconnected.
    builder.timer(TokioTimer::new()).header_read_timeout(SILENCE).half_close(true);
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

fn http() -> http1::Builder {
    let mut builder = http1::Builder::new();
    builder.max_buf_size(MOST_HEAD);
    builder
}

/// Answers that the limit is reached, unless too many such answers are pending. The request is ignored.
fn refuse(stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static, limit: usize, refusals: &Arc<Semaphore>) {
    let Ok(turn) = Arc::clone(refusals).try_acquire_owned() else { return };
    tokio::spawn(async move {
        let busy = service_fn(async |_: Request<Incoming>| {
            let message = format!(
                "the limit of {limit} connections is reached: close some, try again later, or use the \
                 agent's Unix socket"
            );
            let mut response = Failure::new(Class::Busy, message).into_response();
            response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
            Ok::<_, Infallible>(response)
        });
        let served = http().keep_alive(false).serve_connection(TokioIo::new(stream), busy);
        _ = timeout(LAST_WORDS, served).await;
        drop(turn);
    });
}
