//! Pages of large collections: one statement each, beginning behind the last key of the page
//! before.
//!
//! What must stay true: a page costs what it returns, however large the table, and rows that come
//! and go between two pages make none of the others be missed.

use rusqlite::params;
use sluice_meta::{
    engine::{Cursor, EngineError, Page, Scan},
    schema::{QuotaKey, Row},
};
use sluice_types::Ino;

use super::read::{Columned, Reader, id, join, joined_node};
use crate::{
    codec::{Columns, Damage, Record, columns, decode},
    values::quota_columns,
};

/// A statement whose first column numbers the rows, behind which come those of the record.
macro_rules! paged {
    ($record:ident, $table:literal, $key:literal) => {
        (
            Record::$record,
            concat!(
                "SELECT ",
                $key,
                ",",
                columns!($record),
                " FROM ",
                $table,
                " WHERE ",
                $key,
                ">?1 ORDER BY ",
                $key,
                " LIMIT ?2"
            ),
        )
    };
}

impl Reader<'_, '_> {
    pub(super) fn page(self, scan: Scan, from: Option<&Cursor>, limit: usize) -> Result<Page, EngineError> {
        let limit = i64::try_from(limit.max(1)).unwrap_or(i64::MAX);
        let numbered = match scan {
            Scan::Entries { dir, nodes } => return self.entries(dir, nodes, from, limit),
            Scan::Quotas => return self.quotas(from, limit),
            Scan::Writers => return self.writers(from, limit),
            Scan::Nodes => paged!(Node, "jfs_node", "inode"),
            Scan::AllEntries => paged!(Entry, "jfs_edge", "id"),
            Scan::Chunks => paged!(Chunk, "jfs_chunk", "id"),
            Scan::SliceRefs => paged!(SliceRef, "jfs_chunk_ref", "chunkid"),
            Scan::DelFiles => paged!(DelFile, "jfs_delfile", "inode"),
            Scan::DelSlices => paged!(DelSlices, "jfs_delslices", "chunkid"),
            Scan::Sessions => paged!(Session, "jfs_session2", "sid"),
            Scan::Sustained => paged!(Sustained, "jfs_sustained", "id"),
            Scan::Detached => paged!(Detached, "jfs_detached_node", "inode"),
            Scan::Acls => paged!(Acl, "jfs_acl", "id"),
            Scan::DirStats => paged!(DirStat, "jfs_dir_stats", "inode"),
        };
        let after = match from {
            None => i64::MIN,
            Some(cursor) => self.numbers::<1>(cursor)?[0],
        };
        let (record, sql) = numbered;
        let (mut rows, mut damaged, mut last) = (Vec::new(), Vec::new(), after);
        self.each(sql, [after, limit], |row| {
            last = number(&row, 0)?;
            self.sort(decode(record, &row, 1), &mut rows, &mut damaged);
            Ok(())
        })?;
        let full = (rows.len() + damaged.len()) as i64 == limit;
        Ok(Page { rows, damaged, next: full.then(|| cursor(&[last])) })
    }

    /// Puts a record to those of its kind: what can be read, and what cannot.
    fn sort(self, decoded: Result<Row, Damage>, rows: &mut Vec<Row>, damaged: &mut Vec<EngineError>) {
        match decoded {
            Ok(row) => rows.push(row),
            Err(damage) => damaged.push(self.options.damaged(damage)),
        }
    }

