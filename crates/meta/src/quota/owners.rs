//! Counts the usage of users and groups when a volume begins to record it.

use sluice_types::{FsError, FsResult};

use super::Counting;
use crate::meta::Meta;

impl Meta {
    /// Counts what users and groups use, once the settings say that it is counted. Other clients
    /// learn of that with their next heartbeat; `waiting` is called with their number if there are
    /// any. Whether the records are exact; if not, others wrote too much to count it.
    pub fn count_owners(&self, counting: &Counting<'_>, waiting: &dyn Fn(usize)) -> FsResult<bool> {
        let interrupt = counting.interrupt;
        let format = self.retry(interrupt, || Self::load_format(self.engine.as_ref()))?;
        self.env.set_format(format.ok_or(FsError::NotFound)?);
        self.settle_owners(counting)?;
        let others = self.others(interrupt)?;
        let mut settled = true;
        if !others.is_empty() {
            waiting(others.len());
            settled = self.await_others(others, interrupt)?;
        }
        settled &= self.settle_owners(counting)?;
        Ok(settled)
    }
}
