//! Single-flight requests: one fetch per block, however many readers need it.
//!
//! What must stay true: each fetch gets a result. The thread that fetches holds a [`Leader`]. If
//! that is dropped early, the result is an error.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use bytes::Bytes;
use parking_lot::Mutex;
use rustc_hash::FxHashMap;
use sluice_object::ObjectError;
use sluice_types::{Condvar, Interrupt};

use crate::layout::BlockKey;

/// How often a waiting thread checks whether its caller still waits.
pub(crate) const CALLER_CHECK: Duration = Duration::from_millis(50);

type Fetched = Result<Bytes, ObjectError>;

/// The fetches under way.
#[derive(Debug, Default)]
pub(crate) struct Flights(Mutex<FxHashMap<BlockKey, Arc<Flight>>>);

/// One fetch under way.
#[derive(Debug, Default)]
pub(crate) struct Flight {
    result: Mutex<Option<Fetched>>,
    changed: Condvar,
}

/// The role of a reader: it fetches, or it waits for the one that fetches.
#[derive(Debug)]
pub(crate) enum Role {
    Leader(Leader),
    Follower(Arc<Flight>),
}

impl Flights {
    pub(crate) fn join(self: &Arc<Self>, key: BlockKey) -> Role {
        let mut flights = self.0.lock();
        if let Some(flight) = flights.get(&key) {
            return Role::Follower(Arc::clone(flight));
        }
        let flight = Arc::new(Flight::default());
        flights.insert(key, Arc::clone(&flight));
        Role::Leader(Leader { key, flight, flights: Arc::clone(self) })
    }

    /// The fetch of `key` that is under way, if there is one.
    pub(crate) fn find(&self, key: BlockKey) -> Option<Arc<Flight>> {
        self.0.lock().get(&key).cloned()
    }
}

impl Flight {
    /// Waits for the result, at most `timeout`, and no longer than a caller waits for the answer.
    pub(crate) fn wait(&self, timeout: Duration, interrupt: &Interrupt) -> Option<Fetched> {
        let until = Instant::now() + timeout;
        let mut result = self.result.lock();
        while result.is_none() && !interrupt.is_set() {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            self.changed.wait_for(&mut result, left.min(CALLER_CHECK));
        }
        result.clone()
    }
}

/// The duty to fetch a block and to publish the result.
#[derive(Debug)]
pub(crate) struct Leader {
    key: BlockKey,
    flight: Arc<Flight>,
    flights: Arc<Flights>,
}

impl Leader {
    pub(crate) fn key(&self) -> BlockKey {
        self.key
    }

    pub(crate) fn complete(self, fetched: Fetched) {
        *self.flight.result.lock() = Some(fetched);
    }
}

impl Drop for Leader {
    fn drop(&mut self) {
        self.flights.0.lock().remove(&self.key);
        let mut result = self.flight.result.lock();
        result.get_or_insert_with(|| {
            Err(ObjectError::Unavailable {
                action: "read",
                key: format!("block {} of slice {}", self.key.index, self.key.id),
                store: "the object store".into(),
                reason: "the client is shutting down".into(),
            })
        });
        drop(result);
        self.flight.changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: BlockKey = BlockKey { id: 1, index: 0, size: 3 };

    #[test]
    fn followers_get_what_the_leader_fetched() {
        let flights = Arc::new(Flights::default());
        let Role::Leader(leader) = flights.join(KEY) else { panic!("first one leads") };
        let Role::Follower(flight) = flights.join(KEY) else { panic!("second one waits") };
        let waiter = std::thread::spawn(move || flight.wait(Duration::from_secs(30), &Interrupt::never()));
        leader.complete(Ok(Bytes::from_static(b"abc")));
        assert_eq!(waiter.join().unwrap().unwrap().unwrap(), "abc");
        assert!(flights.find(KEY).is_none());
    }

    #[test]
    fn a_leader_that_gives_up_leaves_nobody_waiting() {
        let flights = Arc::new(Flights::default());
        let Role::Leader(leader) = flights.join(KEY) else { panic!("first one leads") };
        let flight = flights.find(KEY).unwrap();
        drop(leader);
        assert!(flight.wait(Duration::from_secs(30), &Interrupt::never()).unwrap().is_err());
    }
}
