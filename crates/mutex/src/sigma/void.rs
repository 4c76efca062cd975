//! Messages under way that can do nothing any more: for whoever tries all orders, and need not wait for them.
//!
//! Time is taken to stand still, as it does there, so that leases are of no account.

use super::client::Client;
use super::message::Message;
use super::replica::Replica;
use super::{Common, Sigma};
use crate::UnderWay;

/// See [`crate::Observe::is_void`]. For 2 of 3 votes and two clients it leaves 3,686 of 97,897 states, where replicas
/// are taken to be alike; `explore/tests/sigma` tries out whether each of those can do what all that it stands for can.
///
/// - *RESPONSE.* A client that has finished is gone, and nobody hears it (`Sigma::deliver`). One that knows of a later
///   grant does not write it down (`Client::record`). One that is inside writes it down and never looks at it again,
///   unless it tells of a grant that it has yielded ([`Client::is_settled`]).
/// - *RELEASE.* A replica that does not know the client has nothing to do. If no REQUEST or YIELD of that client is
///   under way it will not get to know it either, since only those who wait ask, and those inside who yield are not
///   settled. The same holds for the second of two copies, when the first has come.
/// - *INQUIRE.* A client that is inside and settled does nothing. One that has finished answers with a copy of its
///   RELEASE, which is void in most cases. It is not if the RELEASE itself has overtaken the REQUEST.
pub(super) fn is_void(receiver: &Sigma, letter: UnderWay<'_, Sigma>) -> bool {
    let UnderWay { message, sender, mut others, is_calm } = letter;
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

/// Whether a RELEASE finds nothing to do where it goes, or is the second of two copies.
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

/// Whether `message` makes a replica queue the client that `release` takes out there.
fn claims(message: &Message, release: &Message) -> bool {
    match (*message, *release) {
        (
            Message::Request { replica, client, .. } | Message::Yield { replica, client, .. },
            Message::Release { replica: at, client: released, .. },
        ) => (replica, client) == (at, released),
        _ => false,
    }
}
