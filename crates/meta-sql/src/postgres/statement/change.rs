//! The statements that write.
//!
//! What must stay true: a replaced row keeps columns that other programs added to the table. Rows
//! that must exist are counted: if fewer rows were written than requested, the statement fails.
//! Rows are locked in ascending order: given rows are sorted, and found rows are locked in this
//! order before the first write.

use super::{
    columns::{equal, many, names, params, replaced, sound, types, values_table},
    template::{MARK, Template, Type},
};
use crate::{codec::Record, log::TRIM, schema::Column};

/// The statement, as written for the usual names, and the types of its parameters; `None` if it is
/// none of these.
pub(super) fn text(what: Template, record: Record, columns: &[Column]) -> Option<(String, Vec<Type>)> {
    let shape = record.shape();
    let (table, listed) = (shape.table, shape.columns);
    let unique = &columns[..shape.unique.min(columns.len())];
    let named = &columns[..shape.named.min(columns.len())];
    let many = many(columns);
    Some(match what {
        Template::Insert => {
            let types = types(columns);
            (format!("INSERT INTO {table}({listed}) VALUES({})", params(&types, 1)), types)
        }
        Template::InsertMany => {
            (format!("INSERT INTO {table}({listed}) SELECT * FROM unnest({})", params(&many, 1)), many)
        }
        Template::Swap => swap(table, columns, unique.len()),
        Template::Take => {
            let none = fail_unless_one("d");
            (
                format!(
                    "WITH d AS (DELETE FROM {table} n WHERE {} RETURNING 1) {none}",
                    as_expected(columns)
                ),
                types(columns),
            )
        }
        Template::Put => {
            // A node is replaced under the lock that guards of it wait for, which is that of a
            // changed key.
            let rest = if record == Record::Node { columns } else { &columns[shape.unique..] };
            let then =
                if rest.is_empty() { "NOTHING".into() } else { format!("UPDATE SET {}", replaced(rest)) };
            (upsert(record, columns, &then), many)
        }
        Template::Delete => {
            let (from, mut types) = values_table(named);
            types.push(Type::I8);
            let fail = fail_unless("d", "at::text", types.len());
            (
                format!(
                    "WITH d AS (DELETE FROM {table} n USING {from} WHERE {} RETURNING k.at) {fail}",
                    equal(named)
                ),
                types,
            )
        }
        Template::Discard => {
            let (from, types) = values_table(named);
            let rows = found(&from, table, &equal(named), "UPDATE");
            (format!("{rows} DELETE FROM {table} n USING k WHERE {}", equal(named)), types)
        }
        Template::Clear => {
            let (id, rest) = (&unique[0], &unique[1..]);
            // A bound may lie beyond what its column holds.
            let kinds: Vec<Type> =
                rest.iter().map(|column| if column.is_number() { Type::I8 } else { Type::of(column) }).collect();
            let bound =
                |(at, sign)| format!("(${at} IS NULL OR ({}){sign}({}))", ordered(rest), params(&kinds, at));
            let [after, before] = [(2, '>'), (2 + rest.len(), '<')].map(bound);
            let which = format!("n.{}=ANY($1) AND {after} AND {before}", id.name);
            (clear(table, unique, &which), [&[Type::of(id).many()], &kinds[..], &kinds].concat())
        }
        Template::Step => (
            format!(
                "WITH u AS (UPDATE {table} SET n=$4 WHERE writer=$1 AND lane=$2 AND n=$3 RETURNING 1) {}",
                fail_unless_one("u")
            ),
            vec![Type::I8, Type::I4, Type::I8, Type::I8],
        ),
        Template::Add => add(record, columns, many),
        // As SET LOCAL, which warns of transactions that begin by themselves.
        Template::Softly => ("SELECT set_config('synchronous_commit','off',true)".into(), Vec::new()),
        Template::Harden => (format!("SELECT 1 FROM {table} FOR KEY SHARE"), Vec::new()),
        Template::Renumber => {
            let sequence = format!("pg_get_serial_sequence('{table}','id')");
            let next = format!("greatest(nextval({sequence}),(SELECT max(id) FROM {table}))");
            (format!("SELECT setval({sequence},{next})"), Vec::new())
        }
        Template::LogAppend => (
            "INSERT INTO jfs_change_log(entry) SELECT line FROM unnest($1) WITH ORDINALITY AS t(line,n) ORDER BY n"
                .into(),
            vec![Type::Texts],
        ),
        Template::LogTrim => (TRIM.into(), vec![Type::I8]),
        _ => return None,
    })
}

/// A row that is locked as it is now, if it is as the first parameters say, and gets the values of
/// those after them. The lock is that of a changed key, which guards of a node wait for.
fn swap(table: &str, columns: &[Column], unique: usize) -> (String, Vec<Type>) {
    let set = columns.iter().zip(columns.len() + 1..).skip(unique);
    let set = set.map(|(column, at)| format!("{}=${at}", column.name)).collect::<Vec<_>>().join(",");
    let key = columns[..unique].iter().zip(1..).map(|(column, at)| format!("n.{}=${at}", column.name));
    let key = key.collect::<Vec<_>>().join(" AND ");
    let text = format!(
        "WITH k AS MATERIALIZED (SELECT 1 FROM {table} n WHERE {} FOR UPDATE),\
         u AS (UPDATE {table} n SET {set} FROM k WHERE {key} RETURNING 1) {}",
        as_expected(columns),
        fail_unless_one("u")
    );
    (text, types(&[columns, columns].concat()))
}

