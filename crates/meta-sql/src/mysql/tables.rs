//! The names of the volume's tables in MySQL, and the text of values for their columns.
//!
//! Statements are sent as text that contains the values, because only then several statements can
//! be sent in one round trip. What must stay true: a value cannot be interpreted as SQL. Numbers
//! are written as digits. A text with other characters than letters and digits is written in
//! hexadecimal.

use std::fmt::Write as _;

use super::style::overflow;
use crate::{
    codec::Record,
    schema::{Column, Dialect},
    text::{Look, joined, look},
    values::Value,
    volume::Volume,
};

/// Where the rows of a record are, and how they are spelled.
pub(super) struct Place {
    /// The table, in backticks.
    pub(super) table: String,
    /// Its table and the index that [`Place::unique`] columns lead, so that nothing else is locked
    /// or searched.
    pub(super) indexed: String,
    /// Its columns, separated by commas.
    pub(super) columns: &'static str,
    fields: Vec<Column>,
    /// How many columns lead a unique key.
    pub(super) unique: usize,
    /// How many columns a key names.
    pub(super) named: usize,
}

/// All of them.
pub(super) struct Tables {
    volume: Volume,
    places: Vec<Place>,
    /// What reads entries `e` and their nodes, up to its WHERE.
    pub(super) joined: String,
}

impl Tables {
    pub(super) fn new(volume: &Volume) -> Self {
        Self {
            volume: volume.clone(),
            places: Record::ALL.iter().map(|record| Place::new(*record, volume)).collect(),
            joined: volume.sql(&joined("")).into_owned(),
        }
    }

