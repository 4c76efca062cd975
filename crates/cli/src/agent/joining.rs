//! Decides whether an agent with `--join` returns to the cluster of its data directory, leaves it, or refuses to start.

use std::path::Path;

use peerlock::store::{self, Known};
use peerlock::{Answer, ClusterId, GrantFile, Predecessor, Probe, StartError};

use crate::say::say;
use crate::{Error, Result};

pub struct Own<'a> {
    pub dir: &'a Path,
    pub cluster: ClusterId,
    pub is_alone: bool,
    /// Whether a lease may still be valid.
    pub is_held: bool,
}

impl<'a> Own<'a> {
    /// Reads the data directory. `None` if it belongs to no cluster.
    pub fn of(dir: &'a Path, predecessor: Option<&Predecessor>) -> Result<Option<Self>> {
        let known = Known::read(dir).map_err(StartError::from)?;
        let is_held = predecessor.is_some_and(GrantFile::is_held) || known.has_grants();
        Ok(known.cluster.map(|cluster| Self { dir, cluster, is_alone: known.is_alone(), is_held }))
    }

    /// Stays in the cluster, or leaves it if the `--join` hosts are in another one and leaving loses nothing.
    pub fn decide(&self, probes: &[Probe]) -> Result<()> {
        let Some((address, theirs)) = self.leaves_for(probes)? else { return Ok(()) };
        let (dir, ours) = (self.dir.display(), self.cluster);
        store::leave(self.dir).map_err(|source| Error::Dir { path: self.dir.to_owned(), source })?;
        tracing::warn!(%ours, %theirs, address, "left its own cluster for that of --join");
        say(format_args!(
            "left the cluster {ours}, in which this host was alone and held nothing, for the cluster {theirs} of \
             {address}. The resources and fencing numbers of the old one are in {dir}/registry.left"
        ));
        Ok(())
    }

    fn leaves_for(&self, probes: &[Probe]) -> Result<Option<(String, ClusterId)>> {
        let is_ours = |id: ClusterId| id == self.cluster || id.follows(self.cluster) || self.cluster.follows(id);
        let clusters = || {
            probes.iter().filter_map(|probe| match probe.answer {
                Answer::Cluster(id) => Some((probe.address.clone(), id)),
                _ => None,
            })
        };
        let path = || self.dir.to_owned();
        if clusters().any(|(_, id)| is_ours(id)) {
            return Ok(None);
        }
        let Some((address, theirs)) = clusters().next() else {
            let other = probes.iter().find(|probe| probe.answer == Answer::OtherSecret);
            return match other.filter(|_| self.is_alone) {
                Some(Probe { address, .. }) => Err(Error::OtherSecret { address: address.clone(), path: path() }),
                None => Ok(None),
            };
        };
        let (ours, theirs_text) = (self.cluster.to_string(), theirs.to_string());
        match (self.is_alone, self.is_held) {
            (true, false) => Ok(Some((address, theirs))),
            (true, true) => Err(Error::HeldInOwnCluster { address, ours, theirs: theirs_text }),
            (false, _) if probes.iter().any(|probe| !matches!(probe.answer, Answer::Cluster(_))) => Ok(None),
            (false, _) => Err(Error::JoinElsewhere { address, path: path(), ours, theirs: theirs_text }),
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test may fail loudly")]
mod tests {
    use super::*;

    #[test]
    fn host_leaves_its_cluster_only_if_nothing_is_lost() {
        let (ours, theirs) = (ClusterId::new(1 << 64), ClusterId::new(2 << 64));
        let (unknown, away) = (Answer::Unknown, Answer::Unreached);
        let (at_home, elsewhere) = (Answer::Cluster(ours), Answer::Cluster(theirs));
        for (answers, is_alone, is_held, expected) in [
            (&[at_home][..], true, false, "stays"),
            (&[elsewhere], true, false, "leaves"),
            (&[elsewhere, away], true, false, "leaves"),
            (&[elsewhere, at_home], true, false, "stays"),
            (&[elsewhere], true, true, "holds slots in a cluster of its own"),
            (&[elsewhere], false, false, "which has other hosts"),
            (&[elsewhere, elsewhere], false, true, "which has other hosts"),
            (&[elsewhere, away], false, false, "stays"),
            (&[elsewhere, unknown], false, false, "stays"),
            (&[away], true, false, "stays"),
            (&[unknown], true, false, "stays"),
            (&[], true, false, "stays"),
            (&[Answer::OtherSecret], true, false, "another secret"),
            (&[Answer::OtherSecret], false, false, "stays"),
            (&[Answer::OtherSecret, elsewhere], true, false, "leaves"),
        ] {
            let own = Own { dir: Path::new("/f"), cluster: ours, is_alone, is_held };
            let probes: Vec<Probe> =
                answers.iter().map(|answer| Probe { address: "db1:7400".into(), answer: *answer }).collect();
            let decided = match own.leaves_for(&probes) {
                Ok(None) => "stays".to_owned(),
                Ok(Some((_, to))) => {
                    assert_eq!(to, theirs);
                    "leaves".to_owned()
                }
                Err(error) => error.to_string(),
            };
            assert!(decided.contains(expected), "{answers:?} {is_alone} {is_held}: {decided}");
        }
    }
}
