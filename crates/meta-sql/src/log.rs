//! The change log: a table of lines, which the database numbers.

use bytes::Bytes;
use sluice_meta::engine::{Commit, EngineError, LogLine, Write};

use crate::{
    codec::{Columns as _, Record},
    query_runner::QueryRunner,
    questions::unexpected_answer,
    text::Look,
    values::id,
};

/// Removes the lines up to a number.
pub(crate) const TRIM: &str = "DELETE FROM jfs_change_log WHERE id<=$1";

/// The number that a read of the whole log returns; 0 if there is none.
pub(crate) fn number(runner: &impl QueryRunner, what: Look) -> Result<u64, EngineError> {
    let mut number = 0;
    runner.rows(what, Record::Line, &[], |row| {
        number = row.int(0).map_err(unexpected_answer)? as u64;
        Ok(())
    })?;
    Ok(number)
}

/// The lines after a number, at most so many.
pub(crate) fn lines(
    runner: &impl QueryRunner,
    after: u64,
    limit: usize,
) -> Result<Vec<LogLine>, EngineError> {
    let mut lines = Vec::new();
    runner.rows(Look::Page, Record::Line, &[id(after), id(limit.max(1) as u64)], |row| {
        let text = Bytes::copy_from_slice(row.bytes(2).map_err(unexpected_answer)?);
        lines.push(LogLine { number: row.int(0).map_err(unexpected_answer)? as u64, text });
        Ok(())
    })?;
    Ok(lines)
}

/// The lines of a commit.
pub(crate) fn appended(commit: &Commit) -> impl Iterator<Item = &[u8]> {
    commit.writes.iter().filter_map(|write| match write {
        Write::Log(line) => Some(line.as_bytes()),
        _ => None,
    })
}

/// Lets an engine keep a change log, with its `with_runner` and `trim`.
macro_rules! keep_log {
    ($engine:ty) => {
        impl sluice_meta::engine::ChangeLog for $engine {
            fn last(&self) -> Result<u64, EngineError> {
                self.0.with_runner(|runner| $crate::log::number(runner, $crate::text::Look::Last))
            }

            fn count(&self) -> Result<u64, EngineError> {
                self.0.with_runner(|runner| $crate::log::number(runner, $crate::text::Look::Count))
            }

            fn lines(
                &self,
                after: u64,
                limit: usize,
            ) -> Result<Vec<sluice_meta::engine::LogLine>, EngineError> {
                self.0.with_runner(|runner| $crate::log::lines(runner, after, limit))
            }

            fn trim(&self, to: u64) -> Result<(), EngineError> {
                self.0.trim(to)
            }
        }
    };
}

pub(crate) use keep_log;
