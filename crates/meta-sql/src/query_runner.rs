//! Runs the queries that all SQL engines have in common.

use sluice_meta::engine::EngineError;

use crate::{
    codec::{Columns, Damage, Record},
    text::Look,
    values::Value,
    volume::Volume,
};

/// Can run queries on the tables of a volume.
pub(crate) trait QueryRunner {
    /// A row of an answer.
    type Row<'r>: Columns;

    /// Runs one query, and passes its rows to `take`, in order. One trip.
    fn rows(
        &self,
        what: Look,
        record: Record,
        values: &[Value<'_>],
        take: impl FnMut(&Self::Row<'_>) -> Result<(), Damage>,
    ) -> Result<(), EngineError>;

    /// Runs `work` with a runner of queries.
    fn with_runner<T>(&self, work: impl FnOnce(&Self) -> T) -> T {
        work(self)
    }

    /// The volume, which makes the errors.
    fn volume(&self) -> &Volume;
}
