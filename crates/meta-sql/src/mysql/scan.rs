//! Pages of large collections: one statement each, beginning behind the last key of the page
//! before.
//!
//! What must stay true: a page costs what it returns, however large the table, and rows that come
//! and go between two pages make none of the others be missed.

use std::fmt::Write as _;

use mysql_async::Row as Columned;
use sluice_meta::{
    engine::{Cursor, EngineError, Page, Scan},
    schema::{QuotaKey, Row},
};
use sluice_types::Ino;

use super::{
    pool::Pool,
    read::{ENTRY, join, joined_node},
    tables::{Tables, push_bytes},
};
use crate::{
    codec::{Columns, Damage, Record, decode},
    values::quota_columns,
};

/// One page.
pub(super) fn page(
    pool: &Pool,
    tables: &Tables,
    scan: Scan,
    from: Option<&Cursor>,
    limit: usize,
) -> Result<Page, EngineError> {
    let scanner = Scanner { pool, tables, limit: limit.max(1) };
    let (record, key) = match scan {
        Scan::Entries { dir, nodes } => return scanner.entries(dir, nodes, from),
        Scan::Quotas => return scanner.quotas(from),
        Scan::Writers => return scanner.writers(from),
        Scan::Nodes => (Record::Node, "inode"),
        Scan::AllEntries => (Record::Entry, "id"),
        Scan::Chunks => (Record::Chunk, "id"),
        Scan::SliceRefs => (Record::SliceRef, "chunkid"),
        Scan::DelFiles => (Record::DelFile, "inode"),
        Scan::DelSlices => (Record::DelSlices, "chunkid"),
        Scan::Sessions => (Record::Session, "sid"),
        Scan::Sustained => (Record::Sustained, "id"),
        Scan::Detached => (Record::Detached, "inode"),
        Scan::Acls => (Record::Acl, "id"),
        Scan::DirStats => (Record::DirStat, "inode"),
    };
    scanner.numbered(record, key, from)
}

struct Scanner<'p> {
    pool: &'p Pool,
    tables: &'p Tables,
    limit: usize,
}

impl Scanner<'_> {
    fn ask(&self, text: &str) -> Result<Vec<Columned>, EngineError> {
        let answers = self.pool.ask(text).map_err(|failed| self.pool.options.unanswered(failed))?;
        Ok(answers.into_iter().next().unwrap_or_default())
    }

    fn many(&self, record: Record, condition: &str) -> Result<Vec<Row>, EngineError> {
        let place = self.tables.of(record);
        let rows = self.ask(&format!("SELECT {} FROM {} WHERE {condition}", place.columns, place.table))?;
        let decoded = rows.iter().map(|row| decode(record, row, 0));
        decoded.collect::<Result<_, _>>().map_err(|damage| self.pool.options.damaged(damage))
    }

    /// Puts a record to those of its kind: what can be read, and what cannot.
    fn sort(&self, decoded: Result<Row, Damage>, page: &mut Page) {
        match decoded {
            Ok(row) => page.rows.push(row),
            Err(damage) => page.damaged.push(self.pool.options.damaged(damage)),
        }
    }

    /// A table whose rows are numbered by one column.
    fn numbered(&self, record: Record, key: &str, from: Option<&Cursor>) -> Result<Page, EngineError> {
        let [after] = self.numbers(from, [i64::MIN])?;
        let (place, limit) = (self.tables.of(record), self.limit);
        let rows = self.ask(&format!(
            "SELECT {key},{} FROM {} FORCE INDEX(PRIMARY) WHERE {key}>{after} ORDER BY {key} LIMIT {limit}",
            place.columns, place.table
        ))?;
        let mut page = Page { rows: Vec::new(), damaged: Vec::new(), next: None };
        for row in &rows {
            self.sort(decode(record, row, 1), &mut page);
        }
        if let Some(last) = rows.last().filter(|_| rows.len() == limit) {
            let damage =
                |reason| self.pool.options.damaged(Damage { record: "a row's number".into(), reason });
            page.next = Some(cursor(&[last.int(0).map_err(damage)?]));
        }
        Ok(page)
    }

    fn entries(&self, dir: Ino, nodes: bool, from: Option<&Cursor>) -> Result<Page, EngineError> {
        let limit = self.limit;
        let index = self.tables.of(Record::Entry).indexed.split_once(' ').map_or("", |(_, index)| index);
        let mut text = if nodes {
            join(self.tables, &format!(" {index}"))
        } else {
            let prefixed = ENTRY.split(',').map(|column| format!("e.{column}")).collect::<Vec<_>>().join(",");
            format!("SELECT {prefixed} FROM {} e {index} ", self.tables.edge)
        };
        let _ = write!(text, "WHERE e.parent={} AND e.name>", dir.0 as i64);
        // No name is empty, so the empty one lies before all others.
        push_bytes(&mut text, from.map_or(&[], |cursor| &cursor.0));
        let _ = write!(text, " ORDER BY e.name LIMIT {limit}");
        let rows = self.ask(&text)?;
        let mut page = Page { rows: Vec::new(), damaged: Vec::new(), next: None };
        for row in &rows {
            page.rows
                .push(decode(Record::Entry, row, 0).map_err(|damage| self.pool.options.damaged(damage))?);
            if nodes && let Some(node) = joined_node(row) {
                self.sort(node, &mut page);
            }
        }
        if let Some(last) = rows.last().filter(|_| rows.len() == limit) {
            let damage = |reason| self.pool.options.damaged(Damage { record: format!("edge {dir}"), reason });
            page.next = Some(Cursor(last.bytes(1).map_err(damage)?.to_vec()));
        }
        Ok(page)
    }

    /// Quotas of directories, then those of users and groups.
    fn quotas(&self, from: Option<&Cursor>) -> Result<Page, EngineError> {
        let [kind, of] = self.numbers(from, [0, i64::MIN])?;
        let limit = self.limit;
        let mut rows = Vec::new();
        if kind == 0 {
            rows = self.many(Record::DirQuota, &format!("inode>{of} ORDER BY inode LIMIT {limit}"))?;
        }
        if rows.len() < limit {
            let [kind, of] = if kind == 0 { [0, i64::MAX] } else { [kind, of] };
            let wanted = limit - rows.len();
            let condition =
                format!("qtype>{kind} OR (qtype={kind} AND qkey>{of}) ORDER BY qtype,qkey LIMIT {wanted}");
            rows.extend(self.many(Record::Quota, &condition)?);
        }
        let next = match rows.last() {
            Some(Row::Quota(key, _)) if rows.len() == limit => Some(quota_cursor(*key)),
            _ => None,
        };
        Ok(Page { rows, damaged: Vec::new(), next })
    }

    fn writers(&self, from: Option<&Cursor>) -> Result<Page, EngineError> {
        let [writer, lane] = self.numbers(from, [i64::MIN; 2])?;
        let limit = self.limit;
        let condition = format!(
            "writer>{writer} OR (writer={writer} AND lane>{lane}) ORDER BY writer,lane LIMIT {limit}"
        );
        let rows = self.many(Record::Writer, &condition)?;
        let next = match rows.last() {
            Some(Row::Writer(writer, lane, _)) if rows.len() == limit => {
                Some(cursor(&[*writer as i64, i64::from(*lane)]))
            }
            _ => None,
        };
        Ok(Page { rows, damaged: Vec::new(), next })
    }

    /// The numbers of a cursor, or where to begin.
    fn numbers<const N: usize>(
        &self,
        from: Option<&Cursor>,
        begin: [i64; N],
    ) -> Result<[i64; N], EngineError> {
        let Some(cursor) = from else { return Ok(begin) };
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
