use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
#[cfg(feature = "quic")]
use std::time::Duration;

use libp2p::core::muxing::{StreamMuxer, StreamMuxerBox, StreamMuxerEvent};
use libp2p::core::transport::timeout::TransportTimeout;
use libp2p::core::transport::{Boxed, DialOpts, ListenerId, TransportError, TransportEvent};
use libp2p::core::upgrade::Version;
#[cfg(feature = "quic")]
use libp2p::quic;
use libp2p::{Multiaddr, PeerId, Transport, noise, tcp, yamux};

use crate::doorstep::{Doorstep, Goes};
use crate::{Address, Config, Identity, Refusal};

/// What comes out of it: an authenticated libp2p name, and whatever opens streams.
type Connected = (PeerId, StreamMuxerBox);

/// TCP with Noise and Yamux, and QUIC if we have it: both end in an authenticated libp2p name and one stream.
pub(crate) fn transport(identity: &Identity, config: &Config, doorstep: Arc<Doorstep>) -> Boxed<Connected> {
    let mut one_stream = yamux::Config::default();
    one_stream.set_max_num_streams(1);
    let noise = noise::Config::new(identity.keypair()).expect("an ed25519 key signs whatever it is given");
    let tcp = tcp::tokio::Transport::new(tcp::Config::default())
        .upgrade(Version::V1Lazy)
        .authenticate(noise)
        .multiplex(one_stream)
        .map(|(name, muxer), _| (name, StreamMuxerBox::new(Abrupt(muxer))));
    #[cfg(feature = "quic")]
    let tcp = {
        let quic = quic::tokio::Transport::new(quic_config(identity, config))
            .map(|(name, muxer), _| (name, StreamMuxerBox::new(Abrupt(muxer))));
        tcp.or_transport(quic).map(|either, _| either.into_inner())
    };
    Porch { inner: TransportTimeout::new(tcp, config.proof).boxed(), doorstep }.boxed()
}

/// Gives everybody who comes a place, and lets go of whoever has to make room. libp2p itself gives up no connection
/// that is still in its handshake.
struct Porch {
    inner: Boxed<Connected>,
    doorstep: Arc<Doorstep>,
}

impl Transport for Porch {
    type Output = Connected;
    type Error = io::Error;
    type ListenerUpgrade = Until;
    type Dial = <Boxed<Connected> as Transport>::Dial;

    fn listen_on(&mut self, id: ListenerId, address: Multiaddr) -> Result<(), TransportError<io::Error>> {
        self.inner.listen_on(id, address)
    }

    fn remove_listener(&mut self, id: ListenerId) -> bool {
        self.inner.remove_listener(id)
    }

    fn dial(&mut self, address: Multiaddr, options: DialOpts) -> Result<Self::Dial, TransportError<io::Error>> {
        self.inner.dial(address, options)
    }

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<TransportEvent<Until, io::Error>> {
        Pin::new(&mut self.inner).poll(cx).map(|event| {
            let goes = match &event {
                // An address that is none of ours is refused when libp2p asks.
                TransportEvent::Incoming { send_back_addr, .. } => {
                    Address::from_multiaddr(send_back_addr).map(|address| self.doorstep.arrive(address))
                }
                _ => None,
            };
            event.map_upgrade(|upgrade| Until { upgrade, goes })
        })
    }
}

/// A handshake, until somebody else needs its place.
struct Until {
    upgrade: <Boxed<Connected> as Transport>::ListenerUpgrade,
    goes: Option<Goes>,
}

impl Future for Until {
    type Output = io::Result<Connected>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<Connected>> {
        if let Poll::Ready(connected) = Pin::new(&mut self.upgrade).poll(cx) {
            return Poll::Ready(connected);
        }
        match &mut self.goes {
            Some(goes) => Pin::new(goes).poll(cx).map(|_| Err(io::Error::other(Refusal::Crowded))),
            None => Poll::Pending,
        }
    }
}

#[cfg(feature = "quic")]
fn quic_config(identity: &Identity, config: &Config) -> quic::Config {
    let mut quic = quic::Config::new(identity.keypair());
    quic.handshake_timeout = config.proof;
    quic.max_concurrent_stream_limit = 1;
    // Our questions notice a silent peer first; this is for connections that never became links.
    let idle = (config.silence() + config.beat).max(Duration::from_secs(5));
    quic.max_idle_timeout = u32::try_from(idle.as_millis()).unwrap_or(u32::MAX);
    quic.keep_alive_interval = idle / 3;
    // What may be under way to us and unread: as much as the inbox takes.
    let window = u32::try_from(config.inbox).unwrap_or(u32::MAX).max(64 * 1024);
    quic.max_stream_data = window;
    quic.max_connection_data = window;
    quic
}

/// Closes without waiting for the other side.
///
/// libp2p waits for a connection to be flushed before it is closed. One that nobody reads would stay for ever, and so
/// would its place among the strangers. Whatever must arrive has been answered before we close.
struct Abrupt<M>(M);

impl<M: StreamMuxer + Unpin> StreamMuxer for Abrupt<M> {
    type Substream = M::Substream;
    type Error = M::Error;

    fn poll_inbound(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<M::Substream, M::Error>> {
        Pin::new(&mut self.0).poll_inbound(cx)
    }

    fn poll_outbound(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<M::Substream, M::Error>> {
        Pin::new(&mut self.0).poll_outbound(cx)
    }

    fn poll_close(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<(), M::Error>> {
        let _ = Pin::new(&mut self.0).poll_close(cx)?;
        Poll::Ready(Ok(()))
    }

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<StreamMuxerEvent, M::Error>> {
        Pin::new(&mut self.0).poll(cx)
    }
}
