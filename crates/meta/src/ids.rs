//! Numbers taken from the engine in batches, so that making a node costs no trip for its number.
//!
//! Numbers left over when the client stops are lost; there are 2^63 of them.

use parking_lot::Mutex;
use sluice_types::FsResult;

use crate::{batch::Interrupt, meta::Meta, ops::allocate::Allocate, schema::Counter};

/// A stock of numbers from one counter.
pub(crate) struct IdPool {
    counter: Counter,
    batch: u64,
    stock: Mutex<std::ops::Range<u64>>,
}

impl IdPool {
    pub(crate) fn new(counter: Counter, batch: u64) -> Self {
        Self { counter, batch, stock: Mutex::new(0..0) }
    }

    /// The next number. Who finds the stock empty fetches for all.
    pub(crate) fn next(&self, meta: &Meta, interrupt: &Interrupt) -> FsResult<u64> {
        let mut stock = self.stock.lock();
        if let Some(id) = stock.next() {
            return Ok(id);
        }
        let first = meta.run(Allocate { counter: self.counter, count: self.batch }, interrupt)?;
        *stock = first..first + self.batch;
        Ok(stock.next().unwrap_or(first))
    }
}
