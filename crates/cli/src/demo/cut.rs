//! A network from which a peer can be disconnected.

use std::collections::BTreeMap;

use peerlock_service::PeerId;
use peerlock_service::transport::{Event, Parting, Transport};
use tokio::sync::watch;

/// A transport that drops everything while its peer is cut off. Existing connections end when that begins, and new ones
/// are closed without an event. Afterwards the peers reconnect as after any failure.
pub struct Cuttable<T> {
    inner: T,
    cut: watch::Receiver<bool>,
    up: BTreeMap<PeerId, u64>,
}

impl<T: Transport> Cuttable<T> {
    pub fn new(inner: T, cut: watch::Receiver<bool>) -> Self {
        Self { inner, cut, up: BTreeMap::new() }
    }

    fn pass(&mut self, event: Event) -> Option<Event> {
        match &event {
            Event::Up { peer, epoch, .. } if *self.cut.borrow() => {
                self.inner.hang_up(*peer, *epoch, Parting::Broken);
                return None;
            }
            Event::Up { peer, epoch, .. } => _ = self.up.insert(*peer, *epoch),
            Event::Down { peer, epoch, .. } => {
                self.up.get(peer).filter(|known| *known == epoch)?;
                self.up.remove(peer);
            }
            Event::Message { from, epoch, .. } => _ = self.up.get(from).filter(|known| *known == epoch)?,
            Event::Unreached { .. } => {}
        }
        Some(event)
    }
}

impl<T: Transport> Transport for Cuttable<T> {
    fn me(&self) -> PeerId {
        self.inner.me()
    }

    fn addresses(&self) -> Vec<String> {
        self.inner.addresses()
    }

    fn dial(&mut self, address: &str) {
        self.inner.dial(address);
    }

    fn forget(&mut self, address: &str) {
        self.inner.forget(address);
    }

    fn send(&mut self, to: PeerId, epoch: u64, bytes: Vec<u8>) {
        if !*self.cut.borrow() {
            self.inner.send(to, epoch, bytes);
        }
    }

    fn hang_up(&mut self, peer: PeerId, epoch: u64, why: Parting) {
        self.inner.hang_up(peer, epoch, why);
    }

    fn unauthenticated(&self) -> u64 {
        self.inner.unauthenticated()
    }

    async fn next(&mut self) -> Option<Event> {
        loop {
            if *self.cut.borrow_and_update()
                && let Some((peer, epoch)) = self.up.pop_first()
            {
                self.inner.hang_up(peer, epoch, Parting::Broken);
                return Some(Event::Down { peer, epoch, why: "this peer is cut off".to_owned() });
            }
            tokio::select! {
                // The peer receives the end of its connections before any other event.
                biased;
                Ok(()) = self.cut.changed() => {}
                event = self.inner.next() => {
                    if let Some(passed) = self.pass(event?) {
                        return Some(passed);
                    }
                }
            }
        }
    }

    async fn stop(self) {
        self.inner.stop().await;
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use peerlock_service::memory::Network;
    use tokio::time::timeout;

    use super::*;

    async fn next(one: &mut impl Transport) -> String {
        match one.next().await.expect("the network exists") {
            Event::Up { peer, .. } => format!("up {peer}"),
            Event::Down { peer, .. } => format!("down {peer}"),
            Event::Message { bytes, .. } => format!("message {bytes:?}"),
            Event::Unreached { .. } => "unreached".to_owned(),
        }
    }

    #[tokio::test(start_paused = true)]
    async fn messages_while_cut_off_are_lost() {
        let network = Network::new(1);
        network.delay(Duration::from_millis(1), Duration::from_millis(1));
        let (cut, is_cut) = watch::channel(false);
        let mut one = Cuttable::new(network.endpoint(PeerId::new(1)), is_cut);
        let mut two = network.endpoint(PeerId::new(2));
        one.dial(&Network::address(PeerId::new(2)));
        assert_eq!((next(&mut one).await, next(&mut two).await), ("up 2".to_owned(), "up 1".to_owned()));
        one.send(PeerId::new(2), 1, vec![1]);
        assert_eq!(next(&mut two).await, "message [1]");

        two.send(PeerId::new(1), 1, vec![2]);
        cut.send_replace(true);
        one.send(PeerId::new(2), 1, vec![3]);
        assert_eq!(next(&mut one).await, "down 2");
        // Meanwhile connections are attempted in vain.
        assert!(timeout(Duration::from_secs(1), next(&mut one)).await.is_err());
        cut.send_replace(false);
        assert_eq!(next(&mut one).await, "up 2", "and no earlier message");
        one.send(PeerId::new(2), one.up[&PeerId::new(2)], vec![4]);
        let mut received = Vec::new();
        while !received.ends_with(&["message [4]".to_owned()]) {
            received.push(next(&mut two).await);
        }
        assert!(!received.contains(&"message [3]".to_owned()), "{received:?}");
    }
}
