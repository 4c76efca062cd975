//! Joining, both sides of the census, and the coordinator's actions.

use alloc::boxed::Box;
use alloc::vec::Vec;

use peerlock_types::PeerId;

use super::census::Census;
use super::keeper::Keeper;
use super::{Answer, Body, Custody, Early, Report, Role, Rule, Stage, Timer};
use crate::Cx;
use crate::holder::Held;
use crate::queue::{Binding, Update};
use crate::registry::{RegistryRequest, Session};
use crate::token::Token;

impl Custody {
    pub(super) fn on_joined(&mut self, generation: u64, coordinator: PeerId, slots: u32, cx: &mut Cx<'_, Self>) {
        // A party learns of a generation from its census, and one that quits from the answer to `Quit` (R10).
        if matches!(self.stage, Stage::Party | Stage::Leaving) {
            return;
        }
        self.stage = Stage::Party;
        (self.coordinator, self.slots) = (coordinator, slots);
        // R4.
        self.generation = if self.keeps(Rule::JoinAhead) { generation } else { self.generation.max(1) };
        for at in 0..self.waiting.len() {
            let (ticket, arrival) = self.waiting[at];
            self.announce_request(ticket, arrival, cx);
        }
    }

    /// R10. `Quit` for this generation is not answered yet.
    fn gives_up(&self, generation: u64) -> bool {
        self.stage == Stage::Leaving && generation == self.generation && self.keeps(Rule::GiveUpLasts)
    }

    pub(super) fn on_opened(&mut self, generation: u64, slots: u32, census: Census, cx: &mut Cx<'_, Self>) {
        if generation < self.generation || generation <= self.answered || self.gives_up(generation) {
            return;
        }
        // The coordinator replies like every party before it takes the role.
        self.on_census(self.me.peer, generation, self.me, slots, cx);
        let others: Vec<Session> = census.asked().iter().copied().filter(|session| *session != self.me).collect();
        self.role = Some(Box::new(Role::Counting(census)));
        for session in others {
            self.post(session.peer, Body::Census { session, slots }, cx);
        }
    }

    pub(super) fn on_census(
        &mut self,
        from: PeerId,
        generation: u64,
        session: Session,
        slots: u32,
        cx: &mut Cx<'_, Self>,
    ) {
        // R6.
        if !self.is_me(session) || generation < self.generation || generation <= self.answered {
            return;
        }
        // R10. This session must not take part in a generation that it has given up; its clients request after the
        // answer.
        if self.gives_up(generation) {
            self.answered = generation;
            let (tokens, waiting) = <_>::default();
            return self.post(from, Body::Answer(Answer { session: self.me, tokens, waiting }), cx);
        }
        // It has sent its requests in this generation, and stays a party whatever it replies.
        let has_joined = self.stage == Stage::Party && generation == self.generation;
        self.move_to(generation, from, slots, cx);
        self.answered = generation;
        let report = |held: &Held| Report { token: held.token, in_use: held.user.is_some() };
        let tokens = self.tokens.held.iter().map(report).collect();
        let waiting = if has_joined { Vec::new() } else { self.waiting.iter().copied().collect() };
        let answer = Answer { session: self.me, tokens, waiting };
        // R8.
        let is_nothing = answer.is_empty() && !has_joined && from != self.me.peer;
        let leaves = is_nothing && self.keeps(Rule::NothingLeaves);
        self.stage = if leaves { Stage::Outside } else { Stage::Party };
        self.post(from, Body::Answer(answer), cx);
    }

    /// R2. Keeps the tokens.
    pub(super) fn move_to(&mut self, generation: u64, coordinator: PeerId, slots: u32, cx: &mut Cx<'_, Self>) {
        (self.coordinator, self.slots) = (coordinator, slots);
        if let Some(Role::Keeping(keeper)) = self.role.take().as_deref()
            && keeper.is_timed()
        {
            cx.cancel_timer(Timer::Update);
        }
        self.generation = generation;
        self.early.retain(|&(early, ..)| early >= generation);
        self.tokens.held.retain(|held| held.user.is_some() || held.token.slot < slots);
        self.tokens.restart(!self.keeps(Rule::Forget), !self.keeps(Rule::NotOurs));
    }

    pub(super) fn on_answer(&mut self, generation: u64, answer: Answer, cx: &mut Cx<'_, Self>) {
        let (is_all, by_session) = (self.keeps(Rule::CountAll), self.keeps(Rule::BySession));
        let Some(Role::Counting(census)) = self.role.as_deref_mut() else { return };
        if generation != self.generation {
            return;
        }
        let session = answer.session;
        census.take(answer, |asked| *asked == session || !by_session && asked.peer == session.peer);
        // R3.
        if census.is_complete() || !is_all {
            self.count(cx);
        }
    }

