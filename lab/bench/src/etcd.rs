//! etcd's lock through the JSON gateway of its v3 API: `/v3/lock/lock` waits on the server (the recipe of its
//! `concurrency` package), `/v3/lock/unlock` deletes the key. The gateway adds a few tenths of a millisecond to gRPC.

use std::net::SocketAddr;
use std::time::Duration;

use http_body_util::{BodyExt as _, Full};
use hyper::Request;
use hyper::body::Bytes;
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tokio::net::TcpStream;

use crate::system::Failure;

pub struct Client {
    connection: SendRequest<Full<Bytes>>,
    name: String,
    lease: String,
    key: String,
}

impl Client {
    pub async fn connect(address: SocketAddr, name: &str, lease: Duration) -> Result<Self, Failure> {
        let mut client = Self { name: base64(name.as_bytes()), ..Self::of_lease(address, "").await? };
        let granted = client.post("/v3/lease/grant", &json!({ "TTL": lease.as_secs() })).await?;
        client.lease = text(&granted["ID"])?;
        Ok(client)
    }

    pub async fn of_lease(address: SocketAddr, lease: &str) -> Result<Self, Failure> {
        let stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        let (connection, driver) = handshake(TokioIo::new(stream)).await?;
        tokio::spawn(driver);
        Ok(Self { connection, name: String::new(), lease: lease.to_owned(), key: String::new() })
    }

    pub fn lease(&self) -> &str {
        &self.lease
    }

    pub async fn keep_alive(&mut self) -> Result<(), Failure> {
        let body = json!({ "ID": self.lease });
        self.post("/v3/lease/keepalive", &body).await.map(drop)
    }

    /// Waits for the lock, and returns the store's revision as fencing number.
    pub async fn lock(&mut self) -> Result<u64, Failure> {
        let answer = self.post("/v3/lock/lock", &json!({ "name": self.name, "lease": self.lease })).await?;
        self.key = text(&answer["key"])?;
        Ok(text(&answer["header"]["revision"])?.parse()?)
    }

    pub async fn unlock(&mut self) -> Result<(), Failure> {
        let body = json!({ "key": self.key });
        self.post("/v3/lock/unlock", &body).await.map(drop)
    }

    async fn post(&mut self, path: &str, body: &Value) -> Result<Value, Failure> {
        let body = Full::new(Bytes::from(body.to_string()));
        self.connection.ready().await?;
        let request = Request::post(path).header("host", "127.0.0.1").body(body)?;
        let answer = self.connection.send_request(request).await?;
        let status = answer.status();
        let bytes = answer.into_body().collect().await?.to_bytes();
        if !status.is_success() {
            return Err(format!("etcd: {status}: {}", String::from_utf8_lossy(&bytes)).into());
        }
        Ok(serde_json::from_slice(&bytes)?)
    }
}

fn text(value: &Value) -> Result<String, Failure> {
    value.as_str().map(str::to_owned).ok_or_else(|| format!("etcd: {value} is not a string").into())
}

fn base64(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::new();
    for three in bytes.chunks(3) {
        let bits = three.iter().fold(0u32, |bits, byte| bits << 8 | u32::from(*byte)) << (8 * (3 - three.len()));
        for place in 0..4 {
            let digit = DIGITS[(bits >> (18 - 6 * place) & 63) as usize];
            text.push(if place <= three.len() { char::from(digit) } else { '=' });
        }
    }
    text
}

#[cfg(test)]
mod tests {
    #[test]
    fn base64_matches_the_standard() {
        for (plain, encoded) in [("", ""), ("f", "Zg=="), ("fo", "Zm8="), ("foo", "Zm9v"), ("foobar", "Zm9vYmFy")] {
            assert_eq!(super::base64(plain.as_bytes()), encoded);
        }
    }
}
