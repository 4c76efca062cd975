//! The loss of a majority of the voters, and the recovery from the remaining one.

use peerlock_registry::disk::{Disk as _, Write};
use peerlock_registry::{Registry, Ttl, recover, recover_within};
use peerlock_types::{Rng, Span, Time};

use super::{Event, World};
use crate::watch::Violation;

/// One voter is cut off; the others are lost; the latest recovery, when sessions of the lost voters may be in use.
const CUT_OFF: Span = Span::from_secs(12);
const LOST: Span = Span::from_secs(14);
const DECIDED_WITHIN: Span = Span::from_secs(6);
/// The sessions in the file decide.
const LEAST: u64 = 100;

impl World {
    pub(super) fn plan_disaster(&mut self) {
        let decided = LOST + Rng::stream(self.setting.seed, 6).between(Span::ZERO, DECIDED_WITHIN);
        for (at, event) in [(CUT_OFF, Event::CutOff), (LOST, Event::Disaster), (decided, Event::Recover)] {
            self.schedule(Time::ZERO + at, event);
        }
    }

    pub(super) fn cut_off(&mut self) {
        // A learner that has received nothing cannot be recovered from.
        let votes = |host: &usize| {
            let file = self.hosts[*host].disk.clone().load().expect("a fake disk can be read");
            file.is_some_and(|file| recover(&file, self.versions(*host), 0).is_ok())
        };
        let voters: Vec<usize> = (0..self.hosts.len()).filter(votes).collect();
        if voters.len() > 1 {
            let survivor = voters[self.faults.below(voters.len() as u64) as usize];
            self.note(|| format!("{survivor} is cut off"));
            self.survivor = Some(survivor);
        }
    }

    pub(super) fn lose_majority(&mut self) {
        let Some(survivor) = self.survivor else { return };
        for host in (0..self.hosts.len()).filter(|host| *host != survivor) {
            if self.hosts[host].disk.has_file() {
                self.note(|| format!("{host} is lost"));
                self.stop(host);
                self.hosts[host].gone = true;
            }
        }
    }

    pub(super) fn recover(&mut self) -> Result<(), Violation> {
        let Some(survivor) = self.survivor.take() else { return Ok(()) };
        let applied = self.hosts[survivor].member.as_ref().and_then(|it| it.registry()).map(Registry::applied);
        self.stop(survivor);
        let file = self.hosts[survivor].disk.load().expect("a fake disk can be read");
        let file = file.expect("the survivor has a file");
        let least = Ttl::from_millis(LEAST).expect("a valid duration");
        let recovered = recover_within(&file, self.versions(survivor), survivor as u64, least)
            .unwrap_or_else(|damage| panic!("the survivor cannot be recovered from: {damage}"));
        self.note(|| format!("{survivor} is recovered: {}", recovered.cluster));
        assert!(applied <= Some(recovered.last.1), "it had applied more than its file says");
        assert_eq!(recovered.host, super::peer(survivor));
        self.watch.on_recovered();
        self.hosts[survivor].cluster = recovered.cluster;
        self.hosts[survivor].disk.begin(Write::Replace(recovered.file));
        self.hosts[survivor].disk.finish();
        self.start(survivor)
    }
}
