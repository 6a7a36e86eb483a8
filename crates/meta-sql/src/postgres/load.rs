//! New rows, very many at once.
//!
//! What must stay true: rows are in their table whole or not at all, each call being one
//! transaction; the next commit waits until it is on the disk.

use sluice_meta::{engine::EngineError, schema::Row};

use super::{Store, conn::Failure, flight::Flight, read::columns, statement::Template};
use crate::{codec::Record, values::by_record};

impl Store {
    /// Stores new rows. One trip.
    pub(super) fn load(&self, rows: &[Row]) -> Result<(), EngineError> {
        let mut flight = Flight::default();
        flight.add(self.catalog.get(Template::Softly, Record::Setting), Vec::new());
        for (record, rows) in by_record(rows) {
            flight.add(self.catalog.get(Template::InsertMany, record), columns(rows.into_iter()));
            if record == Record::Acl {
                flight.add(self.catalog.get(Template::Renumber, record), Vec::new());
            }
        }
        match self.pool.commit(&flight) {
            Ok(_) => Ok(()),
            Err(Failure::Server(_, error)) if error.is_duplicate() => Err(EngineError::Conflict(Vec::new())),
            Err(failure) => Err(failure.plain(&self.pool.options)),
        }
    }
}