    /// The statement that looks once.
    pub(super) fn look(&self, what: Look, record: Record, values: &[Value<'_>]) -> String {
        self.filled(&look(what, record, Dialect::Mysql), values)
    }

    /// A statement as written for the usual names, with the values in it.
    pub(super) fn filled(&self, text: &str, values: &[Value<'_>]) -> String {
        let text = self.volume.sql(text);
        let mut parts = text.split('$');
        let mut out = parts.next().unwrap_or_default().to_owned();
        for part in parts {
            // No statement has more than nine.
            let (number, rest) = part.split_at(1);
            let value = number.parse().ok().and_then(|at: usize| values.get(at.wrapping_sub(1)));
            push(&mut out, value.unwrap_or(&Value::Null), false);
            out.push_str(rest);
        }
        out
    }

    pub(super) fn of(&self, record: Record) -> &Place {
        &self.places[record as usize]
    }
}

impl Place {
    fn new(record: Record, volume: &Volume) -> Self {
        let shape = record.shape();
        let name = volume.table(shape.table);
        let index = match record.table().and_then(|table| table.unique) {
            Some((index, _)) => format!("UQE_{name}_{index}"),
            None => "PRIMARY".into(),
        };
        Self {
            table: format!("`{name}`"),
            indexed: format!("`{name}` FORCE INDEX(`{index}`)"),
            columns: shape.columns,
            fields: record.columns(),
            unique: shape.unique,
            named: shape.named,
        }
    }

    /// The first `count` columns as a tuple, to be compared with values as [`Place::exact`] writes
    /// them.
    pub(super) fn exact_columns(&self, out: &mut String, at: &[usize]) {
        tuple(out, at, |out, at| {
            let field = &self.fields[at];
            let name = field.name;
            // What names the row is looked up as its index knows it, be it in another case.
            let _ = if field.is_text() && at >= self.unique {
                write!(out, "{}", as_bytes(name))
            } else if field.null {
                write!(out, "IFNULL({name},{})", field.nothing())
            } else {
                write!(out, "{name}")
            };
        });
    }

    /// Values to be compared with columns as [`Place::exact_columns`] writes them.
    pub(super) fn exact(&self, out: &mut String, at: &[usize], values: &[Value<'_>]) {
        tuple(out, at, |out, at| match &values[at] {
            Value::Text(text) if at >= self.unique => push_bytes(out, text),
            Value::Null => out.push_str("''"),
            value => self.push(out, at, value),
        });
    }

    /// The condition that what follows the first column in the unique key is less (`<`) or more
    /// (`>`) than that of another row, texts by their bytes.
    pub(super) fn beside(&self, out: &mut String, sign: char, bound: &[Value<'_>]) {
        let at: Vec<usize> = (1..self.unique).collect();
        tuple(out, &at, |out, at| match &self.fields[at] {
            field if field.is_text() => out.push_str(&as_bytes(field.name)),
            field => out.push_str(field.name),
        });
        out.push(sign);
        tuple(out, &at, |out, at| match &bound[at - 1] {
            Value::Text(text) => push_bytes(out, text),
            // A bound may lie beyond what the column holds.
            Value::Int(number) => push_int(out, *number),
            value => self.push(out, at, value),
        });
    }

    /// The condition that the unique key is one of these, which are sorted: equalities and a list,
    /// for servers do not look up tuples in an index.
    pub(super) fn among_keys<'v>(&self, out: &mut String, keys: &[impl AsRef<[Value<'v>]>]) {
        let last = self.unique - 1;
        let alike = |a: &[Value<'v>], b: &[Value<'v>], listed: usize| {
            (0..self.unique).all(|at| at == listed || a[at] == b[at])
        };
        // Where the keys differ in one column only, one list says it all: servers take long to plan
        // for one of many lists.
        let one_list =
            |listed: &usize| keys.windows(2).all(|two| alike(two[0].as_ref(), two[1].as_ref(), *listed));
        let listed = (0..=last).rev().find(one_list).unwrap_or(last);
        let groups = keys.chunk_by(|a, b| alike(a.as_ref(), b.as_ref(), listed));
        for (number, group) in groups.enumerate() {
            out.push_str(if number > 0 { " OR " } else { "(" });
            for at in (0..self.unique).filter(|at| *at != listed) {
                let _ = write!(out, "{}=", self.fields[at].name);
                self.push(out, at, &group[0].as_ref()[at]);
                out.push_str(" AND ");
            }
            let _ = write!(out, "{} IN (", self.fields[listed].name);
            commas(out, group, |out, key| self.push(out, listed, &key.as_ref()[listed]));
            out.push(')');
        }
        out.push(')');
    }

    /// The condition that the columns that a key names are those of one of these.
    pub(super) fn among_named<'v>(&self, out: &mut String, keys: &[impl AsRef<[Value<'v>]>]) {
        tuple_of(out, self.named, |out, at| out.push_str(self.fields[at].name));
        out.push_str(" IN (");
        commas(out, keys, |out, key| {
            tuple_of(out, self.named, |out, at| self.push(out, at, &key.as_ref()[at]));
        });
        out.push(')');
    }

    /// All values of a row, in parentheses.
    pub(super) fn row(&self, out: &mut String, values: &[Value<'_>]) {
        out.push('(');
        commas(out, values.iter().enumerate(), |out, (at, value)| self.push(out, at, value));
        out.push(')');
    }

    /// What makes an insert fail, as a failed check does, if the row exists. A plain insert fails,
    /// too, but looks for the row under shared locks. If the index still has a removed row with the
    /// same key, several clients get them, and then each waits for the others.
    pub(super) fn refusing(&self) -> String {
        let key = self.fields[0].name;
        format!(" ON DUPLICATE KEY UPDATE {key}={}", overflow(&format!("{key} IS NOT NULL")))
    }

    /// What replaces a row that exists.
    pub(super) fn replacing(&self) -> String {
        let mut out = " ON DUPLICATE KEY UPDATE ".to_owned();
        // Where the key is all there is, something harmless.
        let from = self.unique.min(self.fields.len() - 1);
        commas(&mut out, &self.fields[from..], |out, field| {
            let _ = write!(out, "{0}=VALUES({0})", field.name);
        });
        out
    }

    /// What each of several rows, named by its first column, has for the column `at`: a number.
    pub(super) fn each(&self, out: &mut String, at: usize, rows: impl Iterator<Item = (i64, i64)> + Clone) {
        let mut values = rows.clone().map(|(_, value)| value);
        let first = values.next().unwrap_or_default();
        if values.all(|value| value == first) {
            return self.push(out, at, &Value::Int(first));
        }
        let _ = write!(out, "CASE {}", self.fields[0].name);
        for (key, value) in rows {
            let _ = write!(out, " WHEN {key} THEN ");
            self.push(out, at, &Value::Int(value));
        }
        out.push_str(" END");
    }

    /// The name of a column.
    pub(super) fn name(&self, at: usize) -> &'static str {
        self.fields[at].name
    }

    pub(super) fn push(&self, out: &mut String, at: usize, value: &Value<'_>) {
        push(out, value, self.fields[at].is_narrow());
    }

    /// Numbers of all columns.
    pub(super) fn all(&self) -> Vec<usize> {
        (0..self.fields.len()).collect()
    }
}

