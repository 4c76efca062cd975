//! What an agent has read from files, and reads again when it is told to: by SIGHUP, or by a client.

use std::path::PathBuf;

use peerlock::{Keyring, PeerId, Secret};
use peerlock_http::{Files, SecretView, TokenInForce};

use crate::client::token;

/// The files of an agent, and where what they say is in force.
#[derive(Debug)]
pub struct AgentFiles {
    pub secret: PathBuf,
    pub keyring: Keyring,
    /// The bearer token's file, if clients come by TCP, and the doors where it is asked for.
    pub token: Option<(PathBuf, Vec<TokenInForce>)>,
}

impl Files for AgentFiles {
    fn reload(&self) -> Result<(), String> {
        // All are read before anything is changed.
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
        tracing::info!(secrets = %now.join(", "), changed, "has read its files again");
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
