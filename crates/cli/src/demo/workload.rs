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

#[derive(Clone)]
pub struct Workload {
    pub plan: Plan,
    pub many: watch::Receiver<u16>,
}

#[derive(Clone)]
pub struct Plan {
    pub names: Arc<[String]>,
    pub hold: Span,
    pub think: Span,
    pub grants: Arc<AtomicU64>,
}

impl Workload {
    pub async fn live(mut self, service: &Service, number: usize) {
        let (mut clients, mut all) = (JoinSet::new(), Vec::new());
        loop {
            let many = usize::from(*self.many.borrow_and_update());
            while all.len() < many {
                let label = format!("job {number}.{}", all.len() + 1);
                all.push(clients.spawn(request_and_release(service.clone(), label, self.plan.clone())));
            }
            // Surplus clients withdraw or release immediately.
            all.drain(many..).for_each(|client| client.abort());
            if self.many.changed().await.is_err() {
                return;
            }
        }
    }
}

async fn request_and_release(service: Service, label: String, plan: Plan) {
    let mut rng = Rng::new(service.me().get() ^ Key::of(label.as_bytes()).get() as u64);
    let pause = |rng: &mut Rng, mean| sleep(Duration::from_nanos(rng.exponential(mean).as_nanos()));
    loop {
        pause(&mut rng, plan.think).await;
        let name = &*plan.names[(rng.below(plan.names.len() as u64 + 1) as usize).saturating_sub(1)];
        match service.acquire(Request::new(name).label(&*label)).await {
            Ok(grant) => {
                plan.grants.fetch_add(1, Ordering::Relaxed);
                tokio::select! {
                    () = pause(&mut rng, plan.hold) => {}
                    () = grant.lost() => {}
                }
                _ = grant.release().await;
            }
            Err(peerlock::Error::Stopped) => return,
            // There is no session, which the page shows. Retries after a pause.
            Err(_) => {}
        }
    }
}
