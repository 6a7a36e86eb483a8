//! Pages of large collections.

use sluice_meta::engine::EngineError;

use super::{read::Reader, texts::What};
use crate::{
    codec::Damage,
    scan::{Ask, Pages},
};

impl Pages for Reader<'_, '_> {
    type Row<'r> = rusqlite::Row<'r>;

    fn each(
        &self,
        ask: Ask<'_>,
        limit: i64,
        take: impl FnMut(&rusqlite::Row<'_>) -> Result<(), Damage>,
    ) -> Result<(), EngineError> {
        let (what, record, values) = ask.statement(limit);
        self.rows((What::Look(what), record), &values, take)
    }

    fn damaged(&self, damage: Damage) -> EngineError {
        self.options.damaged(damage)
    }

    fn refused(&self, reason: &str) -> EngineError {
        self.options.refused(reason)
    }
}
