//! A lock that is held and renewed until its process is killed.

use std::time::Duration;

use peerlock::{Grant, Request};
use tokio::task::AbortHandle;
use tokio::time::sleep;

use crate::system::{Failure, System};
use crate::{etcd, redis};

/// The interval of lock attempts in Redis, which has no queue.
const ASK_AGAIN: Duration = Duration::from_millis(10);

/// A held lock. On drop, ours is released at once, the others' when the lease expires.
#[expect(clippy::large_enum_variant, reason = "one at a time")]
pub enum HeldGrant {
    Peerlock(#[expect(dead_code, reason = "held until it is dropped")] Grant),
    Server(AbortHandle),
}

impl Drop for HeldGrant {
    fn drop(&mut self) {
        if let Self::Server(renewals) = self {
            renewals.abort();
        }
    }
}

/// Waits for the lock, then renews it three times per lease.
pub async fn acquire(system: &System, name: &str, lease: Duration) -> Result<HeldGrant, Failure> {
    Ok(match system {
        System::Peer(peer) => HeldGrant::Peerlock(peer.client().acquire(Request::new(name).ttl(lease)).await?),
        System::Etcd(address) => {
            let mut client = etcd::Client::connect(*address, name, lease).await?;
            // Renewals need a connection of their own while the request waits.
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
            HeldGrant::Server(renewals.abort_handle())
        }
        System::Redis(address) => {
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
            HeldGrant::Server(renewals.abort_handle())
        }
        System::Agent(_) | System::ZooKeeper(_) => return Err("recovery is not measured here".into()),
    })
}
