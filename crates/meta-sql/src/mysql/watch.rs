//! Watches for changes that other clients announce.
//!
//! The server has no messages. A commit with an announcement raises a number, and listeners read
//! this number. What must stay true: it is read by its primary key, and only while there is a
//! listener.

use std::time::Duration;

use sluice_meta::engine::{EngineError, Version};

use super::{store::Store, tables::push_text};
use crate::codec::{Columns, Record};

/// Name of the number, which JuiceFS does not know.
pub(super) const NOTICES: &str = "sluiceVersion";

impl Version for Store {
    type Version = i64;

    const PERIOD: Duration = Duration::from_millis(100);

    fn version(&self) -> Result<Option<i64>, EngineError> {
        let mut text = format!("SELECT value FROM {} WHERE name=", self.tables.of(Record::Counter).table);
        push_text(&mut text, NOTICES.as_bytes());
        let answers = self.pool.answers(&text)?;
        let number = answers.first().and_then(|rows| rows.first()?.int(0).ok());
        Ok(Some(number.unwrap_or_default()))
    }
}
