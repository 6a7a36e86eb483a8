//! The statements with about the same text for all databases, made from the shapes of the records.
//!
//! Parameters are `$1`, `$2`, …; names of tables are those of JuiceFS, and reserved words are in
//! backquotes. What must stay true: each statement finds its rows by an index. The columns of its
//! result have the order in which `codec` reads them.

use sluice_meta::engine::List;

use crate::{
    codec::{Record, joined_columns},
    schema::Dialect,
};

/// The result of a statement that only reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Look {
    /// One record by the columns that name it.
    Get,
    /// All rows whose first column is given.
    List,
    /// All rows whose column `sid` is given.
    OfSession,
    /// Chunks of a file from one index up to, not including, another.
    Range,
    /// An entry and its node.
    Follow,
    /// Names in a directory, at most so many.
    Names,
    /// The highest number given out: of ACL rules, that of a row which is there.
    Last,
    /// How many rows there are.
    Count,
    /// Rows after a number, which comes first in the answer, at most so many.
    Page,
    /// Rows after a unique key of two columns, at most so many.
    Behind,
    /// Entries of a directory after a name, at most so many.
    Entries,
    /// As [`Look::Entries`], with their nodes.
    EntriesNodes,
}

/// The statement.
pub(crate) fn look(what: Look, record: Record, dialect: Dialect) -> String {
    let shape = record.shape();
    let (table, listed) = (shape.table, shape.columns);
    // MySQL would sometimes rather read the table than find its rows in this order.
    let by = |index: &str| match dialect {
        Dialect::Mysql => format!(" FORCE INDEX({index})"),
        _ => String::new(),
    };
    let select = format!("SELECT {listed} FROM {table}");
    let group = if record == Record::Parents { " GROUP BY inode,parent" } else { "" };
    match what {
        Look::Get => format!("{select} WHERE {}{group}", equal(shape.columns, shape.named)),
        Look::List => format!("{select} WHERE {}{group}", equal(shape.columns, 1)),
        Look::OfSession => format!("{select} WHERE sid=$1"),
        Look::Range => format!("{select} WHERE inode=$1 AND indx>=$2 AND indx<$3 ORDER BY indx"),
        Look::Follow => format!("{} WHERE e.parent=$1 AND e.name=$2", joined("")),
        Look::Names => format!("SELECT name FROM {table} WHERE parent=$1 LIMIT $2"),
        Look::Last if record == Record::Line => {
            format!("SELECT coalesce(max(id),({})) FROM {table}", last_given(table, dialect))
        }
        Look::Last => format!("SELECT max(id) FROM {table}"),
        Look::Count => format!("SELECT count(*) FROM {table}"),
        Look::Page => {
            let (key, index) = (record.number(), by("PRIMARY"));
            format!("SELECT {key},{listed} FROM {table}{index} WHERE {key}>$1 ORDER BY {key} LIMIT $2")
        }
        Look::Behind => {
            let [a, b] = [0, 1].map(|at| first(listed, 2)[at]);
            let behind = match dialect {
                // It does not look up tuples in an index.
                Dialect::Mysql => format!("{a}>$1 OR {a}=$1 AND {b}>$2"),
                _ => format!("({a},{b})>($1,$2)"),
            };
            format!("{select} WHERE {behind} ORDER BY {a},{b} LIMIT $3")
        }
        Look::Entries => {
            format!("{select}{} WHERE parent=$1 AND name>$2 ORDER BY name LIMIT $3", by(BY_NAME))
        }
        Look::EntriesNodes => {
            let join = joined(&by(BY_NAME));
            format!("{join} WHERE e.parent=$1 AND e.name>$2 ORDER BY e.name LIMIT $3")
        }
    }
}

/// The index of entries by directory and name.
const BY_NAME: &str = "UQE_jfs_edge_edge";

/// What reads entries `e`, found by that index, and the nodes `n` they name, up to its WHERE.
pub(crate) fn joined(by: &str) -> String {
    format!("SELECT {} FROM jfs_edge e{by} LEFT JOIN jfs_node n ON n.inode=e.inode", joined_columns())
}

/// What reads the number that the database gave last to a row of a table, be it that the row is
/// gone. A name in a text loses its quotes.
fn last_given(table: &str, dialect: Dialect) -> String {
    match dialect {
        Dialect::Sqlite => format!("SELECT seq FROM sqlite_sequence WHERE name=replace('{table}','`','')"),
        Dialect::Postgres => format!("SELECT pg_sequence_last_value(pg_get_serial_sequence('{table}','id'))"),
        Dialect::Mysql => format!(
            "SELECT auto_increment-1 FROM information_schema.tables \
             WHERE table_schema=DATABASE() AND table_name=replace('{table}','`','')"
        ),
    }
}

/// The records of a list, the statement that finds them, and whose they are. A range of chunks has
/// bounds besides.
pub(crate) const fn listed(list: List) -> (&'static [Record], Look, u64) {
    match list {
        List::Xattrs(ino) => (&[Record::Xattr], Look::List, ino.0),
        List::Parents(ino) => (&[Record::Parents], Look::List, ino.0),
        List::Flocks(ino) => (&[Record::Flock], Look::List, ino.0),
        List::Plocks(ino) => (&[Record::Plock], Look::List, ino.0),
        List::Chunks(ino, ..) => (&[Record::Chunk], Look::Range, ino.0),
        List::Sustained(sid) => (&[Record::Sustained], Look::List, sid),
        List::LocksOf(sid) => (&[Record::Flock, Record::Plock], Look::OfSession, sid),
        List::Lanes(writer) => (&[Record::Writer], Look::List, writer),
        List::Changes(writer) => (&[Record::Changes], Look::List, writer),
        List::Extras(kind) => (&[Record::Extra], Look::List, kind.code() as u64),
    }
}

/// The first of these columns.
pub(crate) fn first(columns: &'static str, count: usize) -> Vec<&'static str> {
    columns.split(',').take(count).collect()
}

/// The condition that the first columns are what the parameters say.
pub(crate) fn equal(columns: &'static str, count: usize) -> String {
    let each = first(columns, count).into_iter().zip(1..).map(|(column, at)| format!("{column}=${at}"));
    each.collect::<Vec<_>>().join(" AND ")
}

/// What takes over a row that could not be inserted: after `ON CONFLICT`.
pub(crate) fn replacing(record: Record) -> String {
    let shape = record.shape();
    let rest = shape.columns.split(',').skip(shape.unique);
    let rest: Vec<String> = rest.map(|column| format!("{column}=excluded.{column}")).collect();
    let key = first(shape.columns, shape.unique).join(",");
    if rest.is_empty() {
        format!("({key}) DO NOTHING")
    } else {
        format!("({key}) DO UPDATE SET {}", rest.join(","))
    }
}
