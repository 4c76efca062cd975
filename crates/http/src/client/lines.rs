use bytes::{Bytes, BytesMut};
use http_body_util::BodyExt;
use hyper::Response;
use hyper::body::Incoming;
use peerlock_service::Error;

use super::connection::Connection;
use super::with_sources;
use crate::Endpoint;

/// An answer that arrives line by line.
#[derive(Debug)]
pub struct Lines {
    body: Incoming,
    unread: BytesMut,
    endpoint: Endpoint,
    connection: Connection,
}

impl Lines {
    pub fn new(response: Response<Incoming>, connection: Connection, endpoint: Endpoint) -> Self {
        Self { body: response.into_body(), unread: BytesMut::new(), endpoint, connection }
    }

    /// Returns the next line without its newline; `None` at the end. Cancel-safe.
    pub async fn next(&mut self) -> Result<Option<Bytes>, Error> {
        loop {
            if let Some(end) = self.unread.iter().position(|&byte| byte == b'\n') {
                let line = self.unread.split_to(end + 1).freeze();
                return Ok(Some(line.slice(..end)));
            }
            match self.body.frame().await {
                Some(Ok(frame)) => {
                    if let Some(data) = frame.data_ref() {
                        self.unread.extend_from_slice(data);
                    }
                }
                Some(Err(error)) => return Err(self.broken(with_sources(&error))),
                None => return Ok(None),
            }
        }
    }

    pub fn connection(&self) -> &Connection {
        &self.connection
    }

    pub fn broken(&self, why: impl ToString) -> Error {
        Error::Broken { endpoint: self.endpoint.to_string(), why: why.to_string() }
    }
}
