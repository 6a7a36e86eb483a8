//! The query runner of MySQL and MariaDB, and their change log.

use mysql_async::Row as Columned;
use sluice_meta::engine::EngineError;

use super::{MysqlEngine, store::Store};
use crate::{
    codec::{Damage, Record},
    log::{TRIM, keep_log},
    query_runner::QueryRunner,
    text::Look,
    values::{Value, id},
    volume::Volume,
};

keep_log!(MysqlEngine);

impl Store {
    /// Removes the lines of the change log up to a number.
    fn trim(&self, to: u64) -> Result<(), EngineError> {
        self.pool.answers(&self.tables.filled(TRIM, &[id(to)])).map(drop)
    }
}

impl QueryRunner for Store {
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
        rows.try_for_each(|row| take(row).map_err(|damage| self.volume().damaged(damage)))
    }

    fn volume(&self) -> &Volume {
        &self.pool.options.volume
    }
}
