//! A client of the agent's API.

mod connection;
mod lines;

use std::future::{Future, pending};
use std::io;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::{Method, Response, header};
use peerlock_service::verb::{Done, Operation, Verb};
use peerlock_service::{
    Class, Conclusion, Error, Granted, Happening, Listing, Name, PeerView, Request, ResourceView, async_methods,
};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tokio::sync::watch;
use tokio::time::{Instant, sleep, timeout, timeout_at};

use crate::body::{Conclude, Concluded, Line, Released, Renewed, Which};
use crate::{AgentView, Endpoint, Failure, SecretView, Token};
use connection::{Connection, FRESH};
use lines::Lines;

/// Time limit for requests that change something without waiting for a slot. An agent without a quorum answers sooner.
const ANSWER: Duration = Duration::from_secs(30);
/// Time limit for queries.
const QUERY: Duration = Duration::from_secs(10);
/// Time limit for any answer of an agent that was asked for a free slot without waiting.
const PROMPT: Duration = Duration::from_secs(2);
/// The number of idle connections kept, and so of concurrent requests that reuse one.
const MOST_IDLE: usize = 16;
/// A connection is broken after this many missing keep-alive lines.
const MISSED: u32 = 3;
/// How long a connection is read at least before the agent counts as silent.
const LOOK: Duration = Duration::from_millis(10);
/// Time limit for an answer beyond the request's own.
const LATE: Duration = Duration::from_secs(10);

/// An agent, as seen by its clients. Clones share their idle connections. Dropping a call's future closes its
/// connection and so withdraws the request.
///
/// ```no_run
/// # async fn f() -> Result<(), peerlock_service::Error> {
/// use peerlock_http::client::Agent;
/// use peerlock_service::Request;
///
/// let agent = Agent::new("/run/peerlock/agent.sock".parse().unwrap(), None);
/// let granted = agent.acquire(&Request::new("nightly-backup").slots(3)).await?;
/// println!("inside with fencing number {}", granted.fencing);
/// agent.release("nightly-backup", &granted.grant).await?;
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
pub struct Agent {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    endpoint: Endpoint,
    token: Option<Token>,
    idle: Mutex<Idle>,
    /// Every slot in use has a receiver.
    users: watch::Sender<()>,
}

#[derive(Debug, Default)]
struct Idle {
    connections: Vec<Connection>,
    /// Whether a task closes stale connections.
    is_pruned: bool,
}

impl Agent {
    /// Returns a client for an endpoint. Connects on the first call.
    pub fn new(endpoint: Endpoint, token: Option<Token>) -> Self {
        let users = watch::Sender::new(());
        Self { shared: Arc::new(Shared { endpoint, token, idle: Mutex::default(), users }) }
    }

    /// Returns a guard that keeps [`unused`](Agent::unused) from resolving until it is dropped.
    pub fn user(&self) -> watch::Receiver<()> {
        self.shared.users.subscribe()
    }

    /// Resolves when no [user](Agent::user) is left.
    pub async fn unused(&self) {
        self.shared.users.closed().await;
    }

    /// Returns the agent's endpoint.
    pub fn endpoint(&self) -> &Endpoint {
        &self.shared.endpoint
    }

    /// Acquires a slot that stays held until its lease expires, even if this client ends.
    pub async fn acquire(&self, request: &Request) -> Result<Granted, Error> {
        let path = resource(&request.name, "/acquire")?;
        self.in_time(request, self.fetch(Method::POST, &path, Some(request))).await
    }

    /// Awaits the outcome of a request with a time limit, since a frozen agent does not enforce the request's own.
    ///
    /// # Errors
    /// The outcome's error, or [`Error::Refused`] if the agent does not answer.
    pub async fn in_time<T>(
        &self,
        request: &Request,
        outcome: impl Future<Output = Result<T, Error>>,
    ) -> Result<T, Error> {
        let wait = if request.try_only { Some(Duration::ZERO) } else { request.wait };
        let Some(wait) = wait else { return outcome.await };
        let outcome = self.within(wait.saturating_add(LATE), outcome);
        if !wait.is_zero() {
            return outcome.await;
        }
        tokio::select! {
            biased;
            outcome = outcome => outcome,
            () = self.silent() => Err(self.mute(PROMPT)),
        }
    }

