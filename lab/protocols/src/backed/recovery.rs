//! Recovery from the loss of a state with all its backups. The paper refers to \[18\], which regenerates one token.
//! Here one peer queries all others for their grants. When all have answered, it restarts the protocol with the tokens
//! where they are and the missing ones recreated. The order of the queue is lost.

use alloc::collections::BTreeSet;
use alloc::vec::Vec;

use peerlock_types::{PeerId, Ticket};

use super::message::Epoch;
use super::{Backable, Backed, Message, Part};
use crate::token::Layout;
use crate::{Cx, Grant, Input};

/// The distance between the first fencing numbers of two restarts.
const NUMBERS: u64 = 1 << 32;

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Census {
    missing: BTreeSet<PeerId>,
    found: Vec<(PeerId, Grant)>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Recovery {
    epoch: Option<Epoch>,
    stopped: bool,
    asked: Option<Census>,
    grants: Vec<(Ticket, Grant)>,
    waiting: Vec<Ticket>,
    /// Holders at the restart, which are not granted again.
    returning: Vec<Ticket>,
}

impl Recovery {
    pub fn epoch(&self) -> Epoch {
        self.epoch.unwrap_or((0, PeerId::new(0)))
    }

    pub fn is_under_way(&self) -> bool {
        self.stopped
    }

    pub fn grant<P: Backable>(&mut self, is_ours: bool, ticket: Ticket, grant: Grant, cx: &mut Cx<'_, Backed<P>>) {
        let grant = Grant { fencing: grant.fencing + self.epoch().0 * NUMBERS, ..grant };
        if let Some(at) = self.returning.iter().position(|&returning| returning == ticket) {
            self.returning.remove(at);
        } else if is_ours {
            self.waiting.retain(|&waiting| waiting != ticket);
            self.grants.push((ticket, grant));
            cx.grant(ticket, grant);
        }
    }

    pub fn record_request(&mut self, ticket: Ticket) {
        self.waiting.push(ticket);
    }

    /// If the grant was reported in `Found`, its token will be idle here.
    pub fn record_release(&mut self, ticket: Ticket) {
        self.waiting.retain(|&waiting| waiting != ticket);
        self.remove_grant(ticket);
    }

    pub fn remove_grant(&mut self, ticket: Ticket) {
        self.grants.retain(|&(holder, _)| holder != ticket);
    }
}

impl<P: Backable> Backed<P> {
    pub(super) fn on_missing_state(&mut self, cx: &mut Cx<'_, Self>) {
        if !self.config.recovers {
            return cx.unexpected("a message for an identifier whose state is lost");
        }
        if !self.recovery.stopped {
            self.search(cx);
        }
    }

    fn search(&mut self, cx: &mut Cx<'_, Self>) {
        let epoch = (self.recovery.epoch().0 + 1, self.me);
        self.stop(epoch);
        let others: BTreeSet<PeerId> =
            self.ring.from(self.me).filter(|peer| *peer != self.me && !self.failed.contains(peer)).collect();
        for &other in &others {
            cx.send(other, Message::Search { epoch });
        }
        let found = self.recovery.grants.iter().map(|&(_, grant)| (self.me, grant)).collect();
        self.recovery.asked = Some(Census { missing: others, found });
        self.restart_if_all_have_answered(cx);
    }

    fn stop(&mut self, epoch: Epoch) {
        if !self.recovery.stopped
            && let Some(own) = self.parts.get(&self.me)
        {
            let is_holding = |ticket: &Ticket| self.recovery.grants.iter().any(|(holder, _)| holder == ticket);
            let waiting: Vec<Ticket> = own.open.iter().copied().filter(|ticket| !is_holding(ticket)).collect();
            self.recovery.waiting = waiting;
        }
        self.inbox.clear();
        self.early.clear();
        (self.recovery.epoch, self.recovery.stopped, self.recovery.asked) = (Some(epoch), true, None);
    }

    /// Returns whether the message is handled.
    pub(super) fn is_of_recovery(&mut self, from: PeerId, message: &Message<P>, cx: &mut Cx<'_, Self>) -> bool {
        let (epoch, ours) = (message.epoch(), self.recovery.epoch());
        match message {
            Message::Search { .. } if epoch > ours => {
                self.stop(epoch);
                cx.send(from, Message::Found { epoch, grants: self.recovery.grants.clone() });
            }
            Message::Found { grants, .. } if epoch == ours => {
                if let Some(Census { missing, found }) = &mut self.recovery.asked
                    && missing.remove(&from)
                {
                    found.extend(grants.iter().map(|&(_, grant)| (from, grant)));
                    self.restart_if_all_have_answered(cx);
                }
            }
            Message::Fresh { layout, .. } if epoch == ours && self.recovery.stopped => self.restart(layout, cx),
            Message::Search { .. } | Message::Found { .. } | Message::Fresh { .. } => {}
            // It has overtaken `Fresh`.
            _ if epoch == ours && self.recovery.stopped => self.inbox.push_back(message.clone()),
            // A message of another epoch is outdated, or of a restart without this peer.
            _ => return epoch != ours,
        }
        true
    }

    /// Continues a search without a failed peer. The successor of a failed searching peer searches again.
    pub(super) fn forget_search_of(&mut self, peer: PeerId, cx: &mut Cx<'_, Self>) {
        let leader = self.recovery.epoch().1;
        if let Some(Census { missing, .. }) = &mut self.recovery.asked {
            missing.remove(&peer);
            self.restart_if_all_have_answered(cx);
        } else if self.recovery.stopped && self.failed.contains(&leader) && self.owner(leader) == self.me {
            self.search(cx);
        }
    }

    fn restart_if_all_have_answered(&mut self, cx: &mut Cx<'_, Self>) {
        let Some(Census { missing, found }) = &self.recovery.asked else { return };
        let Some(slots) = self.parts.get(&self.me).and_then(|own| own.peer.tokens_in_all()) else { return };
        if !missing.is_empty() {
            return;
        }
        let has_grant = |peer: PeerId| found.iter().any(|&(other, _)| other == peer);
        // It has no grant, so that each returning holder finds only the token of its own slot.
        let home =
            self.ring.from(self.me).find(|&peer| !self.failed.contains(&peer) && !has_grant(peer)).unwrap_or(self.me);
        let holder = |slot: usize| found.iter().find(|(_, grant)| grant.slot as usize == slot).map(|&(peer, _)| peer);
        let tokens = (0..slots).map(|slot| holder(slot).unwrap_or(home)).collect();
        let layout = Layout { root: home, tokens };
        let epoch = self.recovery.epoch();
        for other in self.ring.from(self.me).filter(|peer| *peer != self.me && !self.failed.contains(peer)) {
            cx.send(other, Message::Fresh { epoch, layout: layout.clone() });
        }
        self.restart(&layout, cx);
    }

    fn restart(&mut self, layout: &Layout, cx: &mut Cx<'_, Self>) {
        let Some(own) = self.parts.get(&self.me).map(|own| own.peer.clone()) else { return };
        let retained: Vec<PeerId> = self.ring.from(self.me).filter(|peer| !self.failed.contains(peer)).collect();
        let is_recorded = |whose: &PeerId| *whose == self.me || self.backups(*whose).any(|backup| backup == self.me);
        let retained: Vec<PeerId> = retained.into_iter().filter(is_recorded).collect();
        self.parts = retained.iter().map(|&whose| (whose, Part::new(own.fresh(whose, layout)))).collect();
        (self.recovery.stopped, self.recovery.asked) = (false, None);
        let tokens_here = layout.tokens.iter().filter(|&&peer| peer == self.me).count();
        let holders: Vec<Ticket> = self.recovery.grants.iter().map(|&(ticket, _)| ticket).collect();
        self.recovery.returning = holders.clone();
        debug_assert!(tokens_here >= holders.len(), "each holder has its token");
        let waiting = core::mem::take(&mut self.recovery.waiting);
        for ticket in holders.into_iter().chain(waiting) {
            self.act(self.me, Input::Request(ticket), cx);
        }
    }
}
