//! A token in Redis: `BLPOP` waits for it, `RPUSH` returns it.
//!
//! A lower bound for a server, not a lock: the token is lost with its client, and there is no lease, fencing number or
//! disk.

use std::net::SocketAddr;
use std::time::Duration;

use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::TcpStream;

use crate::system::Failure;

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

    pub async fn prepare(&mut self) -> Result<(), Failure> {
        self.command(&format!("DEL {}\r\n", self.name), 1).await?;
        self.push().await
    }

    pub async fn pop(&mut self) -> Result<(), Failure> {
        // An array of two strings: one line for the array, two for each string.
        self.command(&format!("BLPOP {} 0\r\n", self.name), 5).await
    }

    pub async fn push(&mut self) -> Result<(), Failure> {
        self.command(&format!("RPUSH {} token\r\n", self.name), 1).await
    }

    pub async fn lock(&mut self, lease: Duration) -> Result<bool, Failure> {
        self.command(&format!("SET {} held NX PX {}\r\n", self.name, lease.as_millis()), 1).await?;
        Ok(self.line.starts_with("+OK"))
    }

    pub async fn extend(&mut self, lease: Duration) -> Result<(), Failure> {
        self.command(&format!("PEXPIRE {} {}\r\n", self.name, lease.as_millis()), 1).await
    }

    async fn command(&mut self, command: &str, lines: usize) -> Result<(), Failure> {
        self.stream.write_all(command.as_bytes()).await?;
        for _ in 0..lines {
            self.line.clear();
            if self.stream.read_line(&mut self.line).await? == 0 {
                return Err("redis closed the connection".into());
            }
            if self.line.starts_with('-') {
                return Err(format!("redis: {}", self.line.trim_end()).into());
            }
        }
        Ok(())
    }
}
