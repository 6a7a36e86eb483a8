//! The query runner of SQLite, and its change log.

use sluice_meta::engine::EngineError;

use super::{SqliteEngine, connect::Db, read::Reader, statements::Statements, texts::What};
use crate::{
    codec::{Damage, Record},
    log::{TRIM, keep_log},
    query_runner::QueryRunner,
    text::Look,
    values::Value,
    volume::Volume,
};

keep_log!(SqliteEngine);

impl Db {
    /// Runs `work` with a runner on one connection.
    pub(super) fn with_runner<T>(
        &self,
        work: impl FnOnce(&Reader<'_, '_>) -> Result<T, EngineError>,
    ) -> Result<T, EngineError> {
        self.with_reader(|connection| work(&Reader::new(&Statements::new(connection, self))))
    }

    /// Removes the lines of the change log up to a number.
    fn trim(&self, to: u64) -> Result<(), EngineError> {
        let trimmed = self.writer()?.execute(&self.options.volume.sql(TRIM), [to as i64]);
        trimmed.map(drop).map_err(|error| self.options.failed(&error))
    }
}

impl QueryRunner for Reader<'_, '_> {
    type Row<'r> = rusqlite::Row<'r>;

    fn rows(
        &self,
        what: Look,
        record: Record,
        values: &[Value<'_>],
        take: impl FnMut(&rusqlite::Row<'_>) -> Result<(), Damage>,
    ) -> Result<(), EngineError> {
        self.each((What::Look(what), record), values, take)
    }

    fn volume(&self) -> &Volume {
        &self.options.volume
    }
}