    /// Resolves if the agent answers nothing for a while. An agent without a quorum takes longer for a request.
    async fn silent(&self) {
        sleep(PROMPT / 2).await;
        if timeout(PROMPT / 2, self.healthz()).await.is_ok() {
            pending().await
        }
    }

    /// Returns whether an agent answers in this time, with its health or with an error.
    pub async fn responds_within(&self, limit: Duration) -> bool {
        let answer = timeout(limit, self.healthz()).await;
        answer.is_ok_and(|health| !matches!(health, Err(Error::NoAgent { .. } | Error::Broken { .. })))
    }

    async fn healthz(&self) -> Result<Value, Error> {
        self.fetch(Method::GET, "/healthz", None::<&()>).await
    }

    /// Acquires a slot for as long as the [`Hold`] exists and its lease is [renewed](Agent::renew).
    ///
    /// # Errors
    /// See [`Error`]; most come with the hold's [lines](Hold::next).
    pub async fn hold(&self, request: &Request) -> Result<Hold, Error> {
        let (response, connection) = self.send(Method::POST, &resource(&request.name, "/hold")?, Some(request)).await?;
        Ok(Hold::new(Lines::new(response, connection, self.endpoint().clone())))
    }

    /// Resumes a slot that was [held](Agent::hold) at an agent that has stopped, or over a TCP connection that broke.
    /// Calls `opened` with the new connection before the slot belongs to it.
    ///
    /// # Errors
    /// See [`Error`]; most come with the hold's [lines](Hold::next). [`Error::Lost`] if its lease has expired.
    pub async fn resume(&self, name: &str, grant: &str, opened: impl FnOnce(Arc<OwnedFd>)) -> Result<Hold, Error> {
        let which = Which { grant: grant.to_owned() };
        let request = self.request(Method::POST, &resource(name, "/resume")?, Some(&which))?;
        let connection = self.open().await?;
        opened(Arc::clone(connection.socket()));
        let (response, connection) = self.send_on(connection, request).await?;
        Ok(Hold::new(Lines::new(response, connection, self.endpoint().clone())))
    }

    /// Renews a lease. Returns its duration, counted from before this call.
    ///
    /// # Errors
    /// [`Error::Lost`] if the grant is no longer valid.
    pub async fn renew(&self, name: &str, grant: &str) -> Result<Duration, Error> {
        let which = Which { grant: grant.to_owned() };
        let renewed: Renewed = self.ask(Method::POST, &resource(name, "/renew")?, Some(&which)).await?;
        Ok(renewed.ttl)
    }

    /// Reports the end of a run that takes place once per period. Returns whether the slot is held until the period
    /// ends.
    ///
    /// # Errors
    /// [`Error::Lost`] if the grant is no longer valid.
    pub async fn conclude(&self, name: &str, grant: &str, conclusion: Conclusion) -> Result<bool, Error> {
        let Conclusion { succeeded, attempts, hold } = conclusion;
        let conclude = Conclude { grant: grant.to_owned(), succeeded, attempts, hold };
        let concluded: Concluded = self.ask(Method::POST, &resource(name, "/conclude")?, Some(&conclude)).await?;
        Ok(concluded.holds)
    }

    /// Releases a slot.
    ///
    /// # Errors
    /// [`Error::Lost`] if the grant was no longer valid.
    pub async fn release(&self, name: &str, grant: &str) -> Result<(), Error> {
        let which = Which { grant: grant.to_owned() };
        let _: Released = self.ask(Method::POST, &resource(name, "/release")?, Some(&which)).await?;
        Ok(())
    }

    /// Returns all resources of the cluster, by name.
    pub async fn resources(&self) -> Result<Vec<ResourceView>, Error> {
        self.list(&Listing::default()).await
    }

    /// Returns some of the resources of the cluster, by name.
    ///
    /// # Errors
    /// [`Error::BadName`] if the prefix is invalid; see [`Error`].
    pub async fn list(&self, listing: &Listing) -> Result<Vec<ResourceView>, Error> {
        self.call(listing.clone()).await
    }

    peerlock_service::verbs!(async_methods);

