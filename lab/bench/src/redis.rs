//! A token in Redis: `BLPOP` waits for it, `RPUSH` returns it.
//!
//! First come, first served, in two messages. It is a lower bound for a server, not a lock: a client that dies takes
//! the token with it, there is no lease and no fencing number, and nothing is on disk.

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

    /// Creates the token.
    pub async fn found(&mut self) -> Result<(), Failure> {
        self.command(&format!("DEL {}\r\n", self.name), 1).await?;
        self.give().await
    }

    /// Waits for the token.
    pub async fn take(&mut self) -> Result<(), Failure> {
        // An array of two strings: one line for the array, two for each string.
        self.command(&format!("BLPOP {} 0\r\n", self.name), 5).await
    }

    /// Returns the token.
    pub async fn give(&mut self) -> Result<(), Failure> {
        self.command(&format!("RPUSH {} token\r\n", self.name), 1).await
    }

    /// Takes the lock of this name if it is free, for one lease. Unlike the token, it survives a client's death.
    pub async fn lock(&mut self, lease: Duration) -> Result<bool, Failure> {
        self.command(&format!("SET {} held NX PX {}\r\n", self.name, lease.as_millis()), 1).await?;
        Ok(self.line.starts_with("+OK"))
    }

    /// Renews the lock.
    pub async fn extend(&mut self, lease: Duration) -> Result<(), Failure> {
        self.command(&format!("PEXPIRE {} {}\r\n", self.name, lease.as_millis()), 1).await
    }

    /// Sends a command and reads `lines` lines of the answer.
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
