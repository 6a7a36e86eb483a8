//! The query runner of PostgreSQL, and its change log.

use sluice_meta::engine::EngineError;

use super::{
    PostgresEngine, Store,
    flight::{Arg, Flight, RawRow},
    statement::Template,
};
use crate::{
    codec::{Damage, Record},
    log::keep_log,
    query_runner::QueryRunner,
    text::Look,
    values::{Value, id},
    volume::Volume,
};

keep_log!(PostgresEngine);

impl Store {
    /// The rows of one query, which may run twice.
    pub(super) fn one<'v>(
        &self,
        template: Template,
        record: Record,
        values: impl IntoIterator<Item = Value<'v>>,
    ) -> Result<Vec<RawRow>, EngineError> {
        let mut flight = Flight::default();
        flight.add(self.catalog.get(template, record), values.into_iter().map(Arg::One).collect());
        let answers = self.pool.ask(&flight).map_err(|failure| failure.plain(&self.pool.options))?;
        Ok(answers.into_iter().flatten().collect())
    }

    /// Removes the lines of the change log up to a number.
    fn trim(&self, to: u64) -> Result<(), EngineError> {
        self.one(Template::LogTrim, Record::Line, [id(to)]).map(drop)
    }
}

impl QueryRunner for Store {
    type Row<'r> = RawRow;

    fn rows(
        &self,
        what: Look,
        record: Record,
        values: &[Value<'_>],
        mut take: impl FnMut(&RawRow) -> Result<(), Damage>,
    ) -> Result<(), EngineError> {
        let rows = self.one(Template::Look(what), record, values.iter().cloned())?;
        rows.iter().try_for_each(|row| take(row).map_err(|damage| self.volume().damaged(damage)))
    }

    fn volume(&self) -> &Volume {
        &self.pool.options.volume
    }
}
