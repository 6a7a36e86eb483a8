//! Converts the server's answers to records.
//!
//! What must stay true: an answer of an unexpected form is an error, and so is a record that cannot
//! be decoded. Neither counts as an absent record.

use redis::{FromRedisValue, Value};
use sluice_meta::{
    engine::EngineError,
    schema::{Key, Row},
};
use sluice_types::{Ino, Name};

use crate::{
    codec::{decode, entry_ino},
    error::Errors,
    keys::{Keys, Text},
};

/// A string of an answer; `None` if it is missing.
pub(crate) type Cell = Option<Vec<u8>>;

/// The form of the records of a collection in an answer.
pub(crate) struct Form {
    /// The Redis key of all records; without it each begins with its own.
    pub(crate) key: Option<Text>,
    /// Whether the field or member follows.
    pub(crate) fields: bool,
    /// How many values follow.
    pub(crate) values: usize,
}

/// Reads answers.
#[derive(Clone, Copy)]
pub(crate) struct Reader<'r> {
    pub(crate) keys: &'r Keys,
    pub(crate) errors: &'r Errors,
}

impl Reader<'_> {
    /// Converts an answer to the expected type.
    pub(crate) fn parse<T: FromRedisValue>(self, answer: Value) -> Result<T, EngineError> {
        redis::from_redis_value(self.errors.sound(answer)?).map_err(|_| self.errors.unexpected("a read"))
    }

    /// The error for a key or a field that no record has.
    pub(crate) fn not_of_the_format(self, key: &[u8], field: &[u8]) -> EngineError {
        self.errors.corrupt(named(key, field), "a name that is none of the volume format")
    }

    /// The record with these cells.
    pub(crate) fn row(self, key: &Key, cells: &mut [Cell]) -> Result<Option<Row>, EngineError> {
        decode(key, cells).map_err(|damage| {
            let cell = &self.keys.cells(key)[0];
            self.errors.corrupt(named(&cell.key, &cell.field), damage)
        })
    }

    /// The records of a collection, and the errors of those that cannot be decoded.
    pub(crate) fn rows(self, form: &Form, mut answer: Vec<Cell>) -> (Vec<Row>, Vec<EngineError>) {
        let places = usize::from(form.key.is_none()) + usize::from(form.fields);
        let width = places + form.values;
        let (mut rows, mut damaged) = (Vec::with_capacity(answer.len() / width), Vec::new());
        for record in answer.chunks_exact_mut(width) {
            let (place, values) = record.split_at_mut(places);
            let mut place = place.iter().map(|text| text.as_deref().unwrap_or_default());
            let key = form.key.as_deref().or_else(|| place.next()).unwrap_or_default();
            let field = place.next().unwrap_or_default();
            let row = match self.keys.record(key, field) {
                // A member exists, and has no value.
                Some(key) if form.values == 0 => self.row(&key, &mut [Some(Vec::new())]),
                Some(key) => self.row(&key, values),
                None => Err(self.not_of_the_format(key, field)),
            };
            match row {
                Ok(row) => rows.extend(row),
                Err(damage) => damaged.push(damage),
            }
        }
        (rows, damaged)
    }

    /// The record of the node that a stored entry names.
    pub(crate) fn node(self, stored: &Cell, attr: Cell) -> Result<Option<Row>, EngineError> {
        match stored.as_deref().and_then(entry_ino) {
            Some(ino) => self.row(&Key::Node(ino), &mut [attr]),
            None => Ok(None),
        }
    }

    /// The record of a stored entry.
    pub(crate) fn entry(self, dir: Ino, name: Name, stored: Cell) -> Result<Option<Row>, EngineError> {
        self.row(&Key::Entry(dir, name), &mut [stored])
    }
}

/// A place in Redis for messages.
fn named(key: &[u8], field: &[u8]) -> String {
    let space = if field.is_empty() { "" } else { " " };
    format!("{}{space}{}", key.escape_ascii(), field.escape_ascii())
}
