//! The table of the change log.

use sluice_meta::engine::EngineError;

use super::MysqlEngine;
use crate::{
    codec::Columns as _,
    log::{Ask, Rows, keep_log},
};

keep_log!(MysqlEngine);

impl MysqlEngine {
    fn ask_log(&self, ask: Ask) -> Result<Rows, EngineError> {
        let (pool, options) = (&self.0.pool, &self.0.pool.options);
        let text = ask.plain();
        let answers = pool.ask(&options.naming.sql(&text)).map_err(|failed| options.unanswered(failed))?;
        let mut rows = Rows::new();
        for row in answers.iter().flatten() {
            let text =
                if let Ask::Lines(..) = ask { row.bytes(1).map(<[u8]>::to_vec) } else { Ok(Vec::new()) };
            let row = row.int(0).and_then(|number| Ok((number, text?)));
            rows.push(row.map_err(|reason| options.refused(reason))?);
        }
        Ok(rows)
    }
}
