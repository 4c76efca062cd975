//! Health of this peer, for monitoring. Has no side effects.

use std::collections::BTreeMap;

use peerlock_types::{Key, PeerId, Span, Time};

use super::{Draining, Node, Phase};
use crate::notice;
use crate::others::Other;
use crate::{Error, Health, Name, OtherCluster, ResourceHealth, Stall};

/// A coordinator that has not answered for this long stalls its resource: it counts as silent from each question to its
/// answer.
const SILENT: Span = Span::from_secs(5);

impl Node {
    /// Returns the health of this peer.
    pub fn health(&self, now: Time) -> Health {
        let leaves = self.draining != Draining::No || matches!(self.phase, Phase::Leaving | Phase::Left);
        let problem = self.problem();
        let bound = self.session_state.bound();
        let parts = self.parts.iter().map(|(key, part)| (&part.name, (*key, (0, 0))));
        let waiters = self.clients.resources().map(|(key, name, holding, waiting)| (name, (key, (holding, waiting))));
        let known: BTreeMap<&Name, (Key, (usize, usize))> = parts.chain(waiters).collect();
        let of = |(name, (key, here))| self.resource_health(name, key, here, problem.as_ref(), now);
        Health {
            session: self.session_state.session().map(|session| session.get()),
            since: now.since(self.session_state.since()).into(),
            ends: bound.map(|bound| bound.until.max(now).since(now).into()),
            sessions_lost: self.counters.sessions_lost,
            leaves,
            problem: problem.clone().or(leaves.then_some(Error::Stopped)).map(|error| error.to_string()),
            resources: known.into_iter().map(of).collect(),
            registry_fault: self
                .session_state
                .forgotten()
                .map(notice::forgotten)
                .or_else(|| self.session_state.halted().map(notice::halted)),
            others: self.others.iter().map(|(host, other)| self.other_cluster(host, other, now)).collect(),
        }
    }

    fn other_cluster(&self, host: PeerId, other: &Other, now: Time) -> OtherCluster {
        OtherCluster {
            host: self.called(host),
            address: other.address.clone(),
            cluster: other.cluster.to_string(),
            // Set by the driver, which knows the configured addresses.
            is_joined: false,
            met: now.since(other.met).into(),
        }
    }

    fn resource_health(
        &self,
        name: &Name,
        key: Key,
        (holding, waiting): (usize, usize),
        problem: Option<&Error>,
        now: Time,
    ) -> ResourceHealth {
        let part = self.parts.get(key);
        let oldest = self.clients.waiting(key).map(|(_, entry)| entry.asked).min();
        ResourceHealth {
            name: name.clone(),
            slots: self.slots_of(key),
            holding,
            waiting,
            oldest_wait: oldest.map(|asked| now.since(asked).into()),
            generation: part.map_or(0, |part| part.custody.generation()),
            recoveries: part.map_or(0, |part| part.recoveries),
            stall: self.stall(name, key, problem, now),
        }
    }

    /// Without a session, only a resource with waiters is stalled.
    fn stall(&self, name: &Name, key: Key, problem: Option<&Error>, now: Time) -> Option<Stall> {
        let why = match problem {
            Some(error) => self.clients.waiting(key).next().map(|_| error.clone())?,
            None => {
                let counts = self.parts.get(key).and_then(|part| Some((part.opened, part.custody.missing()?)));
                let ours = counts.map(|(since, asked)| (since, asked.iter().map(|session| session.peer).collect()));
                let sent = || self.survey.stall(key).filter(|(since, _)| now.since(*since) >= SILENT);
                let (since, hosts) = ours.or_else(sent)?;
                self.recovering(name.clone(), since, &hosts)
            }
        };
        let text = why.to_string();
        match why {
            Error::NoMajority { missing, since } | Error::Recovering { missing, since, .. } => {
                Some(Stall { since, missing, why: text })
            }
            // Only hosts of other clusters were met.
            _ => Some(Stall { since: now.since(self.session_state.since()).into(), missing: Vec::new(), why: text }),
        }
    }
}
