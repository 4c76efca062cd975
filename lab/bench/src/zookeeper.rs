//! ZooKeeper's lock, by its documented recipe: each client creates an ephemeral sequential node, the lowest has the
//! lock, and each other client watches the node before its own.
//!
//! ```text
//!   client                          server
//!     │ create /lock/n-, ephemeral, sequential
//!     │──────────────────────────────►│   decided by a majority
//!     │ getChildren /lock             │
//!     │──────────────────────────────►│   own node is the lowest: locked
//!     │ getData of the preceding node, with a watch
//!     │──────────────────────────────►│
//!     │◄────── it was deleted ────────│   back to getChildren
//!     │ delete                        │
//!     │──────────────────────────────►│   unlocked
//! ```
//!
//! Five requests do not justify a client library, so messages are encoded here (jute: big-endian, length-prefixed).
//! getData instead of exists, since a watch on a deleted node would stay forever.

use std::net::SocketAddr;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::TcpStream;

use crate::system::{Failure, LEASE};

const CREATE: i32 = 1;
const DELETE: i32 = 2;
const GET_DATA: i32 = 4;
const GET_CHILDREN: i32 = 8;
const EVENT: i32 = -1;
const PERSISTENT: i32 = 0;
const EPHEMERAL_SEQUENTIAL: i32 = 3;
const ALL: i32 = 31;
const NO_NODE: i32 = -101;
const NODE_EXISTS: i32 = -110;
const MOST: usize = 1 << 20;

pub struct Client {
    stream: BufReader<TcpStream>,
    lock: String,
    mine: String,
    requests: i32,
    deleted: bool,
}

impl Client {
    pub async fn connect(address: SocketAddr, name: &str) -> Result<Self, Failure> {
        let stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        let (stream, lock) = (BufReader::new(stream), format!("/{name}"));
        let mut client = Self { stream, lock, mine: String::new(), requests: 0, deleted: false };
        let timeout = i32::try_from(LEASE.as_millis())?;
        // Version 0, last transaction 0, a new session without password, not read-only.
        let hello = Message::default().int(0).long(0).int(timeout).long(0).bytes(&[0; 16]).boolean(false);
        client.send(&hello).await?;
        let answer = client.receive().await?;
        let mut answer = Answer(&answer);
        let (_version, granted) = (answer.int()?, answer.int()?);
        if granted < timeout {
            return Err(format!("zookeeper: session of {granted} ms instead of {timeout}").into());
        }
        Ok(client)
    }

    pub async fn prepare(&mut self) -> Result<(), Failure> {
        let lock = self.lock.clone();
        match self.create(&lock, PERSISTENT).await? {
            Ok(_) | Err(NODE_EXISTS) => Ok(()),
            Err(code) => Err(failed("create", code)),
        }
    }

    /// Waits for the lock, and returns the node's sequence number, from 1, as fencing number.
    pub async fn lock(&mut self) -> Result<u64, Failure> {
        let path = format!("{}/n-", self.lock);
        self.mine = self.create(&path, EPHEMERAL_SEQUENTIAL).await?.map_err(|code| failed("create", code))?;
        let mine = self.mine.rsplit('/').next().unwrap_or_default().to_owned();
        // Sequence numbers have leading zeros, so they sort as text.
        while let Some(before) = self.children().await?.into_iter().filter(|child| *child < mine).max() {
            self.wait_until_deleted(&format!("{}/{before}", self.lock)).await?;
        }
        let number: u64 = mine.strip_prefix("n-").unwrap_or_default().parse()?;
        Ok(number + 1)
    }

    pub async fn unlock(&mut self) -> Result<(), Failure> {
        let message = Message::default().text(&self.mine).int(-1); // any version
        self.ask(DELETE, message).await?.map(drop).map_err(|code| failed("delete", code))
    }

    async fn create(&mut self, path: &str, kind: i32) -> Result<Result<String, i32>, Failure> {
        let message = Message::default().text(path).bytes(&[]);
        let message = message.int(1).int(ALL).text("world").text("anyone").int(kind);
        Ok(match self.ask(CREATE, message).await? {
            Ok(answer) => Ok(Answer(&answer).text()?),
            Err(code) => Err(code),
        })
    }

    async fn children(&mut self) -> Result<Vec<String>, Failure> {
        let message = Message::default().text(&self.lock).boolean(false);
        let answer = self.ask(GET_CHILDREN, message).await?.map_err(|code| failed("getChildren", code))?;
        let mut answer = Answer(&answer);
        (0..answer.int()?).map(|_| answer.text()).collect()
    }

