//! The statements that hold rows and fail unless they are as expected.
//!
//! What must stay true: a row is looked at after it was locked, so that what others committed while
//! this client waited is seen.

use super::{
    columns::{Column, described, equal, fail, names, values_table},
    template::{Template, Type},
};
use crate::{
    codec::Record,
    plan::{Compare, Lock},
    values::is_guarded,
};

pub(super) fn text(what: Template, record: Record) -> (String, Vec<Type>) {
    let shape = record.shape();
    let table = shape.table;
    let columns = described(record);
    let named = &columns[..shape.named.min(columns.len())];
    match what {
        Template::Hold(compare, lock) => hold(table, &columns, shape.unique, compare, lock),
        Template::Absent => {
            let (from, types) = values_table(named);
            let exists = format!("EXISTS (SELECT FROM {table} n WHERE {})", equal(named));
            (format!("{} FROM {from} WHERE {exists}", fail("k.at")), types)
        }
        Template::Vacant => (
            format!(
                "{} FROM unnest($1::int4[],$2::int8[]) k(at,dir) \
                 WHERE EXISTS (SELECT FROM jfs_edge n WHERE n.parent=k.dir)",
                fail("k.at")
            ),
            vec![Type::I4s, Type::I8s],
        ),
        Template::Counted => (
            match record {
                Record::Acl => {
                    format!("{} WHERE (SELECT max(id) FROM jfs_acl) IS DISTINCT FROM $2", fail("$1"))
                }
                _ => format!(
                    "{} WHERE (SELECT count(*) FROM jfs_edge WHERE inode=$3 AND parent=$4)<>$2",
                    fail("$1")
                ),
            },
            if record == Record::Acl {
                vec![Type::I4, Type::I8]
            } else {
                vec![Type::I4, Type::I8, Type::I8, Type::I8]
            },
        ),
        _ => {
            let value = if record == Record::Flock { "ltype" } else { "encode(records,'hex')" };
            let text = format!("string_agg(sid||','||owner||','||{value},';' ORDER BY sid,owner)");
            let stored = format!("(SELECT coalesce({text},'') FROM {table} WHERE inode=$2)");
            (format!("{} WHERE {stored}<>$3", fail("$1")), vec![Type::I4, Type::I8, Type::Text])
        }
    }
}

/// Each row is locked as it is now, after whoever holds it is done, and compared then.
fn hold(table: &str, columns: &[Column], unique: usize, compare: Compare, lock: Lock) -> (String, Vec<Type>) {
    let strength = match lock {
        Lock::Key => "KEY SHARE",
        Lock::Share => "SHARE",
        Lock::Add => "NO KEY UPDATE",
        Lock::Update => "UPDATE",
    };
    let keys = &columns[..unique];
    let is_compared = |at: usize| match compare {
        Compare::Exists => false,
        Compare::Guard => is_guarded(at),
        Compare::Exact => true,
    };
    let compared = columns.iter().enumerate().skip(unique).filter(|(at, _)| is_compared(*at));
    let compared: Vec<&Column> = compared.map(|(_, column)| column).collect();
    let mut given_columns: Vec<Column> =
        keys.iter().map(|c| Column { name: c.name, kind: c.kind, null: false }).collect();
    given_columns.extend(compared.iter().map(|c| Column { name: c.name, kind: c.kind, null: c.null }));
    let (from, types) = values_table(&given_columns);
    let row =
        format!("SELECT {} FROM {table} n WHERE {} FOR {strength}", names(&given_columns, "n."), equal(keys));
    let mut differs = vec![format!("n.{} IS NULL", keys[0].name)];
    differs.extend(compared.iter().map(|column| format!("{}<>{}", column.sound("n"), column.sound("k"))));
    let differs = differs.join(" OR ");
    (format!("{} FROM {from} LEFT JOIN LATERAL ({row}) n ON true WHERE {differs}", fail("k.at")), types)
}