/// A text as the bytes of its UTF-8, whatever the character set of the column.
fn as_bytes(name: &str) -> String {
    format!("CAST(CONVERT({name} USING utf8mb4) AS BINARY)")
}

fn tuple(out: &mut String, of: &[usize], mut each: impl FnMut(&mut String, usize)) {
    tuple_of(out, of.len(), |out, at| each(out, of[at]));
}

/// One value as it is, several in parentheses.
fn tuple_of(out: &mut String, count: usize, mut each: impl FnMut(&mut String, usize)) {
    if count == 1 {
        return each(out, 0);
    }
    out.push('(');
    commas(out, 0..count, each);
    out.push(')');
}

/// Items, with commas between them.
pub(super) fn commas<T>(
    out: &mut String,
    items: impl IntoIterator<Item = T>,
    mut each: impl FnMut(&mut String, T),
) {
    for (at, item) in items.into_iter().enumerate() {
        out.push_str(if at > 0 { "," } else { "" });
        each(out, item);
    }
}

/// A value; of a number that is narrow, 32 bits.
fn push(out: &mut String, value: &Value<'_>, narrow: bool) {
    match value {
        Value::Null => out.push_str("NULL"),
        Value::Int(number) if narrow => push_int(out, i64::from(*number as i32)),
        Value::Int(number) => push_int(out, *number),
        Value::Text(text) => push_text(out, text),
        Value::Bytes(bytes) => push_bytes(out, bytes),
    }
}

pub(super) fn push_int(out: &mut String, number: i64) {
    out.push_str(itoa::Buffer::new().format(number));
}

fn is_plain(bytes: &[u8]) -> bool {
    bytes.len() < 256
        && bytes
            .iter()
            .all(|b| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b'-' | b' ' | b'/' | b':'))
}

pub(super) fn push_bytes(out: &mut String, bytes: &[u8]) {
    if is_plain(bytes) {
        push_plain(out, bytes);
    } else {
        push_hex(out, bytes);
    }
}

/// Text, which the server stores in the character set of the column.
pub(super) fn push_text(out: &mut String, text: &[u8]) {
    if !is_plain(text) {
        out.push_str("_utf8mb4 ");
    }
    push_bytes(out, text);
}

fn push_plain(out: &mut String, bytes: &[u8]) {
    out.push('\'');
    out.extend(bytes.iter().map(|byte| char::from(*byte)));
    out.push('\'');
}

/// By hand, for `hex::encode` takes three times as long.
fn push_hex(out: &mut String, bytes: &[u8]) {
    const DIGITS: [char; 16] =
        ['0', '1', '2', '3', '4', '5', '6', '7', '8', '9', 'a', 'b', 'c', 'd', 'e', 'f'];
    out.reserve(2 * bytes.len() + 3);
    out.push_str("x'");
    for byte in bytes {
        out.push(DIGITS[usize::from(byte >> 4)]);
        out.push(DIGITS[usize::from(byte & 15)]);
    }
    out.push('\'');
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_cannot_leave_their_literal() {
        let mut out = String::new();
        for bytes in [&b"a'; DROP"[..], b"\\", b"\"", b"plain-1.txt", b"", b"\xff\0"] {
            push_bytes(&mut out, bytes);
            out.push(' ');
        }
        assert_eq!(out, "x'61273b2044524f50' x'5c' x'22' 'plain-1.txt' '' x'ff00' ");
        let mut volume = Volume::new("");
        volume.set_prefix("v").expect("valid");
        let tables = Tables::new(&volume);
        let place = tables.of(Record::Node);
        assert_eq!(place.indexed, "`jfs_v_node` FORCE INDEX(`PRIMARY`)");
        assert_eq!(tables.of(Record::Entry).indexed, "`jfs_v_edge` FORCE INDEX(`UQE_jfs_v_edge_edge`)");
        out.clear();
        place.push(&mut out, 4, &Value::Int(i64::from(u32::MAX)));
        assert_eq!(out, "-1", "32 bits keep theirs");
    }
}
