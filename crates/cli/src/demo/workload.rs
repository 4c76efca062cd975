//! The clients of a demo's peer.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use peerlock::Request;
use peerlock_service::Service;
use peerlock_types::{Key, Rng, Span};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::sleep;

/// What the clients of each peer do, and how many they are.
#[derive(Clone)]
pub struct Workload {
    pub plan: Plan,
    pub many: watch::Receiver<u16>,
}

/// What a client does.
#[derive(Clone)]
pub struct Plan {
    pub names: Arc<[String]>,
    pub hold: Span,
    pub think: Span,
    /// How often somebody has come in.
    pub entries: Arc<AtomicU64>,
}

impl Workload {
    /// As many clients as there should be, until nobody says so any more.
    pub async fn live(mut self, service: &Service, number: usize) {
        let (mut clients, mut all) = (JoinSet::new(), Vec::new());
        loop {
            let many = usize::from(*self.many.borrow_and_update());
            while all.len() < many {
                let label = format!("job {number}.{}", all.len() + 1);
                all.push(clients.spawn(come_and_go(service.clone(), label, self.plan.clone())));
            }
            // The last ones leave whatever they have or wait for.
            all.drain(many..).for_each(|client| client.abort());
            if self.many.changed().await.is_err() {
                return;
            }
        }
    }
}

/// One client: thinks, asks, stays inside, leaves, and thinks again, until its peer stops.
async fn come_and_go(service: Service, label: String, plan: Plan) {
    let mut rng = Rng::new(service.me().get() ^ Key::of(label.as_bytes()).get() as u64);
    let pause = |rng: &mut Rng, mean| sleep(Duration::from_nanos(rng.exponential(mean).as_nanos()));
    loop {
        pause(&mut rng, plan.think).await;
        // The first is wanted more often than the others, so that its line is worth watching.
        let name = &*plan.names[(rng.below(plan.names.len() as u64 + 1) as usize).saturating_sub(1)];
        match service.acquire(Request::new(name).label(&*label)).await {
            Ok(grant) => {
                plan.entries.fetch_add(1, Ordering::Relaxed);
                tokio::select! {
                    () = pause(&mut rng, plan.hold) => {}
                    // Its peer was cut off or frozen: it stops, and others come in.
                    () = grant.lost() => {}
                }
                _ = grant.release().await;
            }
            Err(peerlock::Error::Stopped) => return,
            // Its peer has no session. The page shows that, and the client thinks and asks again.
            Err(_) => {}
        }
    }
}
