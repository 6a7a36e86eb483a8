//! Notices what other clients tell.
//!
//! The server has no messages: who tells something counts it in the same commit, and who listens
//! looks at the number. What must stay true: the look is one row by its primary key, and it is
//! taken only while somebody listens.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use sluice_meta::{
    engine::{EngineError, Watch},
    schema::Notice,
};

use super::{store::Store, tables::push_text};
use crate::codec::{Columns, Record};

/// How often the number is looked at.
const PERIOD: Duration = Duration::from_millis(100);

/// Name of the number, which JuiceFS does not know.
pub(super) const NOTICES: &str = "sluiceTold";

pub(super) struct MysqlWatch {
    store: Arc<Store>,
    notice: i64,
}

impl MysqlWatch {
    pub(super) fn new(store: Arc<Store>) -> Result<Self, EngineError> {
        let notice = notice(&store)?;
        Ok(Self { store, notice })
    }
}

impl Watch for MysqlWatch {
    fn next(&mut self, timeout: Duration) -> Result<Vec<Notice>, EngineError> {
        let until = Instant::now() + timeout;
        loop {
            let notice = notice(&self.store)?;
            if notice != self.notice {
                self.notice = notice;
                return Ok(vec![Notice::anything()]);
            }
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(Vec::new());
            }
            std::thread::sleep(left.min(PERIOD));
        }
    }
}

fn notice(store: &Store) -> Result<i64, EngineError> {
    let mut text = format!("SELECT value FROM {} WHERE name=", store.tables.of(Record::Counter).table);
    push_text(&mut text, NOTICES.as_bytes());
    let pool = &store.pool;
    let answers = pool.ask(&text).map_err(|failed| pool.options.unanswered(failed))?;
    Ok(answers.first().and_then(|rows| rows.first()).and_then(|row| row.int(0).ok()).unwrap_or_default())
}
