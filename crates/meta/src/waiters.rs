//! The waiters for locks, and how they learn that a lock may be free.
//!
//! One thread receives the change notifications of other clients, but only while there are waiters.
//! JuiceFS clients send none, so each waiter also retries periodically.

use std::{
    sync::{Arc, Weak},
    time::{Duration, Instant},
};

use parking_lot::Mutex;
use rustc_hash::FxHashMap;
use sluice_types::{Ino, wait};

use crate::{
    batch::Interrupt,
    engine::Engine,
    schema::{Change, Notice},
    stats::MetaStats,
};

/// Threads that wait for locks of files.
#[derive(Clone)]
pub struct Waiters(Arc<Inner>);

struct Inner {
    engine: Arc<dyn Engine>,
    stats: Arc<MetaStats>,
    waiting: Mutex<Waiting>,
}

#[derive(Default)]
struct Waiting {
    listening: bool,
    by_file: FxHashMap<Ino, Vec<(u64, Bell)>>,
    next: u64,
}

/// What wakes one waiter.
#[derive(Clone)]
enum Bell {
    /// A thread of its own: a lock was released, or the application gave up.
    Thread(Interrupt),
    /// Whoever looks after many.
    Call(Arc<dyn Fn() + Send + Sync>),
}

/// A place among those who wait; ends with its drop.
#[must_use = "dropping it ends the wait"]
pub struct Registered {
    waiters: Waiters,
    ino: Ino,
    id: u64,
    /// Since when it waits; nothing before the first try failed.
    since: Option<Instant>,
}

/// A registered waiter with a thread of its own; ends with its drop.
pub struct Waiter {
    registered: Registered,
    bell: Interrupt,
}

/// Longest time between two looks of a waiter.
pub const LOCK_POLL_INTERVAL: Duration = Duration::from_millis(500);
/// How long the listener listens before it sees whether anybody still waits.
const LISTEN: Duration = Duration::from_millis(200);

impl Waiters {
    pub(crate) fn new(engine: Arc<dyn Engine>, stats: Arc<MetaStats>) -> Self {
        Self(Arc::new(Inner { engine, stats, waiting: Mutex::default() }))
    }

    /// Registers the caller as waiting for a lock on `ino`. To be called before the try that
    /// decides to wait, so that no release is missed.
    pub fn register(&self, ino: Ino) -> Waiter {
        let bell = Interrupt::default();
        Waiter { registered: self.add(ino, Bell::Thread(bell.clone())), bell }
    }

    /// Has `call` called whenever a lock on `ino` may be free, until what this answers is dropped.
    /// It must wake somebody and do no more: nobody can register or end meanwhile. To be called
    /// before the try that decides to wait; who waits looks every [`LOCK_POLL_INTERVAL`] besides.
    pub fn on_release(&self, ino: Ino, call: impl Fn() + Send + Sync + 'static) -> Registered {
        let mut registered = self.add(ino, Bell::Call(Arc::new(call)));
        registered.waits();
        registered
    }

    fn add(&self, ino: Ino, bell: Bell) -> Registered {
        let mut waiting = self.0.waiting.lock();
        let id = waiting.next;
        waiting.next += 1;
        waiting.by_file.entry(ino).or_default().push((id, bell));
        if !waiting.listening {
            waiting.listening = listen(Arc::downgrade(&self.0));
        }
        Registered { waiters: self.clone(), ino, id, since: None }
    }

    /// Wakes those who wait for locks on `ino`, or all.
    fn wake(inner: &Inner, notice: &[Notice]) {
        let waiting = inner.waiting.lock();
        let tells = |change: Change| notice.iter().any(|notice| notice.changes.contains(&change));
        let any = tells(Change::Any);
        for (ino, bells) in &waiting.by_file {
            if any || tells(Change::Lock(*ino)) {
                for (_, bell) in bells {
                    match bell {
                        Bell::Thread(bell) => bell.set(),
                        Bell::Call(call) => call(),
                    }
                }
            }
        }
    }
}

impl Waiter {
    /// Waits until the lock may be free, somebody interrupts, or it is time to look. True if
    /// interrupted.
    pub fn wait(&mut self, interrupt: &Interrupt) -> bool {
        self.registered.waits();
        interrupt.forward(&self.bell);
        self.bell.sleep(LOCK_POLL_INTERVAL);
        if interrupt.is_set() {
            return true;
        }
        // Ring again for the next release.
        self.bell = Interrupt::default();
        let Registered { waiters, ino, id, .. } = &self.registered;
        let mut waiting = waiters.0.waiting.lock();
        if let Some(entry) =
            waiting.by_file.get_mut(ino).and_then(|list| list.iter_mut().find(|e| e.0 == *id))
        {
            entry.1 = Bell::Thread(self.bell.clone());
        }
        false
    }
}

impl Registered {
    /// Counts it among those who wait, once.
    fn waits(&mut self) {
        if self.since.is_none() {
            self.since = Some(wait::now());
            self.waiters.0.stats.lock_waiters.add(1);
        }
    }
}

impl Drop for Registered {
    fn drop(&mut self) {
        if let Some(since) = self.since {
            let stats = &self.waiters.0.stats;
            stats.lock_waiters.sub(1);
            stats.lock_waits.observe(wait::now().saturating_duration_since(since));
        }
        let mut waiting = self.waiters.0.waiting.lock();
        if let Some(list) = waiting.by_file.get_mut(&self.ino) {
            list.retain(|(id, _)| *id != self.id);
            if list.is_empty() {
                waiting.by_file.remove(&self.ino);
            }
        }
    }
}

/// Starts the listening thread; whether it could be started.
fn listen(inner: Weak<Inner>) -> bool {
    let listener = move || {
        let Some(mut watch) = inner.upgrade().and_then(|inner| inner.engine.watch().ok()) else {
            if let Some(inner) = inner.upgrade() {
                inner.waiting.lock().listening = false;
            }
            return;
        };
        while let Some(inner) = inner.upgrade() {
            match watch.next(LISTEN) {
                Ok(notice) => Waiters::wake(&inner, &notice),
                Err(error) => {
                    tracing::warn!(%error, "cannot listen for released locks; waiters look by themselves");
                    inner.waiting.lock().listening = false;
                    return;
                }
            }
            let mut waiting = inner.waiting.lock();
            if waiting.by_file.is_empty() {
                waiting.listening = false;
                return;
            }
        }
    };
    wait::spawn("locks", listener).is_ok()
}
