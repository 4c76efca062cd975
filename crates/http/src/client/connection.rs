use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, UnixStream};
use tokio::task::AbortHandle;
use tokio::time::{Instant, timeout};

use crate::Endpoint;
use crate::tcp::tune;

/// How long an idle connection is reused: less than the agent's own limit, and more than the interval of renewals.
pub const FRESH: Duration = Duration::from_secs(20);

/// Time limit for a TCP connection. The kernel alone would try for two minutes.
const CONNECT: Duration = Duration::from_secs(5);

/// A connection to an agent. Dropping it closes it.
#[derive(Debug)]
pub struct Connection {
    sender: SendRequest<Full<Bytes>>,
    task: AbortHandle,
    rests_since: Instant,
    socket: Arc<OwnedFd>,
}

impl Connection {
    pub async fn open(endpoint: &Endpoint) -> io::Result<Self> {
        match endpoint {
            Endpoint::Unix(path) => Self::on(UnixStream::connect(path).await?).await,
            Endpoint::Tcp(address) => {
                let connected = timeout(CONNECT, TcpStream::connect(address)).await;
                let stream = connected.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))?;
                tune(&stream);
                Self::on(stream).await
            }
        }
    }

    async fn on(stream: impl AsFd + AsyncRead + AsyncWrite + Unpin + Send + 'static) -> io::Result<Self> {
        let socket = Arc::new(stream.as_fd().try_clone_to_owned()?);
        let (sender, connection) = handshake(TokioIo::new(stream)).await.map_err(io::Error::other)?;
        let task = tokio::spawn(async move {
            if let Err(error) = connection.await {
                tracing::debug!(%error, "a connection to the agent ended");
            }
        });
        Ok(Self { sender, task: task.abort_handle(), rests_since: Instant::now(), socket })
    }

    /// Returns the socket. The agent receives its end when the last copy is closed.
    pub fn socket(&self) -> &Arc<OwnedFd> {
        &self.socket
    }

    /// Sends a request and reads the head of the answer. Returns the request if nothing was sent.
    pub async fn send(
        &mut self,
        request: Request<Full<Bytes>>,
    ) -> Result<Response<Incoming>, (hyper::Error, Option<Request<Full<Bytes>>>)> {
        if let Err(error) = self.sender.ready().await {
            return Err((error, Some(request)));
        }
        self.sender.try_send_request(request).await.map_err(|mut error| {
            let unsent = error.take_message();
            (error.into_error(), unsent)
        })
    }

    /// Records that the last answer has been read completely.
    pub fn rested(self) -> Self {
        let mut this = self;
        this.rests_since = Instant::now();
        this
    }

    pub fn is_fresh(&self) -> bool {
        !self.sender.is_closed() && self.rests_since.elapsed() < FRESH
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.task.abort();
    }
}
