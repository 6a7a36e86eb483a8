//! The participants of a simulation: a client of the metadata alone, or a whole mount.

use std::{sync::Arc, time::Duration};

use sluice_types::FsResult;

use crate::{client::Client, mount::Mount, plan::Theme, start_error::StartError, world::World};

/// One who takes part.
pub(crate) trait Participant: Send + Sync {
    /// What one of its threads does in one round.
    fn work(&self, thread: usize);
    /// Shows that it lives, and cleans up after others.
    fn beat(&self);
    /// Its session.
    fn sid(&self) -> u64;
    /// Whether what it has open is there.
    fn check_open(&self);
    /// Whether its locks are on record as its programs were told.
    fn check_locks(&self);
    /// Whether what its programs were told is still true.
    fn check_answers(&self);
    /// Whether what it remembers is true, once it has heard of everything.
    fn check_memory(&self);
    /// Closes all that is open.
    fn close_all(&self);
    /// Ends its session.
    fn leave(&self) -> FsResult<()>;
}

/// One by its place in the plan.
///
/// # Errors
/// A broken answer of the database is [`StartError::Refused`]; the next attempt may succeed.
pub(crate) fn open(world: &Arc<World>, at: usize) -> Result<Arc<dyn Participant>, StartError> {
    match world.plan.theme {
        Theme::Mounts => Ok(Mount::open(world, at)?),
        _ => Ok(Client::open(world, at)?),
    }
}

/// Shows that it lives, at some time soon.
pub(crate) fn beat_sometimes(world: &World, at: usize, participant: &dyn Participant) {
    for _ in 0..world.plan.clients[at].beats {
        world.sched.take_time(Duration::from_millis(1));
        if !world.lives(at) {
            return;
        }
        participant.beat();
    }
}

impl Participant for Client {
    fn work(&self, thread: usize) {
        self.work(thread);
    }

    fn beat(&self) {
        self.beat();
    }

    fn sid(&self) -> u64 {
        self.meta.sid()
    }

    fn check_open(&self) {
        self.check_open();
    }

    fn check_locks(&self) {
        self.check_locks();
    }

    fn check_answers(&self) {
        self.check_answers();
    }

    fn check_memory(&self) {
        self.check_memory();
    }

    fn close_all(&self) {
        self.close_all();
    }

    fn leave(&self) -> FsResult<()> {
        self.meta.close()
    }
}

impl Participant for Mount {
    fn work(&self, _thread: usize) {
        self.work();
    }

    fn beat(&self) {
        self.beat();
    }

    fn sid(&self) -> u64 {
        self.sid()
    }

    fn check_open(&self) {
        self.check_open();
    }

    fn check_locks(&self) {}

    fn check_answers(&self) {}

    fn check_memory(&self) {
        self.check_memory();
    }

    fn close_all(&self) {
        self.close_all();
    }

    fn leave(&self) -> FsResult<()> {
        self.leave()
    }
}
