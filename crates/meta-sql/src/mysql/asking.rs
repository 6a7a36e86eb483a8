//! Looks for what all databases have in common.

use mysql_async::Row as Columned;
use sluice_meta::engine::EngineError;

use super::store::Store;
use crate::{
    asking::Asking,
    codec::{Damage, Record},
    text::Look,
    values::Value,
};

impl Store {
    /// Has `work` done with what looks.
    pub(super) fn asking<T>(&self, work: impl FnOnce(&Self) -> T) -> T {
        work(self)
    }
}

impl Asking for Store {
    type Row<'r> = Columned;

    fn rows(
        &self,
        what: Look,
        record: Record,
        values: &[Value<'_>],
        mut take: impl FnMut(&Columned) -> Result<(), Damage>,
    ) -> Result<(), EngineError> {
        let answers = self.pool.answers(&self.tables.look(what, record, values))?;
        let mut rows = answers.iter().flatten();
        rows.try_for_each(|row| take(row).map_err(|damage| self.damaged(damage)))
    }

    fn damaged(&self, damage: Damage) -> EngineError {
        self.pool.options.damaged(damage)
    }

    fn refused(&self, reason: &str) -> EngineError {
        self.pool.options.refused(reason)
    }
}