    fn count(&mut self, cx: &mut Cx<'_, Self>) {
        let Some(Role::Counting(mut census)) = self.role.take().map(|role| *role) else { return };
        if !self.keeps(Rule::DetachedEnd) {
            census.forget_detached();
        }
        let mut count = census.count(self.slots);
        if !self.keeps(Rule::Youngest) {
            let report = |(peer, token)| (peer, Report { token, in_use: true });
            count.adopted.splice(0..0, count.void.drain(..).map(report));
        }
        self.role = Some(Box::new(Role::Keeping(Keeper::new(self.generation, self.slots, self.config, &count))));
        count.missing.iter().for_each(|&slot| self.make(slot, cx));
        for (peer, token) in count.void {
            match peer == self.me.peer {
                // At once: a later detached grant of the slot may have ended already, and then its token is created
                // below.
                true => self.on_void(token, cx),
                false => self.post(peer, Body::Void(token), cx),
            }
        }
        let mut remaining = count.remaining;
        if let Err(place) = remaining.binary_search(&self.me) {
            remaining.insert(place, self.me);
        }
        cx.registry_request(RegistryRequest::Close { generation: self.generation, remaining });
        for (generation, from, early) in core::mem::take(&mut self.early) {
            if generation == self.generation {
                self.note(early, cx);
            } else {
                self.early.push((generation, from, early));
            }
        }
        self.bind(cx);
    }

    /// Other peers need not know of it: the next census reports it like any other.
    fn make(&mut self, slot: u32, cx: &mut Cx<'_, Self>) {
        if self.tokens.place_of(slot).is_some() {
            return cx.unexpected("a token that the census has not counted is here");
        }
        let token = Token { slot, fencing: self.first_number(slot) };
        let mut held = Held::in_custody(token, None);
        held.is_ours = !self.keeps(Rule::NotOurs);
        self.tokens.held.push(held);
        if let Some(Role::Keeping(keeper)) = self.role.as_deref_mut() {
            keeper.add(token, self.me.peer);
        }
    }

    pub(super) fn on_early(&mut self, from: PeerId, generation: u64, early: Early, cx: &mut Cx<'_, Self>) {
        if self.is_void(generation) {
            return;
        }
        let is_later = generation > self.generation;
        match self.role.as_deref() {
            Some(Role::Keeping(_)) if !is_later => {
                self.note(early, cx);
                self.bind(cx);
            }
            // R9: this session may become the coordinator of that generation. R4: during the census, requests of
            // joining sessions are buffered.
            _ if is_later && !self.keeps(Rule::EarlyUpdate) => {}
            // This session replied to another coordinator. The sender may mean an earlier session of this host, whose
            // end opens a new generation.
            None if !is_later && self.answered == self.generation => {}
            _ => self.buffer_early(generation, from, early),
        }
    }

    /// A withdrawal removes its request: those of clients that retry during a long census must not accumulate.
    fn buffer_early(&mut self, generation: u64, from: PeerId, early: Early) {
        if let Early::Update(Update::Withdraw(claim)) = early {
            let is_request = |(of, _, early): &(u64, PeerId, Early)| {
                let Early::Update(Update::Request(it) | Update::RequestAgain(it, _)) = early else { return false };
                (*of, *it) == (generation, claim)
            };
            if let Some(at) = self.early.iter().rposition(is_request) {
                self.early.remove(at);
                return;
            }
        }
        self.early.push((generation, from, early));
    }

    fn note(&mut self, early: Early, cx: &mut Cx<'_, Self>) {
        let Some(Role::Keeping(keeper)) = self.role.as_deref_mut() else { return };
        match early {
            Early::Update(update) => {
                if let Err(why) = keeper.note(update) {
                    cx.unexpected(why);
                }
                // Its census sorts the queue.
                if !keeper.is_in_order {
                    self.renumber(cx);
                }
            }
            Early::Dropped { slot, stay } => keeper.drop_token(slot, stay),
            Early::Expired(detached) => {
                if keeper.expire(detached) {
                    self.make(detached.slot, cx);
                }
            }
        }
    }

    pub(super) fn bind(&mut self, cx: &mut Cx<'_, Self>) {
        let holds_back = self.keeps(Rule::HoldBack);
        while let Some(Role::Keeping(keeper)) = self.role.as_deref_mut()
            && let Some(Binding { at, slot, stay, following, replaces }) = keeper.bind(holds_back)
        {
            self.post(at, Body::Next { slot, stay, following, replaces }, cx);
        }
        let Some(Role::Keeping(keeper)) = self.role.as_deref_mut() else { return };
        match self.config.batch {
            Some(after) if keeper.needs_timer() => cx.set_timer(Timer::Update, after),
            Some(_) => {}
            None => self.send_arrivals(cx),
        }
    }

    pub(super) fn send_arrivals(&mut self, cx: &mut Cx<'_, Self>) {
        let Some(Role::Keeping(keeper)) = self.role.as_deref_mut() else { return };
        for (peer, arrivals) in keeper.announce() {
            self.post(peer, Body::Arrivals(arrivals), cx);
        }
    }
}
