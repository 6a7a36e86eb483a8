//! What an engine can do for all that looks at its tables.

use sluice_meta::engine::EngineError;

use crate::{
    codec::{Columns, Damage, Record},
    text::Look,
    values::Value,
};

/// An engine that can run the statements that only look.
pub(crate) trait Asking {
    /// A row of an answer.
    type Row<'r>: Columns;

    /// Passes the rows of the answer to one statement to `take`, in order. One trip.
    fn rows(
        &self,
        what: Look,
        record: Record,
        values: &[Value<'_>],
        take: impl FnMut(&Self::Row<'_>) -> Result<(), Damage>,
    ) -> Result<(), EngineError>;

    /// Has `work` done with what looks.
    fn asking<T>(&self, work: impl FnOnce(&Self) -> T) -> T {
        work(self)
    }

    /// A row breaks the format.
    fn damaged(&self, damage: Damage) -> EngineError;

    /// The engine refuses for good.
    fn refused(&self, reason: &str) -> EngineError;
}
