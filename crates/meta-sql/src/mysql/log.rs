//! The table of the change log.

use sluice_meta::engine::{Commit, EngineError};

use super::{MysqlEngine, store::Store};
use crate::{
    log::{TRIM, appended, keep_log},
    values::{Value, id},
};

keep_log!(MysqlEngine);

/// Bytes that the column of a line holds. JuiceFS made it.
const LONGEST: usize = 65_535;

impl Store {
    /// Removes the lines up to a number.
    fn trim(&self, to: u64) -> Result<(), EngineError> {
        self.pool.answers(&self.tables.filled(TRIM, &[id(to)])).map(drop)
    }
}

/// The rows that append the lines of a commit.
pub(super) fn lines(commit: &Commit) -> Vec<[Value<'_>; 2]> {
    let fits = |line: &Value<'_>| {
        let Value::Text(text) = line else { return false };
        if text.len() > LONGEST {
            let about = String::from_utf8_lossy(&text[..80]);
            tracing::warn!(%about, "a line of the change log is longer than MySQL takes; it is left out");
        }
        text.len() <= LONGEST
    };
    appended(commit).filter(fits).map(|line| [Value::Null, line]).collect()
}
