//! A client of an agent: the API, over a socket.

mod connection;
mod lines;

use std::future::Future;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::{Method, Response, header};
use peerlock_service::{
    Class, ClusterView, Error, Granted, Happening, Listing, Name, PeerId, PeerView, Request, ResourceDetails,
    ResourceView,
};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use tokio::sync::watch;
use tokio::time::{Instant, sleep, timeout, timeout_at};

use crate::body::{Done, Line, Released, Renewed, Slots, Voters, Wanted, Which, Whom};
use crate::{AgentView, Endpoint, Failure, SecretView, Token};
use connection::{Connection, FRESH};
use lines::Lines;

/// How long an agent may take for what asks nobody to wait. One that has lost its majority says so sooner.
const ANSWER: Duration = Duration::from_secs(30);
/// So many idle connections are kept. Our choice: as many requests at a time need no new one.
const MOST_IDLE: usize = 16;
/// After so many missed keep-alive lines a connection is broken.
const MISSED: u32 = 3;
/// How long a connection is read at least before it is taken for silent.
const LOOK: Duration = Duration::from_millis(10);
/// How much longer than a request may wait its answer may take. An agent that runs answers `--try` within two seconds.
const LATE: Duration = Duration::from_secs(10);

/// An agent, as its clients see it. Copies share their connections, which are kept open between calls. Dropping a
/// call's future closes the connection it was made on, and so withdraws what was asked.
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
    /// Has a receiver for each slot that is not given back yet.
    users: watch::Sender<()>,
}

/// Connections that wait for the next request.
#[derive(Debug, Default)]
struct Idle {
    connections: Vec<Connection>,
    /// Whether a task closes those that nobody uses.
    is_pruned: bool,
}

impl Agent {
    /// The agent at an endpoint. Nothing is connected before the first call.
    pub fn new(endpoint: Endpoint, token: Option<Token>) -> Self {
        let users = watch::Sender::new(());
        Self { shared: Arc::new(Shared { endpoint, token, idle: Mutex::default(), users }) }
    }

    /// Returns what [`unused`](Agent::unused) waits for until it is dropped.
    pub fn user(&self) -> watch::Receiver<()> {
        self.shared.users.subscribe()
    }

    /// Resolves when no [user](Agent::user) is left.
    pub async fn unused(&self) {
        self.shared.users.closed().await;
    }

    /// Where it is.
    pub fn endpoint(&self) -> &Endpoint {
        &self.shared.endpoint
    }

