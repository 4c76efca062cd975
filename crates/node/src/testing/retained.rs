//! The number of items that a node stores because of messages of other hosts, for tests of memory bounds.

use crate::links::contacts::Contact;
use crate::node::Node;
use crate::query::Survey;
use crate::takeover::Takeover;

impl Node {
    /// Returns the number of items stored because of messages of other hosts.
    pub fn retained(&self) -> usize {
        let contacts: usize = self.contacts.all().map(|(_, contact)| 1 + contact.retained()).sum();
        let registry = self.session_state.registry().map_or(0, peerlock_registry::Registry::retained);
        let parts: usize = self.parts.parts.values().map(|part| 1 + part.custody.retained(None)).sum();
        let orders = self.orders.revocations.len() + self.orders.removals.len();
        let clusters = self.incidents.foreign.len() + self.incidents.beside.len() + self.others.hosts.len();
        let hosts = contacts + self.membership.dialled.len() + clusters;
        let resources = parts + self.parts.rations.len() + self.detached.orphans.len() + self.takeover.retained();
        registry + hosts + resources + self.survey.retained() + orders
    }
}

impl Contact {
    pub fn retained(&self) -> usize {
        self.link.retained.len()
    }
}

impl Takeover {
    pub fn retained(&self) -> usize {
        self.early.len() + self.missed.len()
    }
}

impl Survey {
    fn retained(&self) -> usize {
        let counting = self.watched.values().filter_map(|watched| watched.counting.as_ref());
        let queries = self.queries.values().map(|query| {
            let report = query.report.as_ref().map_or(0, |report| report.waiting.len() + report.locations.len());
            report + query.silent.len() + query.names.len() + query.clients.values().map(Vec::len).sum::<usize>()
        });
        let sent = counting.map(|(_, hosts)| hosts.len()).sum::<usize>() + queries.sum::<usize>();
        self.watched.len() + self.queries.len() + sent
    }
}
