//! Detects clients that have disconnected.
//!
//! hyper detects the end of a connection by reading ahead while it answers, but stops at the first byte of a following
//! request, or at a superfluous newline. A client that has sent one would keep waiting or holding after its death. The
//! kernel reports the end independently of unread bytes.

use std::future::poll_fn;
use std::io;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use axum::Extension;
use axum::body::{Body, HttpBody as _};
use axum::extract::Request;
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use futures_util::StreamExt as _;
use peerlock_service::Class;
use tokio::io::{AsyncRead, AsyncWrite, Interest, ReadBuf, Ready};
use tokio::net::{TcpStream, UnixStream, tcp, unix};

use crate::Failure;
use crate::hold::Link;

#[derive(Debug)]
pub struct Stream<W> {
    client: Arc<Client>,
    write: W,
}

#[derive(Debug)]
pub enum Client {
    Unix(unix::OwnedReadHalf),
    Tcp(tcp::OwnedReadHalf),
}

impl From<UnixStream> for Stream<unix::OwnedWriteHalf> {
    fn from(stream: UnixStream) -> Self {
        let (read, write) = stream.into_split();
        Self { client: Arc::new(Client::Unix(read)), write }
    }
}

impl From<TcpStream> for Stream<tcp::OwnedWriteHalf> {
    fn from(stream: TcpStream) -> Self {
        let (read, write) = stream.into_split();
        Self { client: Arc::new(Client::Tcp(read)), write }
    }
}

impl<W> Stream<W> {
    pub fn client(&self) -> Arc<Client> {
        Arc::clone(&self.client)
    }
}

impl Client {
    pub fn link(&self) -> Link {
        match self {
            Self::Unix(_) => Link::Unix,
            Self::Tcp(_) => Link::Tcp,
        }
    }

    /// Resolves when the client has closed the connection or its sending half, even if there are unread bytes.
    async fn gone(self: Arc<Self>) {
        // No priority data was requested, so the only event is the end of the connection (or of the runtime).
        while self.received().await.is_ok_and(|received| !received.is_read_closed()) {}
    }

    async fn received(&self) -> io::Result<Ready> {
        match self {
            Self::Unix(read) => read.ready(Interest::PRIORITY).await,
            Self::Tcp(read) => read.ready(Interest::PRIORITY).await,
        }
    }

    fn poll_readable(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self {
            Self::Unix(read) => AsRef::<UnixStream>::as_ref(read).poll_read_ready(cx),
            Self::Tcp(read) => AsRef::<TcpStream>::as_ref(read).poll_read_ready(cx),
        }
    }

    fn try_read(&self, mut buffer: &mut ReadBuf<'_>) -> io::Result<usize> {
        match self {
            Self::Unix(read) => read.try_read_buf(&mut buffer),
            Self::Tcp(read) => read.try_read_buf(&mut buffer),
        }
    }
}

impl<W: Unpin> AsyncRead for Stream<W> {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        loop {
            ready!(self.client.poll_readable(cx))?;
            match self.client.try_read(buffer) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                read => return Poll::Ready(read.map(|_| ())),
            }
        }
    }
}

impl<W: AsyncWrite + Unpin> AsyncWrite for Stream<W> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.write).poll_write(cx, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.write).poll_write_vectored(cx, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.write.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.write).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.write).poll_shutdown(cx)
    }
}

/// Cancels a waiting request, or ends a streamed answer, when its client disconnects.
pub async fn attended(Extension(client): Extension<Arc<Client>>, request: Request, next: Next) -> Response {
    let mut answer = pin!(next.run(request));
    // A client may close its connection right after sending a request: process the request before checking.
    let at_once = poll_fn(|cx| Poll::Ready(answer.as_mut().poll(cx))).await;
    let response = match at_once {
        Poll::Ready(response) => response,
        Poll::Pending => tokio::select! {
            biased;
            () = Arc::clone(&client).gone() => {
                let why = "the connection was closed before the answer, which withdraws the request. Leave it open";
                return Failure::new(Class::BadRequest, why).into_response();
            }
            response = answer => response,
        },
    };
    // A body of known length is complete, so a client that has only closed its sending half can read it.
    if response.body().size_hint().exact().is_some() {
        return response;
    }
    response.map(|body| Body::from_stream(body.into_data_stream().take_until(Box::pin(client.gone()))))
}
