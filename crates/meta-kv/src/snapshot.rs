//! A snapshot of the store, which lasts until the store drops old versions.

use std::sync::Arc;

use sluice_meta::engine::{Cursor, EngineError, Found, Page, Read, Scan, Snapshot};

use crate::{
    kv::{Kv, look},
    read::answer,
    scan,
    stored::Result,
    values::Values,
};

struct Moment<K: Kv> {
    kv: Arc<K>,
    at: K::Moment,
}

/// The store as it is now.
pub(crate) fn snapshot<K: Kv>(kv: &Arc<K>) -> Result<Arc<dyn Snapshot>> {
    let at = look(kv.volume(), kv.begin_reading())?;
    Ok(Arc::new(Moment { kv: kv.clone(), at }))
}

impl<K: Kv> Moment<K> {
    /// What an error means where trying again with another snapshot does not help.
    fn known(&self, error: EngineError) -> EngineError {
        match error {
            EngineError::Unavailable { reason, .. } if K::is_given_up(&reason) => self.kv.volume().refused(
                format!("the moment that was to be read is gone ({reason}): {}; begin again", K::KEEPS),
            ),
            other => other,
        }
    }
}

impl<K: Kv> Snapshot for Moment<K> {
    fn read(&self, reads: &[Read]) -> Result<Vec<Found>> {
        let kv = &*self.kv;
        let mut values = Values::default();
        let found = look(kv.volume(), answer(kv, &self.at, &mut values, reads));
        found.map_err(|error| self.known(error))
    }

    fn scan(&self, scan: Scan, from: Option<&Cursor>, limit: usize) -> Result<Page> {
        let kv = &*self.kv;
        let page = look(kv.volume(), scan::page(kv, &self.at, scan, from, limit));
        page.map_err(|error| self.known(error))
    }

    fn divide(&self, cursor: Cursor) -> (Vec<Cursor>, Option<Cursor>) {
        scan::divide(&self.kv.volume().keys, cursor)
    }
}