    /// Acquires a slot that stands until its lease ends, whatever becomes of this client.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn acquire(&self, request: &Request) -> Result<Granted, Error> {
        let path = resource(&request.name, "/acquire")?;
        self.in_time(request, self.call(Method::POST, &path, Some(request))).await
    }

    /// What comes of a request, unless it takes longer than the request may wait: who counts that is the agent, which
    /// may be frozen.
    ///
    /// # Errors
    /// What comes of it, and that the agent does not answer.
    pub async fn in_time<T>(
        &self,
        request: &Request,
        outcome: impl Future<Output = Result<T, Error>>,
    ) -> Result<T, Error> {
        let wait = if request.try_only { Some(Duration::ZERO) } else { request.wait };
        match wait {
            Some(wait) => self.within(wait.saturating_add(LATE), outcome).await,
            None => outcome.await,
        }
    }

    /// Acquires a slot for as long as the [`Hold`] is there and its lease is [renewed](Agent::renew).
    ///
    /// # Errors
    /// See [`Error`]; most come with the hold's [lines](Hold::next).
    pub async fn hold(&self, request: &Request) -> Result<Hold, Error> {
        let (response, connection) = self.send(Method::POST, &resource(&request.name, "/hold")?, Some(request)).await?;
        Ok(Hold::new(Lines::new(response, connection, self.endpoint().clone())))
    }

    /// Takes up a slot again that was [held](Agent::hold) at an agent which has ended, or over TCP on a connection that
    /// broke. `opened` gets the connection that it will belong to, before it does.
    ///
    /// # Errors
    /// See [`Error`]; most come with the hold's [lines](Hold::next). [`Error::Lost`] if its lease has ended.
    pub async fn resume(&self, name: &str, grant: &str, opened: impl FnOnce(Arc<OwnedFd>)) -> Result<Hold, Error> {
        let which = Which { grant: grant.to_owned() };
        let request = self.request(Method::POST, &resource(name, "/resume")?, Some(&which))?;
        let connection = self.open().await?;
        opened(Arc::clone(connection.socket()));
        let (response, connection) = self.send_on(connection, request).await?;
        Ok(Hold::new(Lines::new(response, connection, self.endpoint().clone())))
    }

    /// Renews a lease: how long it stands, counted from before this was called.
    ///
    /// # Errors
    /// [`Error::Lost`] if it does not stand any more.
    pub async fn renew(&self, name: &str, grant: &str) -> Result<Duration, Error> {
        let which = Which { grant: grant.to_owned() };
        let renewed: Renewed = self.ask(Method::POST, &resource(name, "/renew")?, Some(&which)).await?;
        Ok(renewed.ttl)
    }

    /// Gives a slot back.
    ///
    /// # Errors
    /// [`Error::Lost`] if it did not stand any more.
    pub async fn release(&self, name: &str, grant: &str) -> Result<(), Error> {
        let which = Which { grant: grant.to_owned() };
        let _: Released = self.ask(Method::POST, &resource(name, "/release")?, Some(&which)).await?;
        Ok(())
    }

    /// All resources of the agent's cluster, by name.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn resources(&self) -> Result<Vec<ResourceView>, Error> {
        self.list(&Listing::default()).await
    }

    /// Some of the resources of the agent's cluster, by name.
    ///
    /// # Errors
    /// [`Error::BadName`] if no name can begin so; see [`Error`].
    pub async fn list(&self, listing: &Listing) -> Result<Vec<ResourceView>, Error> {
        let after = listing.after.as_ref().map_or("", |name| name.as_str());
        let limit = listing.limit.map(|limit| limit.to_string()).unwrap_or_default();
        let given = [("prefix", &listing.prefix[..]), ("after", after), ("limit", &limit)];
        let given = given.into_iter().filter(|(_, value)| !value.is_empty());
        let query: Vec<String> = given.map(|(name, value)| format!("{name}={}", encoded(value))).collect();
        self.get(&format!("/v1/resources?{}", query.join("&"))).await
    }

    /// Who waits for a resource and who is inside, in the whole cluster.
    ///
    /// # Errors
    /// [`Error::NoSuchResource`], [`Error::NoMajority`], [`Error::Recovering`].
    pub async fn show(&self, name: &str) -> Result<ResourceDetails, Error> {
        self.get(&resource(name, "")?).await
    }

    /// Everybody whom the agent knows, itself first.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn peers(&self) -> Result<Vec<PeerView>, Error> {
        self.get("/v1/peers").await
    }

    /// The agent itself, and how it stands.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn about(&self) -> Result<AgentView, Error> {
        self.get("/v1/agent").await
    }

    /// The cluster as a voter knows it; as the agent does if none answers.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn cluster(&self) -> Result<ClusterView, Error> {
        self.get("/v1/cluster").await
    }

    /// Gives a resource another number of slots.
    ///
    /// # Errors
    /// [`Error::NoSuchResource`], and see [`Error`].
    pub async fn resize(&self, name: &str, slots: u32) -> Result<(), Error> {
        self.ask(Method::POST, &resource(name, "/resize")?, Some(&Slots { slots })).await.map(|Done {}| ())
    }

    /// Removes a name that nobody uses.
    ///
    /// # Errors
    /// [`Error::InUse`], [`Error::NoSuchResource`], and see [`Error`].
    pub async fn remove(&self, name: &str) -> Result<(), Error> {
        self.ask(Method::POST, &resource(name, "/remove")?, None::<&()>).await.map(|Done {}| ())
    }

    /// Asks whoever is inside with this fencing number to stop, and returns when it has, or its lease has ended.
    ///
    /// # Errors
    /// [`Error::Lost`] if nobody is inside with it; that its host cannot be reached; and see [`Error`].
    pub async fn revoke(&self, name: &str, fencing: u64) -> Result<(), Error> {
        self.call(Method::POST, &resource(name, "/revoke")?, Some(&Wanted { fencing })).await.map(|Done {}| ())
    }

    /// Takes away by force what a host has of a resource.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn expel(&self, name: &str, peer: PeerId) -> Result<(), Error> {
        let whom = Whom { peer: peer.to_string() };
        self.ask(Method::POST, &resource(name, "/expel")?, Some(&whom)).await.map(|Done {}| ())
    }

    /// Says which hosts vote; `None` leaves it to the cluster.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn seats(&self, hosts: Option<Vec<PeerId>>) -> Result<(), Error> {
        let voters = Voters { hosts: hosts.map(|hosts| hosts.iter().map(PeerId::to_string).collect()) };
        self.ask(Method::POST, "/v1/voters", Some(&voters)).await.map(|Done {}| ())
    }

    /// Has the agent let nobody in any more, and leave when those who hold slots have given them back.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn drain(&self) -> Result<(), Error> {
        self.ask(Method::POST, "/v1/drain", None::<&()>).await.map(|Done {}| ())
    }

    /// Has the agent read its files again. Which secret it goes by then.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn reload(&self) -> Result<SecretView, Error> {
        self.ask(Method::POST, "/v1/reload", None::<&()>).await
    }

    /// What happens at the agent from now on, of one resource or of everything.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn events(&self, name: Option<&str>) -> Result<Events, Error> {
        let name = name.map(|name| name.parse::<Name>().map(|name| format!("?name={}", encoded(name.as_str()))));
        let path = format!("/v1/events{}", name.transpose()?.unwrap_or_default());
        let (response, connection) = self.send(Method::GET, &path, None::<&()>).await?;
        Ok(Events { lines: Lines::new(response, connection, self.endpoint().clone()) })
    }

    async fn get<T: DeserializeOwned>(&self, path: &str) -> Result<T, Error> {
        self.ask(Method::GET, path, None::<&()>).await
    }

    /// One request that nobody waits for.
    async fn ask<T: DeserializeOwned>(
        &self,
        method: Method,
        path: &str,
        body: Option<&impl Serialize>,
    ) -> Result<T, Error> {
        self.within(ANSWER, self.call(method, path, body)).await
    }

    /// Not [`Error::Broken`]: the agent is there, and to ask it again would not help.
    async fn within<T>(&self, limit: Duration, outcome: impl Future<Output = Result<T, Error>>) -> Result<T, Error> {
        let mute = || Error::Refused {
            class: Class::Unavailable,
            message: format!(
                "the agent at {} has not answered for {} s: `peerlock doctor` says whether it is frozen",
                self.endpoint(),
                limit.as_secs()
            ),
        };
        timeout(limit, outcome).await.unwrap_or_else(|_| Err(mute()))
    }

    /// One request with one answer, after which the connection is free for the next.
    async fn call<T: DeserializeOwned>(
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

    /// Sends a request and waits for the head of its answer, or all of it if it is a failure.
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

    /// On a connection that is idle, or a new one. One that the agent has closed meanwhile gives the request back.
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
        // Not another error: an agent that starts lets its group in a moment after it has made its socket.
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

    /// Keeps a connection for the next request. One that is not used is closed when it is not fresh any more.
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

/// Closes idle connections that are not fresh any more, until there are none.
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

/// A slot, or a place in the queue for one. Dropping it closes its connection, which gives up the place. Over a Unix
/// socket it also frees the slot; over TCP a slot stays held until it is [released](Agent::release) or its lease ends.
#[derive(Debug)]
pub struct Hold {
    lines: Lines,
    /// How long the agent may send nothing, once it has said so.
    patience: Option<Duration>,
    received: Instant,
}

impl Hold {
    fn new(lines: Lines) -> Self {
        Self { lines, patience: None, received: Instant::now() }
    }

    /// The connection that the slot belongs to. A process that has a copy of it keeps the slot, for as long as the
    /// lease stands.
    pub fn socket(&self) -> Arc<OwnedFd> {
        Arc::clone(self.lines.connection().socket())
    }

    /// Returns what becomes of it next; nothing comes after [`Line::Lost`]. Keep-alive lines and lines of unknown kinds
    /// are not returned. Cancel-safe.
    ///
    /// # Errors
    /// Why it was not let in; or [`Error::Broken`] if the connection ended, or if the agent has sent keep-alive lines
    /// and sends nothing any more.
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
        // What has come while nobody was reading is found first.
        let end = (self.received + patience).max(Instant::now() + LOOK);
        match timeout_at(end, self.lines.next()).await {
            Ok(line) => line,
            Err(_) => Err(self.lines.broken(format!("the agent has sent nothing for {} s", patience.as_secs_f64()))),
        }
    }
}

/// What happens at an agent.
#[derive(Debug)]
pub struct Events {
    lines: Lines,
}

impl Events {
    /// The next event; `None` when the agent has stopped. Events of kinds that only newer agents send are not returned.
    /// Cancel-safe.
    ///
    /// # Errors
    /// [`Error::Broken`].
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

/// What every event has.
#[derive(Deserialize)]
struct Kind {
    event: String,
}

/// The path of a resource, or of what can be done with it.
fn resource(name: &str, verb: &str) -> Result<String, Error> {
    let name: Name = name.parse()?;
    Ok(format!("/v1/resources/{}{verb}", encoded(name.as_str())))
}

/// As one segment of a path, or a value of a query.
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

/// hyper says what happened, and its source why.
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
