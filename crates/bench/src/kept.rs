//! A lock that is held under a lease for as long as its process lives: what `recovery.rs` kills.

use std::time::Duration;

use peerlock::{Grant, Request};
use tokio::task::AbortHandle;
use tokio::time::sleep;

use crate::door::{Failure, Place};
use crate::{etcd, redis};

/// How often Redis is asked whether a lock is free: it has no line to wait in.
const ASK_AGAIN: Duration = Duration::from_millis(10);

/// A lock that is held. Dropping it gives it up: ours at once, the others' when their lease has run out.
#[expect(clippy::large_enum_variant, reason = "there is one at a time")]
pub enum Kept {
    Ours(#[expect(dead_code, reason = "held until it is dropped")] Grant),
    Theirs(AbortHandle),
}

impl Drop for Kept {
    fn drop(&mut self) {
        if let Self::Theirs(renewals) = self {
            renewals.abort();
        }
    }
}

/// Waits until it is held, and renews it from then on, three times as often as it must.
pub async fn take(place: &Place, name: &str, lease: Duration) -> Result<Kept, Failure> {
    Ok(match place {
        Place::Peer(peer) => Kept::Ours(peer.client().acquire(Request::new(name).ttl(lease)).await?),
        Place::Etcd(address) => {
            let mut client = etcd::Client::connect(*address, name, lease).await?;
            // The lease must stand while it waits, and the connection waits with it.
            let mut renewals = etcd::Client::of_lease(*address, client.lease()).await?;
            let renewals = tokio::spawn(async move {
                loop {
                    sleep(lease / 3).await;
                    renewals.keep_alive().await?;
                }
                #[expect(unreachable_code, reason = "says what `?` returns")]
                Ok::<(), Failure>(())
            });
            client.lock().await?;
            Kept::Theirs(renewals.abort_handle())
        }
        Place::Redis(address) => {
            let mut client = redis::Client::connect(*address, name).await?;
            while !client.lock(lease).await? {
                sleep(ASK_AGAIN).await;
            }
            let renewals = tokio::spawn(async move {
                loop {
                    sleep(lease / 3).await;
                    client.extend(lease).await?;
                }
                #[expect(unreachable_code, reason = "says what `?` returns")]
                Ok::<(), Failure>(())
            });
            Kept::Theirs(renewals.abort_handle())
        }
        Place::Agent(_) | Place::ZooKeeper(_) => return Err("nobody is killed there".into()),
    })
}
