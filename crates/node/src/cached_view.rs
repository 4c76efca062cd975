//! The cluster as the register has told it last, and what is looked for there.

use std::collections::BTreeSet;
use std::mem::take;

use peerlock_registry::{Info, MOST_HOSTS, SessionId, Ttl, View};
use peerlock_types::PeerId;

/// At most so many others are looked at because people were told of them.
const MOST_MENTIONED: usize = 256;
/// At most so many are dialled, and asked, at a time: in a large cluster everybody may be without a session at once,
/// and who votes is linked with everybody.
const MOST_SOUGHT: usize = 16;

/// What we see of the cluster.
#[derive(Default)]
pub struct CachedView {
    /// Those whom we deal with and those who vote, as a voter told it last.
    view: Option<View>,
    /// Whom the register was asked for then.
    looked_for: BTreeSet<PeerId>,
    /// Others of whom people here have been told.
    mentioned: BTreeSet<PeerId>,
    /// Who votes, learns to, or leads.
    seated: BTreeSet<PeerId>,
    /// Where all members listen, as it was said last.
    addresses: Vec<String>,
    /// Everybody, as far as a voter has told it to those who wait to see that.
    everybody: Option<View>,
    /// Who waits to see the cluster.
    lookers: Vec<u64>,
    /// How often anybody was sought who may help.
    rounds: usize,
}

impl CachedView {
    /// What was told last.
    pub fn view(&self) -> Option<&View> {
        self.view.as_ref()
    }

    /// The members that were told of.
    pub fn members(&self) -> impl Iterator<Item = (PeerId, &Info)> {
        self.view.iter().flat_map(|view| view.members.iter().map(|(host, info)| (*host, info)))
    }

    /// What a member has said of itself.
    pub fn info_of(&self, host: PeerId) -> Option<&Info> {
        self.members().find(|(member, _)| *member == host).map(|(_, info)| info)
    }

    /// Who votes, as it was told.
    pub fn voters(&self) -> impl Iterator<Item = PeerId> {
        self.view.iter().flat_map(|view| view.voters.iter().map(|(_, host)| *host))
    }

    /// Who votes or learns to, as it was told; nothing if nothing was.
    pub fn voters_and_learners(&self) -> Option<impl Iterator<Item = PeerId>> {
        self.view.as_ref().map(|view| view.voters.iter().chain(&view.learners).map(|(_, host)| *host))
    }

    /// The sessions of a host and how long they stand, the latest last.
    pub fn sessions_of(&self, host: PeerId) -> impl DoubleEndedIterator<Item = (SessionId, Ttl)> {
        let sessions = self.view.iter().flat_map(|view| &view.sessions);
        sessions.filter(move |(_, of, _)| *of == host).map(|(session, _, ttl)| (*session, *ttl))
    }

    /// Who votes, learns to, or leads, by all that we know.
    pub fn seated(&self) -> &BTreeSet<PeerId> {
        &self.seated
    }

    /// Whether this host does.
    pub fn is_seated(&self, host: PeerId) -> bool {
        self.seated.contains(&host)
    }

    /// These do now, besides those that were told of.
    pub fn set_others(&mut self, others: impl Iterator<Item = PeerId>) {
        let mut seated: Vec<PeerId> = self.voters_and_learners().into_iter().flatten().chain(others).collect();
        seated.sort_unstable();
        seated.dedup();
        // Nearly always they are the same.
        if !self.seated.iter().eq(&seated) {
            self.seated = seated.into_iter().collect();
        }
    }

    /// Whom to look for, where these are dealt with.
    pub fn wanted(&self, dealt_with: impl Iterator<Item = PeerId>) -> BTreeSet<PeerId> {
        self.mentioned.iter().copied().chain(dealt_with).take(MOST_HOSTS).collect()
    }

    /// The register is asked for these.
    pub fn look_for(&mut self, hosts: BTreeSet<PeerId>) {
        self.looked_for = hosts;
    }

    /// Whether the register is asked, or was asked last, for all of these.
    pub fn covers(&self, hosts: &BTreeSet<PeerId>) -> bool {
        hosts.is_subset(&self.looked_for)
    }

    /// Whether it was asked for this one.
    pub fn was_looked_for(&self, host: PeerId) -> bool {
        self.looked_for.contains(&host)
    }

    /// This one is to be looked for.
    pub fn need(&mut self, host: PeerId) {
        self.mentioned.insert(host);
    }

