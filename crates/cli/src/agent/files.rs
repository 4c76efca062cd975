//! The files that an agent reloads on SIGHUP and `peerlock secret reload`.

use std::path::PathBuf;

use peerlock::{Keyring, PeerId, Secret};
use peerlock_http::{Files, SecretView, TokenInForce};

use crate::client::token;

#[derive(Debug)]
pub struct AgentFiles {
    pub secret: PathBuf,
    pub keyring: Keyring,
    pub token: Option<(PathBuf, Vec<TokenInForce>)>,
}

impl Files for AgentFiles {
    fn reload(&self) -> Result<(), String> {
        // Read both before applying either.
        let secret = Secret::load(&self.secret).map_err(|error| error.to_string())?;
        let token = self.token.as_ref().map(|(path, uses)| token(path).map(|token| (token, uses)));
        let token = token.transpose().map_err(|error| error.to_string())?;
        let before = self.keyring.fingerprints();
        self.keyring.replace(secret);
        if let Some((token, uses)) = token {
            uses.iter().for_each(|token_in_use| token_in_use.replace(token.clone()));
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