    /// Sends a query or an administrative verb.
    pub async fn call<V: Verb>(&self, verb: V) -> Result<V::Reply, Error> {
        let fields = serde_json::to_value(&verb).map_err(|error| self.broken(&error))?;
        let name = verb.resource().map_or_else(String::new, |name| encoded(name.as_str()));
        let (method, path) = V::ROUTE.split_once(' ').expect("a route is a method and a path");
        let path = path.replace("{name}", &name);
        if method == "GET" {
            return self.get(&(path + &query(&fields))).await;
        }
        match verb.into() {
            Operation::Revoke(_) => self.fetch(Method::POST, &path, Some(&fields)).await,
            _ => self.ask(Method::POST, &path, Some(&fields)).await,
        }
    }

    /// Returns all known peers, the agent itself first.
    pub async fn peers(&self) -> Result<Vec<PeerView>, Error> {
        self.get("/v1/peers").await
    }

    /// Returns the agent itself, with its health.
    pub async fn about(&self) -> Result<AgentView, Error> {
        self.get("/v1/agent").await
    }

    /// Drains the agent: it grants no more slots, and stops once its grants have ended.
    pub async fn drain(&self) -> Result<(), Error> {
        self.ask(Method::POST, "/v1/drain", None::<&()>).await.map(Done::into)
    }

    /// Reloads the agent's files. Returns which secret it uses now.
    pub async fn reload(&self) -> Result<SecretView, Error> {
        self.ask(Method::POST, "/v1/reload", None::<&()>).await
    }

    /// Streams the agent's events from now on, of one resource or of all.
    pub async fn events(&self, name: Option<&str>) -> Result<Events, Error> {
        let name = name.map(|name| name.parse::<Name>().map(|name| format!("?name={}", encoded(name.as_str()))));
        let path = format!("/v1/events{}", name.transpose()?.unwrap_or_default());
        let (response, connection) = self.within(QUERY, self.send(Method::GET, &path, None::<&()>)).await?;
        Ok(Events { lines: Lines::new(response, connection, self.endpoint().clone()) })
    }

    async fn get<T: DeserializeOwned>(&self, path: &str) -> Result<T, Error> {
        self.within(QUERY, self.fetch(Method::GET, path, None::<&()>)).await
    }

    async fn ask<T: DeserializeOwned>(
        &self,
        method: Method,
        path: &str,
        body: Option<&impl Serialize>,
    ) -> Result<T, Error> {
        self.within(ANSWER, self.fetch(method, path, body)).await
    }

    /// Fails with an error other than [`Error::Broken`], after which callers would retry: the agent exists, but is
    /// frozen.
    async fn within<T>(&self, limit: Duration, outcome: impl Future<Output = Result<T, Error>>) -> Result<T, Error> {
        timeout(limit, outcome).await.unwrap_or_else(|_| Err(self.mute(limit)))
    }

    fn mute(&self, limit: Duration) -> Error {
        let (endpoint, seconds) = (self.endpoint(), limit.as_secs());
        let message = format!(
            "the agent at {endpoint} has not answered for {seconds} s: check with `peerlock doctor` whether it is \
             starting or frozen"
        );
        Error::Refused { class: Class::Unavailable, message }
    }

    /// Sends a request and reads its whole answer, so that the connection is idle again.
    async fn fetch<T: DeserializeOwned>(
        &self,
        method: Method,
        path: &str,
        body: Option<&impl Serialize>,
    ) -> Result<T, Error> {
        let (response, connection) = self.send(method, path, body).await?;
        let bytes = response.into_body().collect().await.map_err(|error| self.broken(&error))?.to_bytes();
        self.keep(connection);
        serde_json::from_slice(&bytes).map_err(|error| self.broken(&error))
    }

    /// Sends a request and reads the head of the answer; of an error, all of it.
    async fn send(
        &self,
        method: Method,
        path: &str,
        body: Option<&impl Serialize>,
    ) -> Result<(Response<Incoming>, Connection), Error> {
        let request = self.request(method, path, body)?;
        let (response, connection) = self.exchange(request).await?;
        self.answered(response, connection).await
    }

