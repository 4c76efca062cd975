//! A peer written from docs/design/security.md with TCP and Noise only, without the crate under test.

use ed25519_dalek::{Signer as _, SigningKey};
use hmac::{Hmac, Mac as _};
use sha2::{Digest as _, Sha256};
use snow::{HandshakeState, TransportState};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use super::*;

const GREETING: &[u8] = b"peerlock/5\n";

pub struct Rogue {
    key: SigningKey,
    pub spoil: Option<Spoil>,
}

#[derive(Debug, Clone, Copy)]
pub enum Spoil {
    Key,
    Signature,
    Connection,
    Length,
}

pub struct Stream {
    tcp: TcpStream,
    noise: TransportState,
    plain: Vec<u8>,
}

pub fn number(key: &SigningKey) -> u64 {
    let name = [b"peerlock peer \x00\x24\x08\x01\x12\x20", &key.verifying_key().to_bytes()[..]].concat();
    u64::from_be_bytes(Sha256::digest(name)[..8].try_into().unwrap())
}

impl Rogue {
    /// Has a larger number, so `than` decides.
    pub async fn follower(than: &Net) -> Self {
        Self::with(|key| number(key) > than.me().get()).await
    }

    pub async fn anybody() -> Self {
        Self::with(|_| true).await
    }

    async fn with(suits: impl Fn(&SigningKey) -> bool) -> Self {
        let mut seed = [0; 32];
        loop {
            getrandom::fill(&mut seed).unwrap();
            let key = SigningKey::from_bytes(&seed);
            if suits(&key) {
                return Self { key, spoil: None };
            }
        }
    }

    fn static_key(&self) -> (snow::Builder<'static>, Vec<u8>, Vec<u8>) {
        let builder = snow::Builder::new("Noise_XXpsk0_25519_ChaChaPoly_SHA256".parse().unwrap());
        let pair = builder.generate_keypair().unwrap();
        let public = match self.spoil {
            Some(Spoil::Connection) => builder.generate_keypair().unwrap().public,
            _ => pair.public,
        };
        let signature = self.key.sign(&[b"peerlock key of a connection ", &public[..]].concat());
        let mut voucher = [&self.key.verifying_key().to_bytes()[..], &signature.to_bytes()].concat();
        match self.spoil {
            Some(Spoil::Key) => {
                voucher[..32].copy_from_slice(&SigningKey::from_bytes(&[7; 32]).verifying_key().to_bytes())
            }
            Some(Spoil::Signature) => voucher[40] ^= 1,
            Some(Spoil::Length) => voucher.truncate(95),
            Some(Spoil::Connection) | None => {}
        }
        (builder, pair.private, voucher)
    }

    /// Fails if the listener does not know the secret, or closes.
    pub async fn connect_by(&mut self, to: SocketAddr, secret: &[u8]) -> std::io::Result<Stream> {
        let (builder, private, voucher) = self.static_key();
        let psk = hmac(secret, &[b"peerlock/5 pre-shared key"]);
        let mut tcp = TcpStream::connect(to).await?;
        let builder = builder.prologue(GREETING).unwrap().psk(0, &psk).unwrap();
        let mut noise = builder.local_private_key(&private).unwrap().build_initiator().unwrap();
        let first = next_message(&mut noise, &[]);
        let tag = hmac(secret, &[b"peerlock/5 first message ", &first]);
        tcp.write_all(&[GREETING, &tag, &framed(&first)].concat()).await?;
        let mut greeting = [0; 11];
        tcp.read_exact(&mut greeting).await?;
        assert_eq!(greeting, GREETING);
        receive_handshake(&mut tcp, &mut noise).await?;
        tcp.write_all(&framed(&next_message(&mut noise, &voucher))).await?;
        Ok(Stream::new(tcp, noise))
    }

    pub async fn connect(&mut self, to: SocketAddr) -> Stream {
        self.connect_by(to, SECRET).await.unwrap()
    }

