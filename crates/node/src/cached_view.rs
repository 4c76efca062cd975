//! The cached view of the cluster, from the registry, and the hosts to include in it.

use std::collections::BTreeSet;
use std::mem::take;

use peerlock_registry::{Info, MOST_HOSTS, SessionId, Ttl, View};
use peerlock_types::PeerId;

/// Hosts included because they were named to clients.
const MOST_MENTIONED: usize = 256;
/// Hosts dialled or asked at a time: in a large cluster all members may lose their sessions at once.
const MOST_SOUGHT: usize = 16;

#[derive(Default)]
pub struct CachedView {
    /// The last result: hosts of interest and voters.
    view: Option<View>,
    looked_for: BTreeSet<PeerId>,
    mentioned: BTreeSet<PeerId>,
    /// Voters, learners and leader.
    seated: BTreeSet<PeerId>,
    /// Of all members, as last reported.
    addresses: Vec<String>,
    /// Received pages of the member list.
    everybody: Option<View>,
    lookers: Vec<u64>,
    rounds: usize,
}

impl CachedView {
    pub fn view(&self) -> Option<&View> {
        self.view.as_ref()
    }

    pub fn members(&self) -> impl Iterator<Item = (PeerId, &Info)> {
        self.view.iter().flat_map(|view| view.members.iter().map(|(host, info)| (*host, info)))
    }

    pub fn info_of(&self, host: PeerId) -> Option<&Info> {
        self.members().find(|(member, _)| *member == host).map(|(_, info)| info)
    }

    pub fn voters(&self) -> impl Iterator<Item = PeerId> {
        self.view.iter().flat_map(|view| view.voters.iter().map(|(_, host)| *host))
    }

    pub fn voters_and_learners(&self) -> Option<impl Iterator<Item = PeerId>> {
        self.view.as_ref().map(|view| view.voters.iter().chain(&view.learners).map(|(_, host)| *host))
    }

    pub fn sessions_of(&self, host: PeerId) -> impl DoubleEndedIterator<Item = (SessionId, Ttl)> {
        let sessions = self.view.iter().flat_map(|view| &view.sessions);
        sessions.filter(move |(_, of, _)| *of == host).map(|(session, _, ttl)| (*session, *ttl))
    }

    pub fn seated(&self) -> &BTreeSet<PeerId> {
        &self.seated
    }

    pub fn is_seated(&self, host: PeerId) -> bool {
        self.seated.contains(&host)
    }

    /// Sets the voters, learners and leader: these and those of the last result.
    pub fn set_others(&mut self, others: impl Iterator<Item = PeerId>) {
        let mut seated: Vec<PeerId> = self.voters_and_learners().into_iter().flatten().chain(others).collect();
        seated.sort_unstable();
        seated.dedup();
        // Usually unchanged.
        if !self.seated.iter().eq(&seated) {
            self.seated = seated.into_iter().collect();
        }
    }

    pub fn wanted(&self, dealt_with: impl Iterator<Item = PeerId>) -> BTreeSet<PeerId> {
        self.mentioned.iter().copied().chain(dealt_with).take(MOST_HOSTS).collect()
    }

    pub fn look_for(&mut self, hosts: BTreeSet<PeerId>) {
        self.looked_for = hosts;
    }

    pub fn covers(&self, hosts: &BTreeSet<PeerId>) -> bool {
        hosts.is_subset(&self.looked_for)
    }

    pub fn was_looked_for(&self, host: PeerId) -> bool {
        self.looked_for.contains(&host)
    }

    pub fn need(&mut self, host: PeerId) {
        self.mentioned.insert(host);
    }

    /// Includes hosts that were named to clients, within the limit. Returns whether one is new.
    pub fn mention(&mut self, hosts: impl Iterator<Item = PeerId>) -> bool {
        let before = self.mentioned.len();
        self.mentioned.extend(hosts.take(MOST_MENTIONED.saturating_sub(before)));
        self.mentioned.len() > before
    }

    pub fn on_event(&mut self, view: View) -> BTreeSet<PeerId> {
        let members: BTreeSet<PeerId> = view.members.iter().map(|(host, _)| *host).collect();
        self.view = Some(view);
        self.mentioned.clear();
        self.looked_for.difference(&members).copied().collect()
    }

    pub fn list(&mut self, addresses: &[String]) -> bool {
        let is_new = self.addresses != addresses;
        if is_new {
            self.addresses = addresses.to_vec();
        }
        is_new
    }

    pub fn await_all(&mut self, call: u64) {
        self.lookers.push(call);
    }

    pub fn begin_all(&mut self) {
        self.everybody = None;
    }

    /// Stores a page. Returns the last host, if another page follows it.
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

    pub fn end_all(&mut self) -> (Option<View>, Vec<u64>) {
        (self.everybody.take(), take(&mut self.lookers))
    }

    pub fn check(&self, has_alarm: bool) {
        assert!(
            self.lookers.is_empty() || has_alarm,
            "calls {:?} wait for the member list without a timer",
            self.lookers
        );
    }

    pub fn next_round(&mut self) {
        self.rounds += 1;
    }

    pub fn in_turn(&self, hosts: &BTreeSet<PeerId>) -> Vec<PeerId> {
        let first = (self.rounds * MOST_SOUGHT).checked_rem(hosts.len()).unwrap_or(0);
        hosts.iter().copied().cycle().skip(first).take(hosts.len().min(MOST_SOUGHT)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_host_has_a_turn_within_bounded_rounds() {
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
            assert_eq!(soon, hosts, "every host in turn, {count}");
        }
    }

    #[test]
    #[should_panic(expected = "calls [7] wait for the member list without a timer")]
    fn pending_look_without_a_timer_panics() {
        let mut cached_view = CachedView::default();
        cached_view.check(false);
        cached_view.await_all(7);
        cached_view.check(true);
        cached_view.check(false);
    }

    #[test]
    fn mentioned_hosts_are_bounded() {
        let mut cached_view = CachedView::default();
        let hosts = |from: u64| (from..from + 200).map(PeerId::new);
        assert!(cached_view.mention(hosts(0)));
        assert!(!cached_view.mention(hosts(0)), "they are known");
        assert!(cached_view.mention(hosts(1000)));
        assert!(!cached_view.mention(hosts(2000)), "there is no room");
        assert_eq!(cached_view.wanted([PeerId::new(7777)].into_iter()).len(), MOST_MENTIONED + 1);
    }
}
