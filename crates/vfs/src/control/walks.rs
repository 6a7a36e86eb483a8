//! Limits how many tree walks run at once.
//!
//! What must stay true: no user can take all slots, and the superuser always gets one in the end.

use std::time::Duration;

use parking_lot::Mutex;
use rustc_hash::FxHashMap;
use sluice_meta::Interrupt;
use sluice_types::{Caller, Condvar, FsError, FsResult};

/// Most walks of a mount at once.
const MAX_WALKS: u32 = 8;
/// Most of them of one user, the superuser excepted.
const MAX_OF_USER: u32 = 2;
/// How often a waiting thread checks whether it was interrupted.
const INTERRUPT_CHECK: Duration = Duration::from_millis(100);

/// The tree walks of a mount.
#[derive(Default)]
pub(crate) struct Walks {
    running: Mutex<FxHashMap<u32, u32>>,
    ended: Condvar,
}

/// A walk. It ends when this is dropped.
pub(crate) struct WalkGuard<'w> {
    walks: &'w Walks,
    uid: u32,
}

impl Walks {
    /// Begins a walk of a user, as soon as a slot is free.
    ///
    /// # Errors
    /// [`FsError::Interrupted`] if the caller was interrupted before.
    pub(crate) fn begin(&self, caller: &Caller, interrupt: &Interrupt) -> FsResult<WalkGuard<'_>> {
        let most_of_user = if caller.superuser { MAX_WALKS } else { MAX_OF_USER };
        let mut running = self.running.lock();
        loop {
            let own = running.get(&caller.uid).copied().unwrap_or(0);
            if own < most_of_user && running.values().sum::<u32>() < MAX_WALKS {
                *running.entry(caller.uid).or_default() += 1;
                return Ok(WalkGuard { walks: self, uid: caller.uid });
            }
            if interrupt.is_set() {
                return Err(FsError::Interrupted);
            }
            self.ended.wait_for(&mut running, INTERRUPT_CHECK);
        }
    }
}

impl Drop for WalkGuard<'_> {
    fn drop(&mut self) {
        let mut running = self.walks.running.lock();
        if let Some(count) = running.get_mut(&self.uid) {
            *count -= 1;
            if *count == 0 {
                running.remove(&self.uid);
            }
        }
        self.walks.ended.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_takes_two_places_and_all_together_eight() {
        let walks = Walks::default();
        let never = Interrupt::never();
        let user = |uid| Caller::user(uid, uid);
        let begin = |uid| walks.begin(&user(uid), &never).ok();
        let mut all = vec![begin(1000), begin(1000)];
        let waits = |uid| {
            let interrupt = Interrupt::never();
            std::thread::scope(|scope| {
                let waiter = scope.spawn(|| walks.begin(&user(uid), &interrupt).map(drop));
                interrupt.set();
                waiter.join().unwrap()
            })
        };
        assert_eq!(waits(1000), Err(FsError::Interrupted));
        all.extend([begin(0), begin(0), begin(0), begin(0), begin(0), begin(1001)]);
        assert_eq!(waits(0), Err(FsError::Interrupted));
        all.pop();
        all.push(begin(0));
        assert_eq!(waits(1001), Err(FsError::Interrupted));
        drop(all);
        assert!(walks.running.lock().is_empty());
    }
}
