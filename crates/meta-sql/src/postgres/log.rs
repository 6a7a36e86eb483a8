//! The table of the change log.

use sluice_meta::engine::EngineError;

use super::{
    PostgresEngine,
    flight::{Arg, Flight},
    statement::Template,
};
use crate::{
    codec::{Columns as _, Record},
    log::{Ask, Rows, keep_log},
};

keep_log!(PostgresEngine);

impl PostgresEngine {
    fn ask_log(&self, ask: Ask) -> Result<Rows, EngineError> {
        let (pool, options) = (&self.0.pool, &self.0.pool.options);
        let template = match ask {
            Ask::Last => Template::LogLast,
            Ask::Count => Template::LogCount,
            Ask::Lines(..) => Template::LogLines,
            Ask::Trim(_) => Template::LogTrim,
        };
        let mut flight = Flight::default();
        let args = ask.values().into_iter().map(Arg::int).collect();
        flight.add(self.0.catalog.get(template, Record::Setting), args);
        let mut answers = pool.ask(&flight).map_err(|failure| failure.plain(options))?;
        let mut rows = Rows::new();
        for row in answers.pop().unwrap_or_default().rows {
            let text =
                if let Ask::Lines(..) = ask { row.bytes(1).map(<[u8]>::to_vec) } else { Ok(Vec::new()) };
            let row = row.int(0).and_then(|number| Ok((number, text?)));
            rows.push(row.map_err(|reason| options.refused(reason))?);
        }
        Ok(rows)
    }
}
