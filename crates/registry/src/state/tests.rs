mod detached;
mod resources;
mod sessions;

use super::*;
use crate::command::{Incarnation, Opening};

const N: u64 = 1 << 32;

fn label(text: &str) -> Label {
    Label::new(text).unwrap()
}

fn ttl() -> Ttl {
    Ttl::from_millis(15_000).unwrap()
}

fn info(max: u16, keeps: bool) -> Info {
    Info { name: label("host"), addresses: Vec::new(), versions: Versions { min: 1, max }, keeps }
}

fn open(host: u64, process: u64, replaces: Option<SessionId>) -> Command {
    opening(host, (process, 0), replaces)
}

fn opening(host: u64, (process, opening): (u64, u64), replaces: Option<SessionId>) -> Command {
    let incarnation = Incarnation { process, opening };
    Command::Open {
        host: PeerId::new(host),
        nonce: 100 * process + opening,
        incarnation,
        ttl: ttl(),
        info: info(1, true),
        voter: None,
        replaces,
        takes: Vec::new(),
    }
}

/// Makes an `Open` take over `r` and an unknown resource.
fn taking(open: Command) -> Command {
    let Command::Open { host, nonce, incarnation, ttl, info, voter, replaces, .. } = open else { panic!("{open:?}") };
    let takes = vec![label("r"), label("unknown")];
    Command::Open { host, nonce, incarnation, ttl, info, voter, replaces, takes }
}

fn take_over(process: u64, replaces: SessionId) -> Command {
    taking(open(1, process, Some(replaces)))
}

fn join(session: SessionId) -> Command {
    Command::Join { session, resource: label("r"), slots: 2 }
}

fn resize(slots: u32, generation: u64) -> Command {
    Command::Resize { resource: label("r"), slots, generation }
}

fn evict(session: SessionId, since: u64) -> Command {
    Command::Evict { resource: label("r"), session, since }
}

fn take_back(fencing: u64, session: SessionId) -> Command {
    Command::TakeBack { resource: label("r"), fencing, session }
}

fn voter_records(hosts: &[u64], after: u64) -> Command {
    Command::SetVoters { hosts: Some(hosts.iter().copied().map(PeerId::new).collect()), after }
}

fn end(sessions: &[SessionId]) -> Command {
    Command::End { sessions: sessions.to_vec(), term: 1 }
}

fn detach(session: SessionId, fencing: u64) -> Command {
    Command::Detach { session, resource: label("r"), slot: 0, fencing, ttl: ttl(), note: label("note"), run: None }
}

/// Hosts 1 to 3 with sessions 1 to 3, all parties of `r`.
fn three() -> (State, [SessionId; 3]) {
    let mut state = State::found(ClusterId::new(1), PeerId::new(1), info(1, true));
    let sessions = [1, 2, 3].map(SessionId::new);
    for (host, session) in (1..).zip(sessions) {
        assert_eq!(state.apply(1, open(host, host, None)), Outcome::Opened { session });
        state.apply(1, join(session));
    }
    (state, sessions)
}

fn resource(state: &State) -> &Resource {
    &state.resources()[&label("r")]
}

fn quit(session: SessionId, generation: u64) -> Command {
    Command::Quit { session, resource: label("r"), generation }
}

fn remove(generation: u64) -> Command {
    Command::Remove { resource: label("r"), generation }
}

/// `r` has no parties, and generation 4.
fn left() -> (State, [SessionId; 3]) {
    let (mut state, sessions) = three();
    for (session, generation) in sessions.into_iter().zip(1..) {
        assert!(matches!(state.apply(1, quit(session, generation)), Outcome::Advanced(_)));
    }
    (state, sessions)
}

fn pending_events(state: &State) -> Vec<(SessionId, u64, Topic)> {
    state.with_events(None).flat_map(|(_, resource)| resource.pending_events()).collect()
}

fn close(session: SessionId, generation: u64, remaining: &[SessionId]) -> Command {
    Command::Close { session, resource: label("r"), generation, remaining: remaining.to_vec() }
}

fn drop_detached(session: SessionId, fencing: u64) -> Command {
    Command::DropDetached { session, resource: label("r"), fencing }
}
