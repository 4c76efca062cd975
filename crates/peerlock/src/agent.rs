//! The agent of this machine.

use std::{env, fs};

use peerlock_http::{Endpoint, Token, client};
use peerlock_service::places;

use crate::{Client, Error, StartError};

/// The agent of this machine (`peerlock agent`), through its socket. A process that may use the socket needs no secret
/// and is no member of the cluster. Copies share their connections. Nothing is connected before something is asked.
#[derive(Clone, Debug)]
pub struct Agent(pub(crate) client::Agent);

impl Agent {
    /// The agent that `$PEERLOCK_AGENT` names, or else [the one](places::agent_in_use) that this user's commands ask.
    /// One at `host:port` gets the bearer [token](Agent::token) of the environment.
    ///
    /// # Errors
    /// [`StartError::Endpoint`] or [`StartError::Places`] if there is no such place; [`StartError::Token`] if the token
    /// cannot be used. Whether an agent is there is found
    /// out when it is asked.
    pub fn here() -> Result<Self, StartError> {
        match Self::named()? {
            Some(endpoint @ Endpoint::Tcp(_)) => Ok(Self::at(endpoint, Self::token()?)),
            Some(endpoint) => Ok(Self::at(endpoint, None)),
            None => Ok(Self::at(Endpoint::Unix(places::agent_in_use()?), None)),
        }
    }

    /// The agent at an endpoint, with its bearer token if it wants one.
    pub fn at(endpoint: Endpoint, token: Option<Token>) -> Self {
        Self(client::Agent::new(endpoint, token))
    }

    /// What `$PEERLOCK_AGENT` names, if it names anything.
    ///
    /// # Errors
    /// [`StartError::Endpoint`] if that is no place.
    pub fn named() -> Result<Option<Endpoint>, StartError> {
        let Some(text) = env::var_os("PEERLOCK_AGENT").filter(|text| !text.is_empty()) else { return Ok(None) };
        text.to_string_lossy().parse().map(Some).map_err(StartError::Endpoint)
    }

    /// Returns the bearer token in `$PEERLOCK_API_TOKEN`, or in the file that `$PEERLOCK_API_TOKEN_FILE` names, if
    /// either is set.
    ///
    /// # Errors
    /// [`StartError::Token`] if the file cannot be read, or that is no token.
    pub fn token() -> Result<Option<Token>, StartError> {
        let set = |name: &str| env::var_os(name).filter(|value| !value.is_empty());
        let unusable = |from: String, why: String| StartError::Token { from, why };
        let (from, text) = match (set("PEERLOCK_API_TOKEN"), set("PEERLOCK_API_TOKEN_FILE")) {
            (Some(token), _) => ("$PEERLOCK_API_TOKEN".to_owned(), token.to_string_lossy().into_owned()),
            (None, Some(path)) => {
                let from = format!("{} ($PEERLOCK_API_TOKEN_FILE)", path.display());
                let text = fs::read_to_string(path).map_err(|error| unusable(from.clone(), error.to_string()))?;
                (from, text)
            }
            (None, None) => return Ok(None),
        };
        Token::new(&text).map(Some).map_err(|error| unusable(from, error.to_string()))
    }

    /// Where it is.
    pub fn endpoint(&self) -> &Endpoint {
        self.0.endpoint()
    }

    /// Has it let nobody in any more, and leave when those who hold slots have given them back.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn drain(&self) -> Result<(), Error> {
        self.0.drain().await
    }

    /// Returns the process of the agent that is there now, or `None` if there is none.
    ///
    /// # Errors
    /// See [`Error`]: an agent is there and does not answer, or has ended while it was asked.
    pub async fn process(&self) -> Result<Option<u32>, Error> {
        match self.0.about().await {
            Ok(about) => Ok(Some(about.pid)),
            Err(Error::NoAgent { .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// A handle with the verbs: all its clients share one agent.
    pub fn client(&self) -> Client {
        Client::Agent(self.clone())
    }
}