    /// Sends a hello with this incarnation and ended link. Returns the kind and body of the answer.
    pub async fn join(&mut self, to: SocketAddr, incarnation: u64, over: (u64, u64)) -> (Stream, u8, Vec<u8>, u64) {
        let mut stream = self.connect(to).await;
        let listen = [&[0; 10][..], &[0xff, 0xff, 10, 0, 0, 7], &7400u16.to_be_bytes()].concat();
        let numbers = [incarnation, over.0, over.1].map(u64::to_be_bytes).concat();
        say(&mut stream, 1, &[numbers, listen].concat()).await;
        let (kind, hello) = receive(&mut stream).await;
        assert_eq!((kind, hello.len()), (1, 42));
        let (kind, body) = receive(&mut stream).await;
        (stream, kind, body, u64::from_be_bytes(hello[..8].try_into().unwrap()))
    }

    pub async fn link(&mut self, to: SocketAddr) -> Stream {
        let (stream, kind, _, _) = self.join(to, 1, (0, 0)).await;
        assert_eq!(kind, 2, "taken");
        stream
    }
}

fn hmac(secret: &[u8], texts: &[&[u8]]) -> [u8; 32] {
    let mac = Hmac::<Sha256>::new_from_slice(secret).unwrap();
    texts.iter().fold(mac, |mac, text| mac.chain_update(text)).finalize().into_bytes().into()
}

fn next_message(noise: &mut HandshakeState, payload: &[u8]) -> Vec<u8> {
    let mut message = vec![0; 1000];
    let length = noise.write_message(payload, &mut message).unwrap();
    message.truncate(length);
    message
}

fn framed(message: &[u8]) -> Vec<u8> {
    [&(message.len() as u16).to_be_bytes()[..], message].concat()
}

async fn receive_handshake(tcp: &mut TcpStream, noise: &mut HandshakeState) -> std::io::Result<()> {
    let length = usize::from(tcp.read_u16().await?);
    if length == 0 {
        return Err(std::io::ErrorKind::PermissionDenied.into());
    }
    let mut message = vec![0; length];
    tcp.read_exact(&mut message).await?;
    noise.read_message(&message, &mut [0; 1000]).map_err(std::io::Error::other)?;
    Ok(())
}

impl Stream {
    fn new(tcp: TcpStream, noise: HandshakeState) -> Self {
        Self { tcp, noise: noise.into_transport_mode().unwrap(), plain: Vec::new() }
    }

    pub async fn write_all(&mut self, plain: &[u8]) -> std::io::Result<()> {
        let mut message = vec![0; 65_535];
        for piece in plain.chunks(60_000) {
            let length = self.noise.write_message(piece, &mut message).unwrap();
            self.tcp.write_all(&[&(length as u16).to_be_bytes()[..], &message[..length]].concat()).await?;
        }
        Ok(())
    }

    pub async fn next(&mut self) -> std::io::Result<Vec<u8>> {
        let mut message = vec![0; usize::from(self.tcp.read_u16().await?)];
        self.tcp.read_exact(&mut message).await?;
        let mut plain = vec![0; message.len()];
        let length = self.noise.read_message(&message, &mut plain).unwrap();
        plain.truncate(length);
        Ok(plain)
    }

    pub async fn read_exact(&mut self, bytes: &mut [u8]) -> std::io::Result<()> {
        while self.plain.len() < bytes.len() {
            let more = self.next().await?;
            self.plain.extend(more);
        }
        bytes.copy_from_slice(&self.plain[..bytes.len()]);
        self.plain.drain(..bytes.len());
        Ok(())
    }

    pub async fn read_to_end(&mut self) -> Vec<u8> {
        let mut arrived = std::mem::take(&mut self.plain);
        while let Ok(more) = self.next().await {
            arrived.extend(more);
        }
        arrived
    }

    pub async fn close(&mut self) {
        _ = self.tcp.shutdown().await;
    }
}

pub async fn say(stream: &mut Stream, kind: u8, body: &[u8]) {
    let header = [&(body.len() as u32).to_be_bytes()[..], &[kind]].concat();
    stream.write_all(&[&header, body].concat()).await.unwrap();
}

pub async fn receive(stream: &mut Stream) -> (u8, Vec<u8>) {
    let mut header = [0; 5];
    timeout(DEADLINE, stream.read_exact(&mut header)).await.unwrap().unwrap();
    let mut body = vec![0; u32::from_be_bytes(header[..4].try_into().unwrap()) as usize];
    timeout(DEADLINE, stream.read_exact(&mut body)).await.unwrap().unwrap();
    (header[4], body)
}
