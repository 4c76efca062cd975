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
/// Unanswered repetitions before a newer snapshot replaces this one.
const PATIENCE: u32 = 16;

#[derive(Default)]
pub(super) struct Pieces {
    outgoing: BTreeMap<VoterId, Outgoing>,
    incoming: Option<Incoming>,
}

struct Outgoing {
    /// Without the snapshot.
    message: Message,
    snapshot: Snapshot,
    /// Bytes that the follower has.
    received: usize,
    /// Repetitions by the engine since then.
    repeated: u32,
}

struct Incoming {
    from: VoterId,
    term: u64,
    index: u64,
    state: Vec<u8>,
}

impl Pieces {
    pub(super) fn retained(&self) -> usize {
        self.incoming.as_ref().map_or(0, |incoming| incoming.state.len())
    }
}

impl Registry {
    /// Sends the next piece of a long snapshot. Returns any other message.
    pub(super) fn send_in_pieces(&mut self, mut message: Message, host: PeerId) -> Option<Message> {
        let Some(snapshot) = message.snapshot.take_if(|snapshot| snapshot.state.len() > PIECE) else {
            return Some(message);
        };
        let (to, engine) = (message.to, &self.engine);
        let continues = |it: &Outgoing| {
            let is_same = (it.snapshot.index, it.snapshot.term) == (snapshot.index, snapshot.term);
            it.message.term == message.term && (is_same || it.repeated < PATIENCE && !engine.has(to, it.snapshot.index))
        };
        match self.pieces.outgoing.get_mut(&to).filter(|it| continues(it)) {
            Some(outgoing) => outgoing.repeated += 1,
            None => {
                let outgoing = Outgoing { message, snapshot, received: 0, repeated: 0 };
                self.pieces.outgoing.insert(to, outgoing);
            }
        }
        self.send_piece(to, host);
        None
    }

    fn send_piece(&mut self, to: VoterId, host: PeerId) {
        let Some(Outgoing { message, snapshot, received, .. }) = self.pieces.outgoing.get(&to) else { return };
        let (at, all) = (*received, snapshot.state.len());
        let state = snapshot.state[at..all.min(at + PIECE)].to_vec();
        let piece = Message { snapshot: Some(Snapshot { state, ..*snapshot }), ..message.clone() };
        self.send(host, RegistryMessage::Piece { message: Box::new(piece), at: at as u32, all: all as u32 });
    }

    /// Returns the whole message after the last piece. A piece that does not continue the received bytes is answered
    /// with their number.
    pub(super) fn on_piece(&mut self, from: PeerId, mut message: Message, at: u32, all: u32) -> Option<Message> {
        let piece = message.snapshot.take()?;
        let (voter, term, index) = (message.from, message.term, piece.index);
        let had = |bytes| RegistryMessage::Had { from: message.to, to: voter, index, bytes };
        let is_it = |it: &Incoming| (it.from, it.term, it.index) == (voter, term, index);
        if !self.pieces.incoming.as_ref().is_some_and(is_it) {
            if at > 0 {
                self.send(from, had(0));
                return None;
            }
            self.pieces.incoming = Some(Incoming { from: voter, term, index, state: Vec::new() });
        }
        let incoming = self.pieces.incoming.as_mut()?;
        if incoming.state.len() == at as usize && incoming.state.len() + piece.state.len() <= MOST_SNAPSHOT {
            incoming.state.extend(piece.state);
        }
        let bytes = incoming.state.len() as u32;
        if bytes != all {
            self.send(from, had(bytes));
            return None;
        }
        let state = self.pieces.incoming.take().map(|incoming| incoming.state).unwrap_or_default();
        message.snapshot = Some(Snapshot { state, ..piece });
        Some(message)
    }

    pub(super) fn on_had(&mut self, from: PeerId, voter: VoterId, index: u64, bytes: u32) {
        if self.state.voter_records().get(&voter).is_none_or(|voter_record| voter_record.host != from) {
            return;
        }
        let Some(outgoing) = self.pieces.outgoing.get_mut(&voter).filter(|it| it.snapshot.index == index) else {
            return;
        };
        let bytes = bytes as usize;
        // A repeated acknowledgement would start another stream of pieces.
        if bytes < outgoing.snapshot.state.len() && bytes != outgoing.received {
            (outgoing.received, outgoing.repeated) = (bytes, 0);
            self.send_piece(voter, from);
        }
    }

    /// Drops completed transfers, and those of other terms or of removed voters.
    pub(super) fn forget_pieces(&mut self) {
        let (pieces, engine, leads) = (&mut self.pieces, &self.engine, self.engine.is_leader());
        pieces.outgoing.retain(|voter, _| leads && engine.wants_snapshot_at(*voter));
        pieces.incoming.take_if(|it| engine.leader() != Some(it.from) || engine.term() != it.term);
    }
}
