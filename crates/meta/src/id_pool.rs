//! Reserves ids in batches, so that the creation of a node needs no round trip for its id.
//!
//! Ids left over when the client stops are lost; there are 2^63 of them. What must stay true: a
//! thread that waits while another one fetches ids can be interrupted. It does not wait longer than
//! that fetch takes.

use std::{
    ops::Range,
    time::{Duration, Instant},
};

use parking_lot::Mutex;
use sluice_types::{FsError, FsResult, wait};

use crate::{batch::Interrupt, schema::Counter};

/// How often a waiting thread checks whether it was interrupted.
const INTERRUPT_POLL: Duration = Duration::from_millis(20);

/// Allocates ids that are never reused.
pub(crate) trait Allocates {
    /// The first of `count` ids of a counter that nobody else gets. One trip.
    fn allocate(&self, counter: Counter, count: u64, interrupt: &Interrupt) -> FsResult<u64>;
}

/// A stock of ids from one counter.
pub(crate) struct IdPool {
    counter: Counter,
    batch: u64,
    stock: Mutex<Range<u64>>,
    /// Locked by the thread that fetches. When and why a fetch failed the last time.
    fetching: Mutex<Option<(Instant, FsError)>>,
}

impl IdPool {
    pub(crate) fn new(counter: Counter, batch: u64) -> Self {
        Self { counter, batch, stock: Mutex::new(0..0), fetching: Mutex::default() }
    }

    /// The next id. A thread that finds the stock empty fetches for all.
    pub(crate) fn next(&self, engine: &dyn Allocates, interrupt: &Interrupt) -> FsResult<u64> {
        // Usually there is one, and the clock need not be read.
        let stocked = self.stock.lock().next();
        match stocked {
            Some(id) => Ok(id),
            None => self.fetch(engine, interrupt),
        }
    }

    /// Several ids. If the stock lacks more than one batch, one trip fetches all that it lacks.
    pub(crate) fn several(
        &self,
        count: usize,
        engine: &dyn Allocates,
        interrupt: &Interrupt,
    ) -> FsResult<Vec<u64>> {
        let mut ids: Vec<u64> = self.stock.lock().by_ref().take(count).collect();
        let missing = (count - ids.len()) as u64;
        if missing > self.batch {
            let first = engine.allocate(self.counter, missing, interrupt)?;
            ids.extend(first..first + missing);
        }
        while ids.len() < count {
            ids.push(self.next(engine, interrupt)?);
        }
        Ok(ids)
    }

    #[cold]
    fn fetch(&self, engine: &dyn Allocates, interrupt: &Interrupt) -> FsResult<u64> {
        let since = wait::now();
        loop {
            if let Some(id) = self.stock.lock().next() {
                return Ok(id);
            }
            let Some(mut failed) = wait::try_lock_for(&self.fetching, INTERRUPT_POLL) else {
                if interrupt.is_set() {
                    return Err(FsError::Interrupted);
                }
                continue;
            };
            if let Some(id) = self.stock.lock().next() {
                return Ok(id);
            }
            // Otherwise the waiting threads would try one after the other.
            if let Some((at, error)) = &*failed
                && *at >= since
            {
                return Err(error.clone());
            }
            match engine.allocate(self.counter, self.batch, interrupt) {
                Ok(first) => *self.stock.lock() = first..first + self.batch,
                Err(FsError::Interrupted) => return Err(FsError::Interrupted),
                Err(error) => {
                    *failed = Some((wait::now(), error.clone()));
                    return Err(error);
                }
            }
        }
    }
}