    /// People here are told of these, so that they are to be looked for, as far as there is room. Whether one is new.
    pub fn mention(&mut self, hosts: impl Iterator<Item = PeerId>) -> bool {
        let before = self.mentioned.len();
        self.mentioned.extend(hosts.take(MOST_MENTIONED.saturating_sub(before)));
        self.mentioned.len() > before
    }

    /// The register has told this. Who was looked for and is not there?
    pub fn on_event(&mut self, view: View) -> BTreeSet<PeerId> {
        let members: BTreeSet<PeerId> = view.members.iter().map(|(host, _)| *host).collect();
        self.view = Some(view);
        self.mentioned.clear();
        self.looked_for.difference(&members).copied().collect()
    }

    /// Members listen here. Whether that is new.
    pub fn list(&mut self, addresses: &[String]) -> bool {
        let is_new = self.addresses != addresses;
        if is_new {
            self.addresses = addresses.to_vec();
        }
        is_new
    }

    /// This call waits to see everybody.
    pub fn await_all(&mut self, call: u64) {
        self.lookers.push(call);
    }

    /// Everybody will be told of from the beginning.
    pub fn begin_all(&mut self) {
        self.everybody = None;
    }

    /// A page of everybody. After whom the next one begins, if there is one.
    pub fn on_page(&mut self, page: View) -> Option<PeerId> {
        let last = page.members.last().map(|(host, _)| *host).filter(|_| page.more);
        match &mut self.everybody {
            Some(all) => {
                all.members.extend(page.members);
                all.sessions.extend(page.sessions);
            }
            None => self.everybody = Some(page),
        }
        last
    }

    /// Everybody, as far as that was told, and the calls that wait for it.
    pub fn end_all(&mut self) -> (Option<View>, Vec<u64>) {
        (self.everybody.take(), take(&mut self.lookers))
    }

    /// What must be true after each step.
    pub fn check(&self, has_alarm: bool) {
        assert!(self.lookers.is_empty() || has_alarm, "{:?} wait to see the cluster, and nobody answers", self.lookers);
    }

    /// Another round of seeking begins.
    pub fn next_round(&mut self) {
        self.rounds += 1;
    }

    /// Those of them whose turn it is in this round.
    pub fn in_turn(&self, hosts: &BTreeSet<PeerId>) -> Vec<PeerId> {
        let first = (self.rounds * MOST_SOUGHT).checked_rem(hosts.len()).unwrap_or(0);
        hosts.iter().copied().cycle().skip(first).take(hosts.len().min(MOST_SOUGHT)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everybody_has_a_turn_and_few_at_a_time() {
        for count in [0, 1, 5, 16, 17, 32, 100, 1000] {
            let hosts: BTreeSet<PeerId> = (0..count).map(PeerId::new).collect();
            let mut cached_view = CachedView::default();
            let rounds = (0..=count).map(|_| {
                cached_view.next_round();
                cached_view.in_turn(&hosts)
            });
            let rounds: Vec<Vec<PeerId>> = rounds.collect();
            assert!(rounds.iter().all(|round| round.len() == hosts.len().min(MOST_SOUGHT)), "{count}");
            assert_eq!(rounds.concat().into_iter().collect::<BTreeSet<_>>(), hosts, "{count}");
            let soon: BTreeSet<PeerId> = rounds.concat().into_iter().take(count as usize + MOST_SOUGHT).collect();
            assert_eq!(soon, hosts, "one after another, {count}");
        }
    }

    #[test]
    #[should_panic(expected = "[7] wait to see the cluster, and nobody answers")]
    fn who_waits_to_see_the_cluster_is_answered() {
        let mut cached_view = CachedView::default();
        cached_view.check(false);
        cached_view.await_all(7);
        cached_view.check(true);
        cached_view.check(false);
    }

    #[test]
    fn no_more_are_looked_for_than_there_is_room() {
        let mut cached_view = CachedView::default();
        let hosts = |from: u64| (from..from + 200).map(PeerId::new);
        assert!(cached_view.mention(hosts(0)));
        assert!(!cached_view.mention(hosts(0)), "they are known");
        assert!(cached_view.mention(hosts(1000)));
        assert!(!cached_view.mention(hosts(2000)), "there is no room");
        assert_eq!(cached_view.wanted([PeerId::new(7777)].into_iter()).len(), MOST_MENTIONED + 1);
    }
}
