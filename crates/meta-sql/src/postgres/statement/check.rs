//! The statements that lock rows, and fail unless the rows are as expected.
//!
//! What must stay true: a row is compared after it was locked. So the check sees what other clients
//! committed while this client waited.

use super::{
    columns::{equal, fail, many, names, params, sound, values_table},
    template::{Template, Type},
};
use crate::{
    codec::Record,
    plan::{Compare, Lock},
    schema::Column,
};

/// The statement, as written for the usual names, and the types of its parameters; `None` if it is
/// none of these.
pub(super) fn text(what: Template, record: Record, columns: &[Column]) -> Option<(String, Vec<Type>)> {
    let shape = record.shape();
    let table = shape.table;
    let named = &columns[..shape.named.min(columns.len())];
    Some(match what {
        Template::Hold(compare, lock) => hold(table, columns, shape.unique, compare, lock),
        Template::Absent => {
            let (from, types) = values_table(named);
            let exists = format!("EXISTS (SELECT FROM {table} n WHERE {})", equal(named));
            (fail(&format!("{from} WHERE {exists}")), types)
        }
        Template::QuotaAllows => {
            let key = &columns[..shape.unique];
            let types = [&[Type::I4s], &many(key)[..], &[Type::I8s; 2]].concat();
            let given = format!("unnest({}) k(at,{},space,inodes)", params(&types, 1), names(key, ""));
            let full = "n.max_space>0 AND n.used_space+k.space>n.max_space \
                        OR n.max_inodes>0 AND n.used_inodes+k.inodes>n.max_inodes";
            (fail(&format!("{given} JOIN {table} n ON {} WHERE {full}", equal(key))), types)
        }
        Template::Empty => {
            let exists = "EXISTS (SELECT FROM jfs_edge n WHERE n.parent=k.dir)";
            unless("at,dir", exists)
        }
        Template::Counted if record == Record::Acl => {
            let differs = "(SELECT max(id) FROM jfs_acl) IS DISTINCT FROM k.last";
            unless("at,last", differs)
        }
        Template::Counted => {
            let count = "(SELECT count(*) FROM jfs_edge n WHERE n.inode=k.ino AND n.parent=k.dir)";
            unless("at,ino,dir,count", &format!("{count}<>k.count"))
        }
        Template::SameLocks => {
            let types = [&[Type::I8; 2], &many(columns)[..]].concat();
            let all = format!("(SELECT count(*) FROM {table} WHERE inode=$1)<>$2");
            let given = format!("unnest({}) k({})", params(&types[2..], 3), names(columns, ""));
            let same = format!("(SELECT count(*) FROM {table} n JOIN {given} ON {})<>$2", equal(columns));
            (fail(&format!("(VALUES(0)) k(at) WHERE {all} OR {same}")), types)
        }
        _ => return None,
    })
}

/// Fails with the places of given numbers for which that holds. `names` are theirs, the place
/// first.
fn unless(names: &str, wrong: &str) -> (String, Vec<Type>) {
    let mut types = vec![Type::I8s; names.split(',').count()];
    types[0] = Type::I4s;
    (fail(&format!("unnest({}) k({names}) WHERE {wrong}", params(&types, 1))), types)
}

/// Each row is locked in its current state, after a wait for other holders, and then compared.
fn hold(table: &str, columns: &[Column], unique: usize, compare: Compare, lock: Lock) -> (String, Vec<Type>) {
    let strength = match lock {
        Lock::Key => "KEY SHARE",
        Lock::Share => "SHARE",
        Lock::Add => "NO KEY UPDATE",
        Lock::Update => "UPDATE",
    };
    let given = columns.iter().enumerate().filter(|(at, _)| compare.takes(*at, unique));
    let given: Vec<Column> = given.map(|(_, column)| *column).collect();
    let (keys, compared) = given.split_at(unique);
    let (from, types) = values_table(&given);
    let row = format!("SELECT {} FROM {table} n WHERE {} FOR {strength}", names(&given, "n."), equal(keys));
    let mut differs = vec![format!("n.{} IS NULL", keys[0].name)];
    differs.extend(compared.iter().map(|column| format!("{}<>{}", sound(column, "n"), sound(column, "k"))));
    let differs = differs.join(" OR ");
    (fail(&format!("{from} LEFT JOIN LATERAL ({row}) n ON true WHERE {differs}")), types)
}