    async fn wait_until_deleted(&mut self, path: &str) -> Result<(), Failure> {
        self.deleted = false;
        let message = Message::default().text(path).boolean(true);
        match self.ask(GET_DATA, message).await? {
            Ok(_) => {}
            Err(NO_NODE) => return Ok(()),
            Err(code) => return Err(failed("getData", code)),
        }
        while !self.deleted {
            let message = self.receive().await?;
            match Answer(&message).int()? {
                EVENT => self.deleted = true,
                number => return Err(format!("zookeeper: unsolicited answer to request {number}").into()),
            }
        }
        Ok(())
    }

    /// Sends a request, and returns the answer without header, or the server's error code.
    async fn ask(&mut self, kind: i32, message: Message) -> Result<Result<Vec<u8>, i32>, Failure> {
        self.requests += 1;
        self.send(&Message::default().int(self.requests).int(kind).then(&message)).await?;
        loop {
            let bytes = self.receive().await?;
            let mut answer = Answer(&bytes);
            let (number, _transaction, code) = (answer.int()?, answer.long()?, answer.int()?);
            match (number, code) {
                (EVENT, _) => self.deleted = true,
                (number, 0) if number == self.requests => return Ok(Ok(answer.0.to_vec())),
                (number, code) if number == self.requests => return Ok(Err(code)),
                (number, _) => {
                    return Err(format!("zookeeper: answer to request {number} instead of {}", self.requests).into());
                }
            }
        }
    }

    async fn send(&mut self, message: &Message) -> Result<(), Failure> {
        let framed = Message::default().bytes(&message.0);
        Ok(self.stream.write_all(&framed.0).await?)
    }

    async fn receive(&mut self) -> Result<Vec<u8>, Failure> {
        let length = usize::try_from(self.stream.read_i32().await?)?;
        if length > MOST {
            return Err(format!("zookeeper: answer of {length} bytes").into());
        }
        let mut answer = vec![0; length];
        self.stream.read_exact(&mut answer).await?;
        Ok(answer)
    }
}

fn failed(what: &str, code: i32) -> Failure {
    format!("zookeeper: {what} failed with code {code}").into()
}

#[derive(Default)]
struct Message(Vec<u8>);

impl Message {
    fn int(mut self, value: i32) -> Self {
        self.0.extend(value.to_be_bytes());
        self
    }

    fn long(mut self, value: i64) -> Self {
        self.0.extend(value.to_be_bytes());
        self
    }

    fn boolean(mut self, value: bool) -> Self {
        self.0.push(u8::from(value));
        self
    }

    fn bytes(self, value: &[u8]) -> Self {
        let length = i32::try_from(value.len()).expect("messages are short");
        let mut message = self.int(length);
        message.0.extend(value);
        message
    }

    fn text(self, value: &str) -> Self {
        self.bytes(value.as_bytes())
    }

    fn then(mut self, other: &Self) -> Self {
        self.0.extend(&other.0);
        self
    }
}

struct Answer<'a>(&'a [u8]);

impl Answer<'_> {
    fn int(&mut self) -> Result<i32, Failure> {
        let (number, rest) = self.0.split_first_chunk().ok_or("zookeeper: truncated answer")?;
        self.0 = rest;
        Ok(i32::from_be_bytes(*number))
    }

    fn long(&mut self) -> Result<i64, Failure> {
        let (number, rest) = self.0.split_first_chunk().ok_or("zookeeper: truncated answer")?;
        self.0 = rest;
        Ok(i64::from_be_bytes(*number))
    }

    fn text(&mut self) -> Result<String, Failure> {
        let length = usize::try_from(self.int()?)?;
        let (text, rest) = self.0.split_at_checked(length).ok_or("zookeeper: truncated answer")?;
        self.0 = rest;
        Ok(String::from_utf8(text.to_vec())?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn encoding_is_big_endian_and_length_prefixed() {
        let message = Message::default().int(-2).long(3).boolean(true).text("né").bytes(&[]);
        assert_eq!(
            message.0,
            [255, 255, 255, 254, 0, 0, 0, 0, 0, 0, 0, 3, 1, 0, 0, 0, 3, b'n', 0xc3, 0xa9, 0, 0, 0, 0]
        );
    }

    #[test]
    fn answer_round_trips_and_truncation_is_an_error() {
        let bytes = Message::default().int(7).long(-1).text("n-0000000001").0;
        let mut answer = Answer(&bytes);
        assert_eq!((answer.int().unwrap(), answer.long().unwrap()), (7, -1));
        assert_eq!(answer.text().unwrap(), "n-0000000001");
        assert!(answer.0.is_empty() && answer.int().is_err());
        assert!(Answer(&[0, 0, 0, 9, b'n']).text().is_err());
        assert!(Answer(&(-1i32).to_be_bytes()).text().is_err());
    }
}
