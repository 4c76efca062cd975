//! A lock held under a lease as long as its process lives: `recovery.rs` kills the process.

use std::time::Duration;

use peerlock::{Grant, Request};
use tokio::task::AbortHandle;
use tokio::time::sleep;

use crate::door::{Failure, Place};
use crate::{etcd, redis};

/// The interval of Redis lock attempts; it has no queue.
const ASK_AGAIN: Duration = Duration::from_millis(10);

/// A held lock. Dropping it releases ours at once, the others' when their lease expires.
#[expect(clippy::large_enum_variant, reason = "there is one at a time")]
pub enum HeldGrant {
    Ours(#[expect(dead_code, reason = "held until it is dropped")] Grant),
    Theirs(AbortHandle),
}

impl Drop for HeldGrant {
    fn drop(&mut self) {
        if let Self::Theirs(renewals) = self {
            renewals.abort();
        }
    }
}

/// Waits for the lock, then renews it three times per lease.
pub async fn take(place: &Place, name: &str, lease: Duration) -> Result<HeldGrant, Failure> {
    Ok(match place {
        Place::Peer(peer) => HeldGrant::Ours(peer.client().acquire(Request::new(name).ttl(lease)).await?),
        Place::Etcd(address) => {
            let mut client = etcd::Client::connect(*address, name, lease).await?;
            // The lease must be renewed while the request waits on its own connection.
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
            HeldGrant::Theirs(renewals.abort_handle())
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
            HeldGrant::Theirs(renewals.abort_handle())
        }
        Place::Agent(_) | Place::ZooKeeper(_) => return Err("nobody is killed there".into()),
    })
}
