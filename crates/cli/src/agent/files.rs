//! The files that an agent reads again on SIGHUP or `peerlock secret reload`.

use std::path::PathBuf;

use peerlock::{Keyring, PeerId, Secret};
use peerlock_http::{Files, SecretView, TokenInForce};

use crate::client::token;

/// The agent's files, and where their contents are in use.
#[derive(Debug)]
pub struct AgentFiles {
    pub secret: PathBuf,
    pub keyring: Keyring,
    /// The token file and its uses, if there are TCP listeners.
    pub token: Option<(PathBuf, Vec<TokenInForce>)>,
}

impl Files for AgentFiles {
    fn reload(&self) -> Result<(), String> {
        // Read everything before changing anything.
        let secret = Secret::load(&self.secret).map_err(|error| error.to_string())?;
        let token = self.token.as_ref().map(|(path, doors)| token(path).map(|token| (token, doors)));
        let token = token.transpose().map_err(|error| error.to_string())?;
        let before = self.keyring.fingerprints();
        self.keyring.replace(secret);
        for (token, door) in token.iter().flat_map(|(token, doors)| doors.iter().map(move |door| (token, door))) {
            door.replace(token.clone());
        }
        let now: Vec<String> = self.keyring.fingerprints().iter().map(ToString::to_string).collect();
        let changed = before != self.keyring.fingerprints();
        tracing::info!(secrets = %now.join(", "), changed, "reloaded secret and token");
        Ok(())
    }

    fn secret(&self) -> SecretView {
        let fingerprints = self.keyring.fingerprints();
        let (proved, behind): (Vec<_>, Vec<_>) =
            self.keyring.proved().into_iter().partition(|(_, proved)| Some(proved) == fingerprints.first());
        let numbers = |peers: Vec<(PeerId, _)>| peers.into_iter().map(|(peer, _)| peer.to_string()).collect();
        SecretView {
            file: self.secret.display().to_string(),
            behind: numbers(behind),
            proved: numbers(proved),
            fingerprints: fingerprints.iter().map(ToString::to_string).collect(),
        }
    }
}
