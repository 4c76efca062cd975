//! Redis as people pass a token with it: `BLPOP` waits for the token, `RPUSH` gives it back.
//!
//! First come, first served, in two messages. It is a floor for what goes through a server, not a lock: a client that
//! dies with the token takes it along, there is no lease and no fencing number, and nothing is on disk.

use std::net::SocketAddr;
use std::time::Duration;

use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::TcpStream;

use crate::door::Failure;

/// One client's connection.
pub struct Client {
    stream: BufReader<TcpStream>,
    name: String,
    line: String,
}

impl Client {
    pub async fn connect(address: SocketAddr, name: &str) -> Result<Self, Failure> {
        let stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        Ok(Self { stream: BufReader::new(stream), name: name.to_owned(), line: String::new() })
    }

    /// Puts the token there, for the first to take.
    pub async fn found(&mut self) -> Result<(), Failure> {
        self.command(&format!("DEL {}\r\n", self.name), 1).await?;
        self.give().await
    }

    /// Waits for the token.
    pub async fn take(&mut self) -> Result<(), Failure> {
        // An array of two strings: one line for the array, two for each string.
        self.command(&format!("BLPOP {} 0\r\n", self.name), 5).await
    }

    /// Gives it back.
    pub async fn give(&mut self) -> Result<(), Failure> {
        self.command(&format!("RPUSH {} token\r\n", self.name), 1).await
    }

    /// Takes the lock of this name if it is free, for as long as the lease: another way than the token, and one that a
    /// client's death ends.
    pub async fn lock(&mut self, lease: Duration) -> Result<bool, Failure> {
        self.command(&format!("SET {} held NX PX {}\r\n", self.name, lease.as_millis()), 1).await?;
        Ok(self.line.starts_with("+OK"))
    }

    /// Renews that.
    pub async fn extend(&mut self, lease: Duration) -> Result<(), Failure> {
        self.command(&format!("PEXPIRE {} {}\r\n", self.name, lease.as_millis()), 1).await
    }

    /// Says something, and reads as many lines as the answer has.
    async fn command(&mut self, command: &str, lines: usize) -> Result<(), Failure> {
        self.stream.write_all(command.as_bytes()).await?;
        for _ in 0..lines {
            self.line.clear();
            if self.stream.read_line(&mut self.line).await? == 0 {
                return Err("redis has closed the connection".into());
            }
            if self.line.starts_with('-') {
                return Err(format!("redis: {}", self.line.trim_end()).into());
            }
        }
        Ok(())
    }
}
