//! A peer made by hand from docs/network.md: libp2p and bytes, nothing of the crate under test.

use hmac::{Hmac, KeyInit as _, Mac as _};
use libp2p::futures::{AsyncReadExt as _, AsyncWriteExt as _, StreamExt as _};
use libp2p::identity::Keypair;
use libp2p::swarm::dial_opts::DialOpts;
use libp2p::{Stream, StreamProtocol, SwarmBuilder, noise, yamux};
use sha2::{Digest as _, Sha256};

use super::*;

pub const PROTOCOL: StreamProtocol = StreamProtocol::new("/peerlock/2");

/// A libp2p node that does what a test tells it to.
pub struct Rogue {
    pub name: libp2p::PeerId,
    keypair: Keypair,
    pub control: libp2p_stream::Control,
    pub listen: Address,
    connected: tokio::sync::mpsc::UnboundedReceiver<libp2p::PeerId>,
    dial: tokio::sync::mpsc::UnboundedSender<libp2p::Multiaddr>,
    task: tokio::task::JoinHandle<()>,
}

impl Drop for Rogue {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// A peer's number, as the documentation has it.
pub fn number(name: &libp2p::PeerId) -> u64 {
    let hash = Sha256::digest([b"peerlock peer ", &name.to_bytes()[..]].concat());
    u64::from_be_bytes(hash[..8].try_into().unwrap())
}

impl Rogue {
    /// A rogue whose number is larger than everybody's here, so that the others decide.
    pub async fn follower(than: &Net) -> Self {
        Self::with(|name| number(name) > than.me().get()).await
    }

    pub async fn anybody() -> Self {
        Self::with(|_| true).await
    }

    async fn with(suits: impl Fn(&libp2p::PeerId) -> bool) -> Self {
        let keypair = std::iter::repeat_with(Keypair::generate_ed25519).find(|pair| suits(&pair.public().to_peer_id()));
        Self::start(keypair.unwrap()).await
    }

    /// The same peer once more: libp2p-stream cannot choose between two connections of one node.
    pub async fn twin(&self) -> Self {
        Self::start(self.keypair.clone()).await
    }

    async fn start(keypair: Keypair) -> Self {
        let builder = SwarmBuilder::with_existing_identity(keypair.clone())
            .with_tokio()
            .with_tcp(Default::default(), noise::Config::new, yamux::Config::default)
            .unwrap();
        #[cfg(feature = "quic")]
        let builder = builder.with_quic();
        let mut swarm = builder
            .with_behaviour(|_| libp2p_stream::Behaviour::new())
            .unwrap()
            .with_swarm_config(|config| config.with_idle_connection_timeout(DEADLINE))
            .build();
        swarm.listen_on("/ip4/127.0.0.1/tcp/0".parse().unwrap()).unwrap();
        let (found, connected) = tokio::sync::mpsc::unbounded_channel();
        let (dial, mut dials) = tokio::sync::mpsc::unbounded_channel::<libp2p::Multiaddr>();
        let (name, control) = (*swarm.local_peer_id(), swarm.behaviour().new_control());
        let listen = loop {
            if let libp2p::swarm::SwarmEvent::NewListenAddr { address, .. } = swarm.select_next_some().await {
                let parts: Vec<_> = address.to_string().split('/').map(str::to_owned).collect();
                break format!("{}:{}", parts[2], parts[4]).parse().unwrap();
            }
        };
        let task = tokio::spawn(async move {
            loop {
                tokio::select! {
                    event = swarm.select_next_some() => {
                        if let libp2p::swarm::SwarmEvent::ConnectionEstablished { peer_id, endpoint, .. } = event
                            && endpoint.is_dialer()
                        {
                            let _ = found.send(peer_id);
                        }
                    }
                    Some(address) = dials.recv() => {
                        // Not from the port that it listens on, which may be taken on that way by a connection that is
                        // just over: the system then refuses for as long as that is remembered.
                        let dial = DialOpts::unknown_peer_id().address(address).allocate_new_port().build();
                        swarm.dial(dial).unwrap();
                    }
                }
            }
        });
        Self { name, keypair, control, listen, connected, dial, task }
    }