/// Whether a row is what the parameters from the first on say.
fn as_expected(columns: &[Column]) -> String {
    let same = columns.iter().zip(1..).map(|(column, at)| {
        let wanted = format!("${at}::{}", Type::of(column).name());
        let wanted = if column.null { format!("coalesce({wanted},{})", column.nothing()) } else { wanted };
        format!("{}={wanted}", sound(column, "n"))
    });
    same.collect::<Vec<_>>().join(" AND ")
}

/// Fails with what all of `rows` have there, unless they are as many as a parameter says.
fn fail_unless(rows: &str, what: &str, count: usize) -> String {
    format!(
        "SELECT ('{MARK}'||coalesce(string_agg({what},','),''))::int4 FROM {rows} HAVING count(*)<>${count}"
    )
}

fn fail_unless_one(rows: &str) -> String {
    format!("SELECT ('{MARK}'||count(*))::int4 FROM {rows} HAVING count(*)<>1")
}

/// The rows `k` of `from` that are there, each locked in its turn.
fn found(from: &str, table: &str, equal: &str, strength: &str) -> String {
    format!(
        "WITH k AS MATERIALIZED (SELECT k.* FROM {from} CROSS JOIN LATERAL \
         (SELECT 1 FROM {table} n WHERE {equal} FOR {strength}) l)"
    )
}

/// Removes rows, which are locked in ascending order first.
fn clear(table: &str, unique: &[Column], which: &str) -> String {
    format!(
        "WITH k AS MATERIALIZED (SELECT {} FROM {table} n WHERE {which} ORDER BY {} FOR UPDATE) \
         DELETE FROM {table} n USING k WHERE {}",
        names(unique, "n."),
        ordered(unique),
        equal(unique)
    )
}

/// The columns as clients order them: texts by their bytes, whatever the database thinks of their
/// letters.
fn ordered(columns: &[Column]) -> String {
    let each = columns.iter().map(|column| {
        let collation = if column.is_text() { " COLLATE \"C\"" } else { "" };
        format!("n.{}{collation}", column.name)
    });
    each.collect::<Vec<_>>().join(",")
}

/// The writes that add. A bumped node whose times stay has no time.
fn add(record: Record, columns: &[Column], many: Vec<Type>) -> (String, Vec<Type>) {
    match record {
        Record::Node => (
            format!(
                "{},u AS (UPDATE jfs_node n SET nlink=greatest(n.nlink+k.by,0),\
                 mtimensec=CASE WHEN (n.mtime,n.mtimensec)<(k.t,k.ns) THEN k.ns ELSE n.mtimensec END,\
                 mtime=greatest(n.mtime,k.t),\
                 ctimensec=CASE WHEN (n.ctime,n.ctimensec)<(k.t,k.ns) THEN k.ns ELSE n.ctimensec END,\
                 ctime=greatest(n.ctime,k.t) FROM k WHERE n.inode=k.inode RETURNING k.at) {}",
                found(
                    "unnest($1::int4[],$2::int8[],$3::int4[],$4::int8[],$5::int4[]) k(at,inode,by,t,ns)",
                    "jfs_node",
                    "n.inode=k.inode",
                    "NO KEY UPDATE"
                ),
                fail_unless("u", "at::text", 6)
            ),
            vec![Type::I4s, Type::I8s, Type::I4s, Type::I8s, Type::I4s, Type::I8],
        ),
        Record::DirStat => add_to(record, &columns[..1], &columns[1..]),
        Record::DirQuota => add_to(record, &columns[..1], &columns[3..]),
        Record::Counter => (upsert(record, columns, "UPDATE SET value=n.value+excluded.value"), many),
        Record::SliceRef => (upsert(record, columns, "UPDATE SET refs=n.refs+excluded.refs-1"), many),
        Record::Quota => {
            let then = "UPDATE SET used_space=n.used_space+excluded.used_space,\
                        used_inodes=n.used_inodes+excluded.used_inodes";
            (upsert(record, columns, then), many)
        }
        // Appends to chunks, unless a record is damaged, because then it is unknown what the new
        // slices would hide.
        _ => (
            format!(
                "WITH a AS ({} WHERE octet_length(n.slices)%24=0 RETURNING inode||' '||indx AS chunk) {}",
                upsert(record, columns, "UPDATE SET slices=n.slices||excluded.slices"),
                fail_unless("a", "chunk", 4)
            ),
            many.into_iter().chain([Type::I8]).collect(),
        ),
    }
}

/// Adds to columns of rows that may exist.
fn add_to(record: Record, key: &[Column], added: &[Column]) -> (String, Vec<Type>) {
    let table = record.shape().table;
    let types = many(&[key, added].concat());
    let from = format!("unnest({}) k({},{})", params(&types, 1), names(key, ""), names(added, ""));
    let more: Vec<String> = added.iter().map(|column| format!("{0}=n.{0}+k.{0}", column.name)).collect();
    let rows = found(&from, table, &equal(key), "NO KEY UPDATE");
    (format!("{rows} UPDATE {table} n SET {} FROM k WHERE {}", more.join(","), equal(key)), types)
}

/// Inserts rows; `then` is done with those that exist.
fn upsert(record: Record, columns: &[Column], then: &str) -> String {
    let shape = record.shape();
    format!(
        "INSERT INTO {} AS n ({}) SELECT * FROM unnest({}) ON CONFLICT({}) DO {then}",
        shape.table,
        shape.columns,
        params(&many(columns), 1),
        names(&columns[..shape.unique], "")
    )
}