    async fn send_on(
        &self,
        mut connection: Connection,
        request: hyper::Request<Full<Bytes>>,
    ) -> Result<(Response<Incoming>, Connection), Error> {
        match connection.send(request).await {
            Ok(response) => self.answered(response, connection).await,
            Err((error, _)) => Err(self.broken(&error)),
        }
    }

    async fn answered(
        &self,
        response: Response<Incoming>,
        connection: Connection,
    ) -> Result<(Response<Incoming>, Connection), Error> {
        if response.status().is_success() {
            return Ok((response, connection));
        }
        let status = response.status().as_u16();
        let bytes = response.into_body().collect().await.map_err(|error| self.broken(&error))?.to_bytes();
        self.keep(connection);
        Err(Failure::parse(status, &bytes).map_or_else(|error| self.broken(&error), |failure| failure.0))
    }

    fn request(
        &self,
        method: Method,
        path: &str,
        body: Option<&impl Serialize>,
    ) -> Result<hyper::Request<Full<Bytes>>, Error> {
        let host = match self.endpoint() {
            Endpoint::Unix(_) => "localhost",
            Endpoint::Tcp(address) => address,
        };
        let mut request = hyper::Request::builder().method(method).uri(path).header(header::HOST, host);
        if let Some(token) = &self.shared.token {
            request = request.header(header::AUTHORIZATION, token.header());
        }
        let bytes = match body {
            Some(body) => {
                request = request.header(header::CONTENT_TYPE, "application/json");
                serde_json::to_vec(body).map_err(|error| self.broken(&error))?
            }
            None => Vec::new(),
        };
        request.body(Full::from(bytes)).map_err(|error| self.broken(&error))
    }

    /// Sends a request on an idle connection or a new one. If the agent has closed an idle one, the next one is used.
    async fn exchange(
        &self,
        mut request: hyper::Request<Full<Bytes>>,
    ) -> Result<(Response<Incoming>, Connection), Error> {
        while let Some(mut connection) = self.idle() {
            match connection.send(request).await {
                Ok(response) => return Ok((response, connection)),
                Err((_, Some(unsent))) => request = unsent,
                Err((error, None)) => return Err(self.broken(&error)),
            }
        }
        let mut connection = self.open().await?;
        match connection.send(request).await {
            Ok(response) => Ok((response, connection)),
            Err((error, _)) => Err(self.broken(&error)),
        }
    }

    async fn open(&self) -> Result<Connection, Error> {
        // Like a missing agent: an agent that starts opens its socket to the group shortly after creating it.
        let why = |error: &io::Error| match error.kind() {
            io::ErrorKind::PermissionDenied => format!("this user may not use its socket: {error}"),
            _ => with_sources(error),
        };
        let no_agent = |error| Error::NoAgent { endpoint: self.endpoint().to_string(), why: why(&error) };
        Connection::open(self.endpoint()).await.map_err(no_agent)
    }

    fn idle(&self) -> Option<Connection> {
        let mut idle = self.shared.idle();
        idle.connections.retain(Connection::is_fresh);
        idle.connections.pop()
    }

    fn keep(&self, connection: Connection) {
        let mut idle = self.shared.idle();
        if idle.connections.len() == MOST_IDLE {
            return;
        }
        idle.connections.push(connection.rested());
        if !std::mem::replace(&mut idle.is_pruned, true) {
            tokio::spawn(prune(Arc::downgrade(&self.shared)));
        }
    }

    fn broken(&self, why: &dyn std::error::Error) -> Error {
        Error::Broken { endpoint: self.endpoint().to_string(), why: with_sources(why) }
    }
}

async fn prune(shared: Weak<Shared>) {
    loop {
        sleep(FRESH).await;
        let Some(shared) = shared.upgrade() else { return };
        let mut idle = shared.idle();
        idle.connections.retain(Connection::is_fresh);
        idle.is_pruned = !idle.connections.is_empty();
        if !idle.is_pruned {
            return;
        }
    }
}

impl Shared {
    fn idle(&self) -> MutexGuard<'_, Idle> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A slot, or a waiting request. Dropping it closes the connection, which withdraws the request. Over a Unix socket
/// this also frees the slot; over TCP the slot is held until it is [released](Agent::release) or its lease expires.
#[derive(Debug)]
pub struct Hold {
    lines: Lines,
    /// How long the agent may be silent, once it has announced keep-alive lines.
    patience: Option<Duration>,
    received: Instant,
}

impl Hold {
    fn new(lines: Lines) -> Self {
        Self { lines, patience: None, received: Instant::now() }
    }

