//! Connection limits per listener and user.
//!
//! Every connection uses a file descriptor of the agent. Without free descriptors the agent could not serve its other
//! clients or write its journal, so each listener has its own limit. At a Unix socket, where the kernel identifies the
//! user, each user is limited to a share of it.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::oneshot;

#[derive(Debug)]
pub struct ConnectionLimit {
    most: usize,
    inside: Mutex<Inside>,
}

#[derive(Debug, Default)]
struct Inside {
    /// Connections by user; `None` at a TCP port.
    users: HashMap<Option<u32>, usize>,
    count: usize,
    /// Connections without a valid bearer token, the oldest first, which are closed to make room.
    unauthenticated: BTreeMap<u64, oneshot::Sender<()>>,
    last: u64,
    /// Whether a refused connection has been logged; reset when less than half of the places are taken.
    full: bool,
}

/// A connection's place. Dropping it frees the place.
#[derive(Debug)]
pub struct Place {
    connection_limit: Arc<ConnectionLimit>,
    user: Option<u32>,
    number: u64,
}

impl ConnectionLimit {
    pub fn new(most: usize) -> Arc<Self> {
        Arc::new(Self { most, inside: Mutex::default() })
    }

    /// Returns a place for a connection of this user; fails with the limit if it is reached.
    pub fn user(self: &Arc<Self>, user: u32) -> Result<Place, usize> {
        // The last quarter is for other users, such as root for diagnosis.
        let share = self.most - self.most / 4;
        let mut inside = self.lock();
        if inside.users.get(&Some(user)).is_some_and(|count| *count >= share) {
            return Err(inside.refuse(share));
        }
        if inside.count >= self.most {
            return Err(inside.refuse(self.most));
        }
        Ok(self.place(&mut inside, Some(user)))
    }

    /// Returns a place for a connection of an unknown user; fails with the limit if it is reached. If all places are
    /// taken, the receiver of the oldest connection without a valid token is notified: that connection has to close. A
    /// closed receiver means that the connection may stay.
    pub fn unauthenticated(self: &Arc<Self>) -> Result<(Place, oneshot::Receiver<()>), usize> {
        let mut inside = self.lock();
        // A notified connection still counts until it has closed, so the limit is exceeded by one for a moment.
        if inside.count >= self.most {
            let Some((_, oldest)) = inside.unauthenticated.pop_first() else { return Err(inside.refuse(self.most)) };
            // If its receiver is dropped, that connection is about to close.
            _ = oldest.send(());
        }
        let place = self.place(&mut inside, None);
        let (go, gone) = oneshot::channel();
        inside.unauthenticated.insert(place.number, go);
        Ok((place, gone))
    }

    fn place(self: &Arc<Self>, inside: &mut Inside, user: Option<u32>) -> Place {
        inside.count += 1;
        inside.last += 1;
        *inside.users.entry(user).or_default() += 1;
        Place { connection_limit: Arc::clone(self), user, number: inside.last }
    }

    fn lock(&self) -> MutexGuard<'_, Inside> {
        self.inside.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Inside {
    fn refuse(&mut self, most: usize) -> usize {
        if !std::mem::replace(&mut self.full, true) {
            tracing::warn!(most, "the connection limit is reached: further connections are refused");
        }
        most
    }
}

impl Place {
    pub fn proved(&self) {
        self.connection_limit.lock().unauthenticated.remove(&self.number);
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut inside = self.connection_limit.lock();
        inside.count -= 1;
        inside.unauthenticated.remove(&self.number);
        if let Some(count) = inside.users.get_mut(&self.user) {
            *count -= 1;
            if *count == 0 {
                inside.users.remove(&self.user);
            }
        }
        if inside.count < self.connection_limit.most / 2 {
            inside.full = false;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn user_cannot_take_all_connections() {
        let connection_limit = ConnectionLimit::new(8);
        let places: Vec<_> = (0..6).map(|_| connection_limit.user(7).unwrap()).collect();
        assert_eq!(connection_limit.user(7).err(), Some(6), "three quarters");
        let _others = (connection_limit.user(0).unwrap(), connection_limit.user(0).unwrap());
        assert_eq!(connection_limit.user(0).err(), Some(8), "all of them");
        drop(places);
        assert!(connection_limit.user(7).is_ok() && connection_limit.user(0).is_ok());
        assert_eq!(connection_limit.lock().users.len(), 1, "users without connections are dropped");
    }

    #[test]
    fn oldest_connection_without_token_makes_room() {
        let connection_limit = ConnectionLimit::new(3);
        let (first, mut first_goes) = connection_limit.unauthenticated().unwrap();
        let (_second, mut second_goes) = connection_limit.unauthenticated().unwrap();
        let (third, mut third_goes) = connection_limit.unauthenticated().unwrap();
        first.proved();
        let (_fourth, _) = connection_limit.unauthenticated().unwrap();
        assert!(first_goes.try_recv().is_err(), "it has shown the token");
        assert!(second_goes.try_recv().is_ok() && third_goes.try_recv().is_err(), "the oldest of the others goes");
        third.proved();
        drop((_second, _fourth));
        let (fifth, _) = connection_limit.unauthenticated().unwrap();
        fifth.proved();
        assert_eq!(connection_limit.unauthenticated().err(), Some(3), "connections with the token are not displaced");
        drop(third);
        assert!(connection_limit.unauthenticated().is_ok());
    }
}
