//! Receives the change notifications of other clients.
//!
//! The server has no publish/subscribe. A commit with a change notification raises a number, and
//! listeners poll this number. What must stay true: the number is read by its primary key, and only
//! while there is a listener.

use std::time::Duration;

use sluice_meta::engine::{EngineError, Version};

use super::store::Store;
use crate::{
    codec::{Columns as _, Record},
    query_runner::QueryRunner as _,
    questions::unexpected_answer,
    text::Look,
    values::Value,
};

/// Name of the number, which JuiceFS does not know.
pub(super) const NOTICES: &str = "sluiceVersion";

impl Version for Store {
    type Version = i64;

    const PERIOD: Duration = Duration::from_millis(100);

    fn version(&self) -> Result<Option<i64>, EngineError> {
        let mut number = 0;
        let name = Value::Text(NOTICES.as_bytes().into());
        self.rows(Look::Get, Record::Counter, &[name], |row| {
            number = row.int(1).map_err(unexpected_answer)?;
            Ok(())
        })?;
        Ok(Some(number))
    }
}
