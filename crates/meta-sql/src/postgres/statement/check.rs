//! The statements that hold rows and fail unless they are as expected.
//!
//! What must stay true: a row is looked at after it was locked, so that what others committed while
//! this client waited is seen.

use super::{
    Do, Lock, Same, Type,
    columns::{Column, described, equal, fail, given, names},
};
use crate::codec::Record;

/// Columns of a node that a guard names.
const GUARDED: [&str; 9] =
    ["type", "mode", "uid", "gid", "flags", "parent", "access_acl_id", "default_acl_id", "tier_id"];

pub(super) fn text(what: Do, record: Record) -> (String, Vec<Type>) {
    let shape = record.shape();
    let table = shape.table;
    let columns = described(record);
    let named = &columns[..shape.named.min(columns.len())];
    match what {
        Do::Hold(same, lock) => hold(table, &columns, shape.unique, same, lock),
        Do::Absent => {
            let (from, types) = given(named);
            let exists = format!("EXISTS (SELECT FROM {table} n WHERE {})", equal(named));
            (format!("{} FROM {from} WHERE {exists}", fail("k.at")), types)
        }
        Do::Vacant => (
            format!(
                "{} FROM unnest($1::int4[],$2::int8[]) k(at,dir) \
                 WHERE EXISTS (SELECT FROM jfs_edge n WHERE n.parent=k.dir)",
                fail("k.at")
            ),
            vec![Type::I4s, Type::I8s],
        ),
        Do::Counted => (
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
fn hold(table: &str, columns: &[Column], unique: usize, same: Same, lock: Lock) -> (String, Vec<Type>) {
    let strength = match lock {
        Lock::Key => "KEY SHARE",
        Lock::Share => "SHARE",
        Lock::Add => "NO KEY UPDATE",
        Lock::Update => "UPDATE",
    };
    let keys = &columns[..unique];
    let compared = |column: &&Column| match same {
        Same::There => false,
        Same::Guarded => GUARDED.contains(&column.name.trim_matches('`')),
        Same::All => true,
    };
    let compared: Vec<&Column> = columns[unique..].iter().filter(compared).collect();
    let mut given_columns: Vec<Column> =
        keys.iter().map(|c| Column { name: c.name, kind: c.kind, null: false }).collect();
    given_columns.extend(compared.iter().map(|c| Column { name: c.name, kind: c.kind, null: c.null }));
    let (from, types) = given(&given_columns);
    let row =
        format!("SELECT {} FROM {table} n WHERE {} FOR {strength}", names(&given_columns, "n."), equal(keys));
    let mut differs = vec![format!("n.{} IS NULL", keys[0].name)];
    differs.extend(compared.iter().map(|column| format!("{}<>{}", column.sound("n"), column.sound("k"))));
    let differs = differs.join(" OR ");
    (format!("{} FROM {from} LEFT JOIN LATERAL ({row}) n ON true WHERE {differs}", fail("k.at")), types)
}
