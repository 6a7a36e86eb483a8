//! Watches for changes that other clients announce.
//!
//! The server has no messages. A commit with an announcement raises a number, and listeners read
//! this number. What must stay true: it is read by its primary key, and only while there is a
//! listener.

use std::{sync::Arc, time::Duration};

use sluice_meta::engine::{EngineError, Watch};

use super::{store::Store, tables::push_text};
use crate::{
    codec::{Columns, Record},
    polled::{Polled, Version},
};

/// Name of the number, which JuiceFS does not know.
pub(super) const NOTICES: &str = "sluiceVersion";

impl Version for Arc<Store> {
    const PERIOD: Duration = Duration::from_millis(100);

    fn version(&self) -> Result<Option<i64>, EngineError> {
        notice(self).map(Some)
    }
}

pub(super) fn watch(store: Arc<Store>) -> Result<Box<dyn Watch>, EngineError> {
    let notice = notice(&store)?;
    Ok(Box::new(Polled::new(store, notice)))
}

fn notice(store: &Store) -> Result<i64, EngineError> {
    let mut text = format!("SELECT value FROM {} WHERE name=", store.tables.of(Record::Counter).table);
    push_text(&mut text, NOTICES.as_bytes());
    let answers = store.pool.answers(&text)?;
    Ok(answers.first().and_then(|rows| rows.first()).and_then(|row| row.int(0).ok()).unwrap_or_default())
}
