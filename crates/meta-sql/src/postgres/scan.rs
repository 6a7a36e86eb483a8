//! Pages of large collections.

use sluice_meta::engine::EngineError;

use super::{
    Store,
    flight::{Arg, Flight, RawRow},
    statement::Template,
};
use crate::{
    codec::Damage,
    scan::{Ask, Pages},
};

impl Pages for &Store {
    type Row<'r> = RawRow;

    fn each(
        &self,
        ask: Ask<'_>,
        limit: i64,
        mut take: impl FnMut(&RawRow) -> Result<(), Damage>,
    ) -> Result<(), EngineError> {
        let (what, record, values) = ask.statement(limit);
        let mut flight = Flight::default();
        let args = values.into_iter().map(Arg::One).collect();
        flight.add(self.catalog.get(Template::Look(what), record), args);
        let answers = self.pool.ask(&flight).map_err(|failed| failed.plain(&self.pool.options))?;
        let mut rows = answers.iter().flat_map(|answer| &answer.rows);
        rows.try_for_each(|row| take(row).map_err(|damage| self.pool.options.damaged(damage)))
    }

    fn damaged(&self, damage: Damage) -> EngineError {
        self.pool.options.damaged(damage)
    }

    fn refused(&self, reason: &str) -> EngineError {
        self.pool.options.refused(reason)
    }
}