    /// Connects by TCP or QUIC and opens the stream.
    pub async fn connect(&mut self, to: Address) -> (libp2p::PeerId, Stream) {
        let (ip, port) = (to.socket.ip(), to.socket.port());
        let address = match to.transport {
            Transport::Tcp => format!("/ip4/{ip}/tcp/{port}"),
            Transport::Quic => format!("/ip4/{ip}/udp/{port}/quic-v1"),
        };
        self.dial.send(address.parse().unwrap()).unwrap();
        let name = timeout(DEADLINE, self.connected.recv()).await.unwrap().unwrap();
        (name, self.control.open_stream(name, PROTOCOL).await.unwrap())
    }

    /// The dialler's half of the proof.
    pub async fn prove(&self, stream: &mut Stream, other: libp2p::PeerId, secret: &[u8]) -> std::io::Result<()> {
        let ours = [5; 32];
        stream.write_all(&ours).await?;
        stream.flush().await?;
        let mut theirs = [0; 32];
        stream.read_exact(&mut theirs).await?;
        let tag = |role: &[u8]| {
            let names = [self.name.to_bytes(), other.to_bytes()].concat();
            let mac = Hmac::<Sha256>::new_from_slice(secret).unwrap().chain_update(role);
            mac.chain_update(names).chain_update(ours).chain_update(theirs).finalize().into_bytes()
        };
        stream.write_all(&tag(b"peerlock/1 dialler  ")).await?;
        stream.flush().await?;
        let mut answer = [0; 32];
        stream.read_exact(&mut answer).await?;
        if answer == [0; 32] {
            return Err(std::io::ErrorKind::PermissionDenied.into());
        }
        assert_eq!(answer[..], tag(b"peerlock/1 listener ")[..], "the listener proves itself, too");
        Ok(())
    }

    /// Proves itself and says hello, as this process and with this link over; returns the answer: its kind and body.
    pub async fn join(&mut self, to: Address, incarnation: u64, over: (u64, u64)) -> (Stream, u8, Vec<u8>, u64) {
        let (name, mut stream) = self.connect(to).await;
        self.prove(&mut stream, name, SECRET).await.unwrap();
        let listen = [&[0; 10][..], &[0xff, 0xff, 10, 0, 0, 7], &7400u16.to_be_bytes(), &[0]].concat();
        let numbers = [incarnation, over.0, over.1].map(u64::to_be_bytes).concat();
        say(&mut stream, 1, &[numbers, listen].concat()).await;
        let (kind, hello) = hear(&mut stream).await;
        assert_eq!((kind, hello.len()), (1, 43));
        let (kind, body) = hear(&mut stream).await;
        (stream, kind, body, u64::from_be_bytes(hello[..8].try_into().unwrap()))
    }

    /// Becomes a link, by this transport.
    pub async fn link(&mut self, to: Address) -> Stream {
        let (stream, kind, _, _) = self.join(to, 1, (0, 0)).await;
        assert_eq!(kind, 2, "taken");
        stream
    }
}

pub async fn say(stream: &mut Stream, kind: u8, body: &[u8]) {
    let header = [&(body.len() as u32).to_be_bytes()[..], &[kind]].concat();
    stream.write_all(&[&header, body].concat()).await.unwrap();
    stream.flush().await.unwrap();
}

pub async fn hear(stream: &mut Stream) -> (u8, Vec<u8>) {
    let mut header = [0; 5];
    timeout(DEADLINE, stream.read_exact(&mut header)).await.unwrap().unwrap();
    let mut body = vec![0; u32::from_be_bytes(header[..4].try_into().unwrap()) as usize];
    timeout(DEADLINE, stream.read_exact(&mut body)).await.unwrap().unwrap();
    (header[4], body)
}
