//! Transfers a snapshot longer than a message. The engine repeats a snapshot until it is answered, which sends the
//! unconfirmed piece again.
//!
//! ```text
//!   leader ──Piece 0──► follower      each is sent when the previous one has arrived
//!          ◄─Had 256k──
//!          ──Piece 256k►
//!          ◄─Had all───               the engine receives the whole as one message
//! ```

use std::collections::BTreeMap;

use peerlock_types::PeerId;

use super::Registry;
use crate::VoterId;
use crate::form::{Message, Snapshot};
use crate::wire::{MOST_SNAPSHOT, RegistryMessage};

const PIECE: usize = 256 << 10;
/// Unanswered repetitions until the transfer restarts with a newer snapshot.
const PATIENCE: u32 = 16;

#[derive(Default)]
pub(super) struct Pieces {
    going: BTreeMap<VoterId, Going>,
    coming: Option<Coming>,
}

struct Going {
    message: Message,
    /// Received by the follower.
    had: usize,
    /// By the engine, since then.
    repeated: u32,
}

struct Coming {
    from: VoterId,
    term: u64,
    index: u64,
    state: Vec<u8>,
}

impl Pieces {
    pub(super) fn retained(&self) -> usize {
        self.coming.as_ref().map_or(0, |coming| coming.state.len())
    }
}

fn snapshot_of(message: &Message) -> Option<&Snapshot> {
    message.snapshot.as_ref()
}

impl Registry {
    /// Returns whether the message has a long snapshot.
    pub(super) fn sends_in_pieces(&mut self, message: &Message, host: PeerId) -> bool {
        let Some(snapshot) = snapshot_of(message).filter(|snapshot| snapshot.state.len() > PIECE) else {
            return false;
        };
        let engine = &self.engine;
        let is_new = |going: &Going| {
            let under_way = snapshot_of(&going.message).map(|it| (it.index, it.term));
            let has_come = under_way.is_some_and(|(index, _)| engine.has(message.to, index));
            going.message.term != message.term
                || under_way != Some((snapshot.index, snapshot.term)) && (has_come || going.repeated >= PATIENCE)
        };
        match self.pieces.going.get_mut(&message.to).filter(|going| !is_new(going)) {
            Some(going) => going.repeated += 1,
            None => {
                let going = Going { message: message.clone(), had: 0, repeated: 0 };
                self.pieces.going.insert(message.to, going);
            }
        }
        self.send_piece(message.to, host);
        true
    }

    fn send_piece(&mut self, to: VoterId, host: PeerId) {
        let Some(Going { message, had, .. }) = self.pieces.going.get(&to) else { return };
        let Some(snapshot) = snapshot_of(message) else { return };
        let (at, all) = (*had, snapshot.state.len());
        let state = snapshot.state[at..all.min(at + PIECE)].to_vec();
        let piece = Message { snapshot: Some(Snapshot { state, ..*snapshot }), ..message.without_snapshot() };
        self.send(host, RegistryMessage::Piece { message: Box::new(piece), at: at as u32, all: all as u32 });
    }

    /// Returns the whole message after the last piece. A piece that does not continue the received bytes is answered
    /// with their number.
    pub(super) fn on_piece(&mut self, from: PeerId, message: Message, at: u32, all: u32) -> Option<Message> {
        let (voter, term) = (message.from, message.term);
        let rest = message.without_snapshot();
        let Snapshot { index, term: snapshot_term, state } = message.snapshot?;
        let is_it = |coming: &Coming| (coming.from, coming.term, coming.index) == (voter, term, index);
        if self.pieces.coming.as_ref().is_none_or(|coming| !is_it(coming)) {
            if at > 0 {
                self.send(from, RegistryMessage::Had { from: rest.to, to: voter, index, bytes: 0 });
                return None;
            }
            self.pieces.coming = Some(Coming { from: voter, term, index, state: Vec::new() });
        }
        let coming = self.pieces.coming.as_mut()?;
        if coming.state.len() == at as usize && coming.state.len() + state.len() <= MOST_SNAPSHOT {
            coming.state.extend(state);
        }
        let bytes = coming.state.len() as u32;
        if bytes == all {
            let state = self.pieces.coming.take().map(|coming| coming.state).unwrap_or_default();
            return Some(Message { snapshot: Some(Snapshot { index, term: snapshot_term, state }), ..rest });
        }
        self.send(from, RegistryMessage::Had { from: rest.to, to: voter, index, bytes });
        None
    }

    pub(super) fn on_had(&mut self, from: PeerId, voter: VoterId, index: u64, bytes: u32) {
        if self.state.voter_records().get(&voter).is_none_or(|voter_record| voter_record.host != from) {
            return;
        }
        let Some(going) = self.pieces.going.get_mut(&voter) else { return };
        let all = snapshot_of(&going.message).filter(|it| it.index == index).map_or(0, |it| it.state.len());
        let bytes = bytes as usize;
        // A repeated acknowledgement would start another stream of pieces.
        if bytes < all && bytes != going.had {
            (going.had, going.repeated) = (bytes, 0);
            self.send_piece(voter, from);
        }
    }

    /// Drops completed transfers, and those of other terms or of removed voters.
    pub(super) fn forget_pieces(&mut self) {
        let (pieces, engine, leads) = (&mut self.pieces, &self.engine, self.engine.is_leader());
        pieces.going.retain(|voter, _| leads && engine.wants_snapshot_at(*voter));
        pieces.coming.take_if(|it| engine.leader() != Some(it.from) || engine.term() != it.term);
    }
}