    /// Returns the connection that the slot belongs to. The slot is held as long as any process has a copy of it and
    /// the lease is valid.
    pub fn socket(&self) -> Arc<OwnedFd> {
        Arc::clone(self.lines.connection().socket())
    }

    /// Returns the next change; none follows [`Line::Lost`]. Skips keep-alive lines and unknown kinds. Cancel-safe.
    ///
    /// # Errors
    /// The error of the request; or [`Error::Broken`] if the connection ended, or announced keep-alive lines are
    /// missing.
    pub async fn next(&mut self) -> Result<Line, Error> {
        loop {
            let line = self.line().await?.ok_or_else(|| self.lines.broken("it was closed"))?;
            self.received = Instant::now();
            match Line::parse(&line).map_err(|error| self.lines.broken(error))? {
                Some(Line::Failed(failure)) => return Err(failure.0),
                Some(Line::Alive { every }) => self.patience = Some(every.saturating_mul(MISSED)),
                Some(line) => return Ok(line),
                None => {}
            }
        }
    }

    async fn line(&mut self) -> Result<Option<Bytes>, Error> {
        let Some(patience) = self.patience else { return self.lines.next().await };
        // Lines that arrived between two calls count, so the connection is read even after the time limit.
        let end = (self.received + patience).max(Instant::now() + LOOK);
        match timeout_at(end, self.lines.next()).await {
            Ok(line) => line,
            Err(_) => Err(self.lines.broken(format!("the agent has sent nothing for {} s", patience.as_secs_f64()))),
        }
    }
}

/// A stream of an agent's events.
#[derive(Debug)]
pub struct Events {
    lines: Lines,
}

impl Events {
    /// Returns the next event; `None` when the agent has stopped. Skips unknown kinds. Cancel-safe.
    pub async fn next(&mut self) -> Result<Option<Happening>, Error> {
        while let Some(line) = self.lines.next().await? {
            let Some(data) = line.strip_prefix(b"data: ") else { continue };
            match serde_json::from_slice(data) {
                Ok(happening) => return Ok(Some(happening)),
                Err(error) => match serde_json::from_slice::<Kind>(data) {
                    Ok(Kind { event }) => tracing::debug!(event, %error, "ignored an event"),
                    Err(_) => return Err(self.lines.broken(error)),
                },
            }
        }
        Ok(None)
    }
}

#[derive(Deserialize)]
struct Kind {
    event: String,
}

fn resource(name: &str, verb: &str) -> Result<String, Error> {
    let name: Name = name.parse()?;
    Ok(format!("/v1/resources/{}{verb}", encoded(name.as_str())))
}

/// Returns the query string of these fields, without empty ones.
fn query(fields: &Value) -> String {
    let given = fields.as_object().into_iter().flatten().filter_map(|(name, value)| match value {
        Value::Null => None,
        Value::String(text) if text.is_empty() => None,
        Value::String(text) => Some(format!("{name}={}", encoded(text))),
        value => Some(format!("{name}={value}")),
    });
    let given: Vec<String> = given.collect();
    if given.is_empty() { String::new() } else { format!("?{}", given.join("&")) }
}

fn encoded(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => out.push(char::from(byte)),
            _ => out.push_str(&format!("%{byte:02X}")),
        }
    }
    out
}

/// Formats an error with its sources: hyper's own message lacks the cause.
fn with_sources(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(error) = source {
        text.push_str(&format!(": {error}"));
        source = error.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_in_paths() {
        for (name, path) in [
            ("a-b_c.d~1", "/v1/resources/a-b_c.d~1/x"),
            ("a/b c?d#e%", "/v1/resources/a%2Fb%20c%3Fd%23e%25/x"),
            ("Köln", "/v1/resources/K%C3%B6ln/x"),
        ] {
            assert_eq!(resource(name, "/x").unwrap(), path);
        }
        assert!(matches!(resource("", "/x"), Err(Error::BadName { .. })));
    }
}
