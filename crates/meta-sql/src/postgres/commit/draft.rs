//! A commit that is being put together, statement by statement.

use sluice_meta::schema::Key;

use super::super::{
    Store,
    flight::{Arg, Flight},
    statement::Template,
};
use crate::{codec::Record, values::Value};

/// What a statement takes of each row, and the record to name if it fails.
pub(super) type Rows<'c> = Vec<(Option<Key>, Vec<Value<'c>>)>;

/// What it means when a statement fails.
pub(super) enum Diagnosis {
    /// Nothing that concerns the caller.
    None,
    /// The message names the places of the keys at fault.
    Named(Vec<Key>),
    /// The message names the places of all other keys.
    Spared(Vec<Key>),
    /// Some of these records exist already.
    Existing(Vec<Key>),
    /// The message names all chunks that are sound.
    Chunks(Vec<(i64, i64)>),
}

/// A commit that is being put together.
pub(super) struct Draft<'c> {
    pub(super) store: &'c Store,
    pub(super) flight: Flight<'c>,
    /// Of each statement.
    pub(super) diagnoses: Vec<Diagnosis>,
    /// What is added to nodes.
    pub(super) bumps: Rows<'c>,
}

impl<'c> Draft<'c> {
    pub(super) fn add(
        &mut self,
        template: Template,
        record: Record,
        args: Vec<Arg<'c>>,
        diagnosis: Diagnosis,
    ) {
        self.flight.add(self.store.catalog.get(template, record), args);
        self.diagnoses.push(diagnosis);
    }
}
