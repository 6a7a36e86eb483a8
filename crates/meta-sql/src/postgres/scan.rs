//! Pages of large collections: one statement each, beginning behind the last key of the page
//! before.
//!
//! What must stay true: a page costs what it returns, however large the table, and rows that come
//! and go between two pages make none of the others be missed.

use sluice_meta::{
    engine::{Cursor, EngineError, Page, Scan},
    schema::{QuotaKey, Row},
};
use sluice_types::Ino;

use super::{
    Store,
    flight::{Answer, Arg, Flight},
    read::{joined_node, odd},
    statement::Template,
};
use crate::{
    codec::{Columns, Damage, Record, decode},
    values::{Value, quota_columns},
};

impl Store {
    pub(super) fn page(&self, scan: Scan, from: Option<&Cursor>, limit: usize) -> Result<Page, EngineError> {
        let limit = i64::try_from(limit.max(1)).unwrap_or(i64::MAX);
        let record = match scan {
            Scan::Entries { dir, nodes } => return self.entries(dir, nodes, from, limit),
            Scan::Quotas => return self.quotas(from, limit),
            Scan::Writers => return self.writers(from, limit),
            Scan::Nodes => Record::Node,
            Scan::AllEntries => Record::Entry,
            Scan::Chunks => Record::Chunk,
            Scan::SliceRefs => Record::SliceRef,
            Scan::DelFiles => Record::DelFile,
            Scan::DelSlices => Record::DelSlices,
            Scan::Sessions => Record::Session,
            Scan::Sustained => Record::Sustained,
            Scan::Detached => Record::Detached,
            Scan::Acls => Record::Acl,
            Scan::DirStats => Record::DirStat,
        };
        let after = match from {
            None => i64::MIN,
            Some(cursor) => self.numbers::<1>(cursor)?[0],
        };
        let answer = self.paged(Template::Page, record, vec![Arg::int(after), Arg::int(limit)])?;
        let (mut rows, mut damaged, mut last) = (Vec::new(), Vec::new(), after);
        for row in &answer.rows {
            last = row.int(0).map_err(|reason| self.pool.options.damaged(odd(reason)))?;
            self.sort(decode(record, row, 1), &mut rows, &mut damaged);
        }
        let full = answer.rows.len() as i64 == limit;
        Ok(Page { rows, damaged, next: full.then(|| cursor(&[last])) })
    }

    fn paged(&self, what: Template, record: Record, args: Vec<Arg<'_>>) -> Result<Answer, EngineError> {
        let mut flight = Flight::default();
        flight.add(self.catalog.get(what, record), args);
        let answers = self.pool.ask(&flight).map_err(|failed| failed.plain(&self.pool.options))?;
        Ok(answers.into_iter().next().unwrap_or_default())
    }

    /// Puts a record to those of its kind: what can be read, and what cannot.
    fn sort(&self, decoded: Result<Row, Damage>, rows: &mut Vec<Row>, damaged: &mut Vec<EngineError>) {
        match decoded {
            Ok(row) => rows.push(row),
            Err(damage) => damaged.push(self.pool.options.damaged(damage)),
        }
    }

    fn entries(&self, dir: Ino, nodes: bool, from: Option<&Cursor>, limit: i64) -> Result<Page, EngineError> {
        // No name is empty, so the empty one lies before all others.
        let after: &[u8] = from.map_or(&[], |cursor| &cursor.0);
        let args = vec![Arg::int(dir.0 as i64), Arg::One(Value::Bytes(after.into())), Arg::int(limit)];
        let what = if nodes { Template::EntriesNodes } else { Template::Entries };
        let answer = self.paged(what, Record::Entry, args)?;
        let damage = |damage| self.pool.options.damaged(damage);
        let (mut rows, mut damaged) = (Vec::new(), Vec::new());
        for row in &answer.rows {
            rows.push(decode(Record::Entry, row, 0).map_err(damage)?);
            if nodes && let Some(node) = joined_node(row, 0) {
                self.sort(node, &mut rows, &mut damaged);
            }
        }
        let full = answer.rows.len() as i64 == limit;
        let last = answer.rows.last().filter(|_| full).map(|row| row.bytes(1).map(<[u8]>::to_vec));
        let last = last.transpose().map_err(|reason| damage(odd(reason)))?;
        Ok(Page { rows, damaged, next: last.map(Cursor) })
    }

    /// Quotas of directories, then those of users and groups.
    fn quotas(&self, from: Option<&Cursor>, limit: i64) -> Result<Page, EngineError> {
        let [kind, of] = match from {
            None => [0, i64::MIN],
            Some(cursor) => self.numbers(cursor)?,
        };
        let mut rows = Vec::new();
        if kind == 0 {
            let args = vec![Arg::int(of), Arg::int(limit)];
            for row in &self.paged(Template::Page, Record::DirQuota, args)?.rows {
                // Behind the column that numbers the rows.
                rows.push(
                    decode(Record::DirQuota, row, 1).map_err(|damage| self.pool.options.damaged(damage))?,
                );
            }
        }
        if (rows.len() as i64) < limit {
            let after = if kind == 0 { [0, i64::MAX] } else { [kind, of] };
            let wanted = limit - rows.len() as i64;
            let args = vec![Arg::int(after[0]), Arg::int(after[1]), Arg::int(wanted)];
            for row in &self.paged(Template::Page, Record::Quota, args)?.rows {
                rows.push(decode(Record::Quota, row, 0).map_err(|damage| self.pool.options.damaged(damage))?);
            }
        }
        let next = match rows.last() {
            Some(Row::Quota(key, _)) if rows.len() as i64 == limit => Some(quota_cursor(*key)),
            _ => None,
        };
        Ok(Page { rows, damaged: Vec::new(), next })
    }

    fn writers(&self, from: Option<&Cursor>, limit: i64) -> Result<Page, EngineError> {
        let [writer, lane] = match from {
            None => [i64::MIN, 0],
            Some(cursor) => self.numbers(cursor)?,
        };
        let args = vec![Arg::int(writer), Arg::int(lane), Arg::int(limit)];
        let answer = self.paged(Template::Page, Record::Writer, args)?;
        let decoded = answer.rows.iter().map(|row| decode(Record::Writer, row, 0));
        let rows: Vec<Row> =
            decoded.collect::<Result<_, _>>().map_err(|damage| self.pool.options.damaged(damage))?;
        let next = match rows.last() {
            Some(Row::Writer(writer, lane, _)) if rows.len() as i64 == limit => {
                Some(cursor(&[*writer as i64, i64::from(*lane)]))
            }
            _ => None,
        };
        Ok(Page { rows, damaged: Vec::new(), next })
    }

    /// The numbers of a cursor.
    fn numbers<const N: usize>(&self, cursor: &Cursor) -> Result<[i64; N], EngineError> {
        let (numbers, rest) = cursor.0.as_chunks::<8>();
        if numbers.len() != N || !rest.is_empty() {
            return Err(self.pool.options.refused("the cursor belongs to another scan"));
        }
        Ok(std::array::from_fn(|at| i64::from_be_bytes(numbers[at])))
    }
}

fn cursor(numbers: &[i64]) -> Cursor {
    Cursor(numbers.iter().flat_map(|number| number.to_be_bytes()).collect())
}

fn quota_cursor(key: QuotaKey) -> Cursor {
    let (kind, of) = quota_columns(key);
    cursor(&[kind, of])
}
