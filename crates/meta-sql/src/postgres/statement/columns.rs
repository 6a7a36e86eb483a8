//! The columns of the records, and the SQL fragments made of them.
//!
//! What must stay true: columns have the order of the record's shape, which is also the order of
//! its values.

use std::borrow::Cow;

use super::template::{MARK, Type};
use crate::{codec::Record, schema::Column, values::Value};

/// A column `of` a row, with nothing as its zero.
pub(super) fn sound(column: &Column, of: &str) -> String {
    if column.null {
        format!("coalesce({of}.{},{})", column.name, column.nothing())
    } else {
        format!("{of}.{}", column.name)
    }
}

/// The types of columns.
pub(super) fn types(columns: &[Column]) -> Vec<Type> {
    columns.iter().map(Type::of).collect()
}

/// The types of columns of many rows.
pub(super) fn many(columns: &[Column]) -> Vec<Type> {
    columns.iter().map(|column| Type::of(column).many()).collect()
}

/// A row of that unique key that says nothing.
pub(crate) fn placeholder(record: Record, unique: Vec<Value<'_>>) -> Vec<Value<'_>> {
    let rest = record.columns().into_iter().skip(unique.len()).map(|column| match column {
        _ if column.null => Value::Null,
        _ if column.is_number() => Value::Int(0),
        _ if column.is_text() => Value::Text(Cow::Borrowed(b"")),
        _ => Value::Bytes(Cow::Borrowed(b"")),
    });
    unique.into_iter().chain(rest).collect()
}

/// `$1::int8[],$2::bytea[]`, from parameter `first` on.
pub(super) fn params(types: &[Type], first: usize) -> String {
    let each = types.iter().enumerate().map(|(at, kind)| format!("${}::{}", at + first, kind.name()));
    each.collect::<Vec<_>>().join(",")
}

/// Columns of given rows, `k`, as a table with the place of each.
pub(super) fn values_table(columns: &[Column]) -> (String, Vec<Type>) {
    let mut types = vec![Type::I4s];
    types.extend(many(columns));
    (format!("unnest({}) k(at,{})", params(&types, 1), names(columns, "")), types)
}

/// `n.a=k.a AND n.b=k.b`.
pub(super) fn equal(columns: &[Column]) -> String {
    columns.iter().map(|c| format!("n.{0}=k.{0}", c.name)).collect::<Vec<_>>().join(" AND ")
}

/// Names of columns, each after `of`.
pub(super) fn names(columns: &[Column], of: &str) -> String {
    columns.iter().map(|column| format!("{of}{}", column.name)).collect::<Vec<_>>().join(",")
}

/// `a=excluded.a,b=excluded.b`.
pub(super) fn replaced(columns: &[Column]) -> String {
    columns.iter().map(|c| format!("{0}=excluded.{0}", c.name)).collect::<Vec<_>>().join(",")
}

/// Fails with the places of all rows that are found in `from`, and does not if there are none.
pub(super) fn fail(from: &str) -> String {
    format!("SELECT ('{MARK}'||string_agg(k.at::text,','))::int4 FROM {from}")
}
