//! Pending messages without effect, which an exploration need not deliver.

use super::client::Client;
use super::message::Message;
use super::replica::Replica;
use super::{Common, Sigma};
use crate::UnderWay;

/// See [`crate::Observe::is_void`]; `explore/tests/sigma` checks this reduction.
///
/// - *RESPONSE.* Its client has finished; or knows a later grant, and does not record it; or holds, and does not read
///   it, unless it has yielded that grant ([`Client::is_settled`]).
/// - *RELEASE.* The replica does not know the client and, without a pending REQUEST or YIELD, will not learn of it; or
///   another copy is pending.
/// - *INQUIRE.* A settled holder ignores it. A finished client answers with a copy of its RELEASE.
pub(super) fn is_void(receiver: &Sigma, in_flight: UnderWay<'_, Sigma>) -> bool {
    let UnderWay { message, sender, mut others, is_calm } = in_flight;
    let Common { config, clock, fencing, .. } = &receiver.common;
    match *message {
        Message::Response { replica, to, number, clock: now, fencing: level, .. } => {
            let is_old =
                |client: &Client| config.numbered_grants && level <= *fencing && client.is_old(replica, number);
            let client = receiver.client(to).map(|at| &receiver.clients[at]);
            now <= *clock && client.map_or(config.requests_apart, is_old)
        }
        _ if !is_calm || !config.requests_apart => false,
        Message::Release { .. } => is_redundant(message, others, &receiver.replicas),
        Message::Inquire { replica, owner, .. } => {
            let answer = Message::Release { replica, client: owner, fencing: *fencing };
            match &*receiver.clients {
                [] => is_redundant(&answer, others, &sender.replicas),
                [client] if client.stamp == owner => {
                    client.is_settled(replica) && !Iterator::any(&mut others, |other| claims(other, &answer))
                }
                _ => false,
            }
        }
        Message::Request { .. } | Message::Yield { .. } => false,
    }
}

fn is_redundant(release: &Message, others: &mut dyn Iterator<Item = &Message>, replicas: &[Replica]) -> bool {
    let mut is_copy = false;
    for other in others {
        if claims(other, release) {
            return false;
        }
        is_copy |= other == release;
    }
    is_copy || replicas.iter().all(|replica| replica.has_done(release))
}

/// Returns whether `message` queues the client that `release` removes.
fn claims(message: &Message, release: &Message) -> bool {
    match (*message, *release) {
        (
            Message::Request { replica, client, .. } | Message::Yield { replica, client, .. },
            Message::Release { replica: at, client: released, .. },
        ) => (replica, client) == (at, released),
        _ => false,
    }
}
