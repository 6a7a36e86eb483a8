//! The text of every statement, made from the shapes of the records.
//!
//! What must stay true: each statement finds its rows by an index, whatever the size of the tables.
//! A statement for many keys processes them in the given order (see `commit`: so clients never
//! deadlock). A check that does not hold fails with [`MARK`] in its message, so that nothing of its
//! flight is committed.

mod change;
mod check;
mod columns;
mod look;
mod template;

pub(super) use columns::placeholder;
pub(super) use template::{MARK, Statement, Template, Type};

use std::sync::Arc;

use parking_lot::Mutex;
use rustc_hash::FxHashMap;

use crate::{codec::Record, volume::Volume};

/// All statements in use.
pub(super) struct Catalog {
    volume: Volume,
    known: Mutex<FxHashMap<(Template, Record), Arc<Statement>>>,
}

impl Catalog {
    pub(super) fn new(volume: Volume) -> Self {
        Self { volume, known: Mutex::default() }
    }

    pub(super) fn get(&self, what: Template, record: Record) -> Arc<Statement> {
        let mut known = self.known.lock();
        let id = known.len() as u32;
        let statement = known.entry((what, record)).or_insert_with(|| {
            let columns = record.columns();
            let text = check::text(what, record, &columns).or_else(|| change::text(what, record, &columns));
            let (text, types) = text.unwrap_or_else(|| look::text(what, record, &columns));
            let text = self.volume.sql(&text).replace('`', "\"");
            Arc::new(Statement { id, name: format!("sluice{id}"), text, types })
        });
        statement.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::text::Look;

    #[test]
    fn statements_name_what_they_take() {
        let mut volume = Volume::new("");
        volume.set_prefix("x").expect("a prefix");
        let catalog = Catalog::new(volume);
        let one = catalog.get(Template::Look(Look::Get), Record::Acl);
        assert_eq!(
            one.text,
            "SELECT id,owner,\"group\",mask,other,named_users,named_groups FROM \"jfs_x_acl\" WHERE id=$1"
        );
        assert_eq!(one.types, [Type::I4]);
        let put = catalog.get(Template::Put, Record::SliceRef);
        assert!(
            put.text.ends_with("ON CONFLICT(chunkid) DO UPDATE SET size=excluded.size,refs=excluded.refs")
        );
        assert_eq!(put.types, [Type::I8s, Type::I4s, Type::I4s]);
        assert_eq!((one.id, put.id), (0, 1));
    }
}
