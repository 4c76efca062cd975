//! The agent of this machine.

use std::time::Duration;
use std::{env, fs};

use peerlock_http::{Endpoint, Token, client};
use peerlock_service::places;

use crate::{Client, Error, StartError};

/// An agent (`peerlock agent`). A process that may use its socket needs no secret. Clones share their connections; the
/// first call connects.
#[derive(Clone, Debug)]
pub struct Agent(pub(crate) client::Agent);

impl Agent {
    /// Returns the agent that `$PEERLOCK_AGENT` names, or else [the one](places::agent_in_use) that this user's
    /// commands use. For an agent at `host:port`, uses the bearer [token](Agent::token) of the environment.
    ///
    /// # Errors
    /// [`StartError::Endpoint`] or [`StartError::Places`] if the endpoint is invalid or unknown; [`StartError::Token`]
    /// if the token cannot be used.
    pub fn here() -> Result<Self, StartError> {
        match Self::named()? {
            Some(endpoint @ Endpoint::Tcp(_)) => Ok(Self::at(endpoint, Self::token()?)),
            Some(endpoint) => Ok(Self::at(endpoint, None)),
            None => Ok(Self::at(Endpoint::Unix(places::agent_in_use()?), None)),
        }
    }

    /// Returns the agent at an endpoint, which may need a bearer token.
    pub fn at(endpoint: Endpoint, token: Option<Token>) -> Self {
        Self(client::Agent::new(endpoint, token))
    }

    /// Returns the endpoint in `$PEERLOCK_AGENT`, if it is set.
    ///
    /// # Errors
    /// [`StartError::Endpoint`] if it is invalid.
    pub fn named() -> Result<Option<Endpoint>, StartError> {
        let Some(text) = env::var_os("PEERLOCK_AGENT").filter(|text| !text.is_empty()) else { return Ok(None) };
        text.to_string_lossy().parse().map(Some).map_err(StartError::Endpoint)
    }

    /// Returns the bearer token in `$PEERLOCK_API_TOKEN`, or in the file that `$PEERLOCK_API_TOKEN_FILE` names. `None`
    /// if neither is set.
    ///
    /// # Errors
    /// [`StartError::Token`] if the file cannot be read, or the token is invalid.
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

    /// Returns the agent's endpoint.
    pub fn endpoint(&self) -> &Endpoint {
        self.0.endpoint()
    }

    /// Drains the agent: it grants no more slots, and stops once its grants have ended.
    pub async fn drain(&self) -> Result<(), Error> {
        self.0.drain().await
    }

    /// Returns the process ID of the agent, or `None` if no agent runs.
    ///
    /// # Errors
    /// If an agent runs but does not answer; see [`Error`].
    pub async fn process(&self) -> Result<Option<u32>, Error> {
        match self.0.about().await {
            Ok(about) => Ok(Some(about.pid)),
            Err(Error::NoAgent { .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Returns whether an agent answers in this time, with its health or with an error.
    pub async fn responds_within(&self, limit: Duration) -> bool {
        self.0.responds_within(limit).await
    }

    /// Returns a client of the agent.
    pub fn client(&self) -> Client {
        Client::Agent(self.clone())
    }
}
