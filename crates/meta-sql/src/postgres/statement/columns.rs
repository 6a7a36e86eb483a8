//! The columns of the records, and the phrases made of them.
//!
//! What must stay true: columns stand in the order of the record's shape, which is that of its
//! values.

use std::borrow::Cow;

use super::template::{MARK, Type};
use crate::{codec::Record, schema::Kind, values::Value};

/// A column of a record.
pub(super) struct Column {
    /// As it stands in a statement.
    pub(super) name: &'static str,
    pub(super) kind: Type,
    pub(super) null: bool,
}

impl Column {
    /// The column of `of`, with nothing as its zero.
    pub(super) fn sound(&self, of: &str) -> String {
        if self.null {
            format!("coalesce({of}.{},{})", self.name, self.kind.zero())
        } else {
            format!("{of}.{}", self.name)
        }
    }
}

/// The columns of a record.
pub(super) fn described(record: Record) -> Vec<Column> {
    record
        .fields()
        .filter_map(|(name, column)| {
            let column = column?;
            let kind = match column.kind {
                Kind::I4 | Kind::Auto4 => Type::I4,
                Kind::I8 | Kind::Auto8 => Type::I8,
                Kind::Short | Kind::Text => Type::Text,
                Kind::Bytes | Kind::Limited(_) => Type::Bytes,
            };
            Some(Column { name, kind, null: column.null })
        })
        .collect()
}

/// A row of that unique key that says nothing.
pub(crate) fn placeholder(record: Record, unique: Vec<Value<'_>>) -> Vec<Value<'_>> {
    let rest = described(record).into_iter().skip(unique.len()).map(|column| match column.kind {
        _ if column.null => Value::Null,
        Type::I4 | Type::I8 => Value::Int(0),
        Type::Text => Value::Text(Cow::Borrowed(b"")),
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
    types.extend(columns.iter().map(|column| column.kind.many()));
    let names: Vec<&str> = columns.iter().map(|column| column.name).collect();
    (format!("unnest({}) k(at,{})", params(&types, 1), names.join(",")), types)
}

/// `n.a=k.a AND n.b=k.b`.
pub(super) fn equal(columns: &[Column]) -> String {
    columns.iter().map(|c| format!("n.{0}=k.{0}", c.name)).collect::<Vec<_>>().join(" AND ")
}

/// Names of columns, each behind `of`.
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