    fn entries(self, dir: Ino, nodes: bool, from: Option<&Cursor>, limit: i64) -> Result<Page, EngineError> {
        // No name is empty, so the empty one lies before all others.
        let after: &[u8] = from.map_or(&[], |cursor| &cursor.0);
        let (mut rows, mut damaged, mut count, mut last) = (Vec::new(), Vec::new(), 0, Vec::new());
        let sql = if nodes {
            join!("WHERE e.parent=?1 AND e.name>?2 ORDER BY e.name LIMIT ?3")
        } else {
            concat!(
                "SELECT ",
                columns!(Entry),
                " FROM jfs_edge WHERE parent=?1 AND name>?2 ORDER BY name LIMIT ?3"
            )
        };
        self.each(sql, params![id(dir), after, limit], |row| {
            count += 1;
            if count == limit {
                let damage = |reason| Damage { record: format!("edge {dir}"), reason };
                last = row.bytes(1).map_err(damage)?.to_vec();
            }
            rows.push(decode(Record::Entry, &row, 0)?);
            if nodes && let Some(node) = joined_node(&row) {
                self.sort(node, &mut rows, &mut damaged);
            }
            Ok(())
        })?;
        Ok(Page { rows, damaged, next: (count == limit).then_some(Cursor(last)) })
    }

    /// Quotas of directories, then those of users and groups.
    fn quotas(self, from: Option<&Cursor>, limit: i64) -> Result<Page, EngineError> {
        let [kind, of] = match from {
            None => [0, i64::MIN],
            Some(cursor) => self.numbers(cursor)?,
        };
        let mut rows = if kind == 0 {
            let sql = concat!(
                "SELECT ",
                columns!(DirQuota),
                " FROM jfs_dir_quota WHERE inode>?1 ORDER BY inode LIMIT ?2"
            );
            self.many((Record::DirQuota, sql), [of, limit])?
        } else {
            Vec::new()
        };
        if (rows.len() as i64) < limit {
            let sql = concat!(
                "SELECT ",
                columns!(Quota),
                " FROM jfs_user_group_quota WHERE (qtype,qkey)>(?1,?2) ORDER BY qtype,qkey LIMIT ?3"
            );
            let after = if kind == 0 { [0, i64::MAX] } else { [kind, of] };
            let wanted = limit - rows.len() as i64;
            rows.extend(self.many((Record::Quota, sql), [after[0], after[1], wanted])?);
        }
        let next = match rows.last() {
            Some(Row::Quota(key, _)) if rows.len() as i64 == limit => Some(quota_cursor(*key)),
            _ => None,
        };
        Ok(Page { rows, damaged: Vec::new(), next })
    }

    fn writers(self, from: Option<&Cursor>, limit: i64) -> Result<Page, EngineError> {
        let [writer, lane] = match from {
            None => [i64::MIN, i64::MIN],
            Some(cursor) => self.numbers(cursor)?,
        };
        let sql = concat!(
            "SELECT ",
            columns!(Writer),
            " FROM sluice_writer WHERE (writer,lane)>(?1,?2) ORDER BY writer,lane LIMIT ?3"
        );
        let rows = self.many((Record::Writer, sql), [writer, lane, limit])?;
        let next = match rows.last() {
            Some(Row::Writer(writer, lane, _)) if rows.len() as i64 == limit => {
                Some(cursor(&[*writer as i64, i64::from(*lane)]))
            }
            _ => None,
        };
        Ok(Page { rows, damaged: Vec::new(), next })
    }

    /// The numbers of a cursor.
    fn numbers<const N: usize>(self, cursor: &Cursor) -> Result<[i64; N], EngineError> {
        let (numbers, rest) = cursor.0.as_chunks::<8>();
        if numbers.len() != N || !rest.is_empty() {
            return Err(self.options.refused("the cursor belongs to another scan"));
        }
        Ok(std::array::from_fn(|at| i64::from_be_bytes(numbers[at])))
    }
}

fn number(row: &Columned<'_, '_>, at: usize) -> Result<i64, Damage> {
    row.int(at).map_err(|reason| Damage { record: "a row's number".into(), reason })
}

fn cursor(numbers: &[i64]) -> Cursor {
    Cursor(numbers.iter().flat_map(|number| number.to_be_bytes()).collect())
}

fn quota_cursor(key: QuotaKey) -> Cursor {
    let (kind, of) = quota_columns(key);
    cursor(&[kind, of])
}
