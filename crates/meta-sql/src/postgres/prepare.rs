//! Creates missing tables, columns and indexes.

use std::collections::BTreeSet;

use sluice_meta::engine::EngineError;
use sluice_net::Kind;

use super::{Store, wire::Wire};
use crate::schema::{Dialect, lacking, removals};

/// Two clients that make tables at once do so one after the other. The lock goes with the
/// connection.
const ALONE: &str = "SELECT pg_advisory_lock(7238247823)";
/// Ours are made beside those of a volume that is there, wherever the path finds it: one by the
/// name of the user may have been put in front.
const BESIDE: &str = "SELECT set_config('search_path',quote_ident(n.nspname),false) FROM pg_class c \
     JOIN pg_namespace n ON n.oid=c.relnamespace WHERE c.oid=to_regclass('\"{}\"')";
/// Tables, `table.column`s and indexes of the schema in which we make ours.
const EXISTING: &str = "SELECT c.relname FROM pg_class c WHERE c.relnamespace=current_schema()::regnamespace \
     UNION ALL SELECT c.relname||'.'||a.attname FROM pg_class c JOIN pg_attribute a ON a.attrelid=c.oid \
     WHERE c.relnamespace=current_schema()::regnamespace AND a.attnum>0 AND NOT a.attisdropped";

impl Store {
    /// Brings the database up to the schema.
    pub(super) fn prepare(&self) -> Result<(), EngineError> {
        let mut wire = self.beside()?;
        // Most volumes lack nothing, and then no permission to make tables is needed.
        if self.missing(&mut wire)?.is_empty() {
            return Ok(());
        }
        self.simple(&mut wire, ALONE)?;
        // Each on its own: one that locked several tables could wait for a client that has one of
        // them, and it for this.
        self.missing(&mut wire)?.iter().try_for_each(|statement| self.simple(&mut wire, statement).map(drop))
    }

    /// Removes the tables of the volume, the settings last.
    pub(super) fn remove(&self) -> Result<(), EngineError> {
        let mut wire = self.beside()?;
        let statements = removals(Dialect::Postgres, &self.pool.options.volume);
        statements.iter().try_for_each(|statement| self.simple(&mut wire, statement).map(drop))
    }

    /// A connection for work on the tables of this volume.
    fn beside(&self) -> Result<Wire, EngineError> {
        let mut wire = self.pool.connect()?;
        let setting = self.pool.options.volume.table("jfs_setting");
        self.simple(&mut wire, &BESIDE.replace("{}", &setting))?;
        Ok(wire)
    }

    /// The statements that make what is missing.
    fn missing(&self, wire: &mut Wire) -> Result<Vec<String>, EngineError> {
        let existing = self.simple(wire, EXISTING)?;
        Ok(lacking(Dialect::Postgres, &self.pool.options.volume, &existing, ""))
    }

    /// Runs statements without parameters; the first column of what they answer.
    fn simple(&self, wire: &mut Wire, text: &str) -> Result<BTreeSet<String>, EngineError> {
        self.pool.query(wire, text, Kind::Commit)
    }
}
