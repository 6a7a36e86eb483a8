//! Pages of large collections.

use std::fmt::Write as _;

use mysql_async::Row as Columned;
use sluice_meta::engine::EngineError;

use super::{
    read::join,
    store::Store,
    tables::{Tables, push_bytes},
};
use crate::{
    codec::{Damage, Record},
    scan::{Ask, Pages},
    text::first,
};

impl Pages for &Store {
    type Row<'r> = Columned;

    fn each(
        &self,
        ask: Ask<'_>,
        limit: i64,
        mut take: impl FnMut(&Columned) -> Result<(), Damage>,
    ) -> Result<(), EngineError> {
        let Store { pool, tables } = self;
        let answers =
            pool.ask(&text(tables, ask, limit)).map_err(|failed| pool.options.unanswered(failed))?;
        let mut rows = answers.iter().flatten();
        rows.try_for_each(|row| take(row).map_err(|damage| pool.options.damaged(damage)))
    }

    fn damaged(&self, damage: Damage) -> EngineError {
        self.pool.options.damaged(damage)
    }

    fn refused(&self, reason: &str) -> EngineError {
        self.pool.options.refused(reason)
    }
}

/// The statement that asks.
fn text(tables: &Tables, ask: Ask<'_>, limit: i64) -> String {
    match ask {
        Ask::Numbered(record, after) => {
            let (place, key) = (tables.of(record), record.number());
            format!(
                "SELECT {key},{} FROM {} FORCE INDEX(PRIMARY) WHERE {key}>{after} ORDER BY {key} LIMIT {limit}",
                place.columns, place.table
            )
        }
        Ask::Behind(record, [after, then]) => {
            let place = tables.of(record);
            let key = first(place.columns, 2);
            let (a, b) = (key[0], key[1]);
            // The server does not look up tuples in an index.
            format!(
                "SELECT {} FROM {} WHERE {a}>{after} OR ({a}={after} AND {b}>{then}) ORDER BY {a},{b} LIMIT {limit}",
                place.columns, place.table
            )
        }
        Ask::Entries(dir, after) | Ask::EntriesNodes(dir, after) => {
            let index = tables.of(Record::Entry).indexed.split_once(' ').map_or("", |(_, index)| index);
            let mut text = if let Ask::EntriesNodes(..) = ask {
                join(tables, index)
            } else {
                format!("SELECT {} FROM {} e {index} ", Record::Entry.columns_of("e."), tables.edge)
            };
            let _ = write!(text, "WHERE e.parent={} AND e.name>", dir.0 as i64);
            push_bytes(&mut text, after);
            let _ = write!(text, " ORDER BY e.name LIMIT {limit}");
            text
        }
    }
}
