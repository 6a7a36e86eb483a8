//! Applies the writes of a commit inside its transaction.
//!
//! What must stay true: a precondition that fails is a conflict that names its key, found before
//! COMMIT. New nodes, entries, chunks and slice references are gathered and inserted many at a
//! time: that is the hot path.

mod remove;
mod store;

use std::sync::LazyLock;

use rusqlite::{CachedStatement, Params, ToSql, params};
use sluice_meta::{
    engine::{EngineError, List, Step, Write},
    schema::{Counter, Key, Row, encode_slices},
};
use sluice_types::{Ino, Slice, Time};

use super::{
    error::is_duplicate,
    read::{Reader, id},
};
use crate::{
    codec::{Damage, columns},
    values::{node_values, quota_columns, time_columns},
};

/// Rows that one statement inserts.
const MANY: usize = 16;

/// A way to insert rows of one table, singly and [`MANY`] at a time.
struct Bulk {
    one: LazyLock<String>,
    many: LazyLock<String>,
    columns: usize,
}

/// Adds to the references of a slice; one without a record has one reference.
const REFER: &str = " ON CONFLICT(chunkid) DO UPDATE SET refs=refs+excluded.refs-1";

macro_rules! bulk {
    ($table:literal, $columns:expr, $count:literal, $else:expr) => {
        Bulk {
            one: LazyLock::new(|| insert_text($table, $columns, $count, 1) + $else),
            many: LazyLock::new(|| insert_text($table, $columns, $count, MANY) + $else),
            columns: $count,
        }
    };
}

static NODES: Bulk = bulk!("jfs_node", columns!(Node), 19, "");
static ENTRIES: Bulk = bulk!("jfs_edge", columns!(Entry), 4, "");
static CHUNKS: Bulk = bulk!("jfs_chunk", columns!(Chunk), 3, "");
static SLICE_REFS: Bulk = bulk!("jfs_chunk_ref", columns!(SliceRef), 3, "");
static REFERS: Bulk = bulk!("jfs_chunk_ref", columns!(SliceRef), 3, REFER);

fn insert_text(table: &str, columns: &str, count: usize, rows: usize) -> String {
    let row = format!("({})", vec!["?"; count].join(","));
    format!("INSERT INTO {table}({columns}) VALUES {}", vec![row; rows].join(","))
}

/// What is written inside one transaction.
pub(super) struct Writing<'s, 'c> {
    reader: Reader<'s, 'c>,
}

/// New rows that wait to be inserted together.
#[derive(Default)]
struct Gathered<'w> {
    nodes: Vec<&'w Row>,
    entries: Vec<&'w Row>,
    chunks: Vec<&'w Row>,
    slice_refs: Vec<&'w Row>,
    /// What is added to references, as rows of slices that had one.
    refers: Vec<Row>,
}

impl<'s, 'c> Writing<'s, 'c> {
    pub(super) fn new(reader: Reader<'s, 'c>) -> Self {
        Self { reader }
    }

    /// Takes the writer record from one number to the next.
    pub(super) fn step(&self, step: Step) -> Result<(), EngineError> {
        let changed = self.run(
            "UPDATE sluice_writer SET n=?1 WHERE writer=?2 AND lane=?3 AND n=?4",
            [step.to as i64, step.writer as i64, i64::from(step.lane), step.from as i64],
        )?;
        must(changed == 1, || Key::Writer(step.writer, step.lane))
    }

    /// Applies all of `writes`.
    pub(super) fn apply_all(&self, writes: &[Write]) -> Result<(), EngineError> {
        let mut new = Gathered::default();
        let xattrs = |write: &Write| matches!(write, Write::Clear(List::Xattrs(_)));
        let no_xattrs = self.reader.without_xattrs(writes.iter().filter(|write| xattrs(write)).count())?;
        for write in writes {
            if !matches!(write, Write::Insert(_) | Write::Refer(..)) && !new.refers.is_empty() {
                self.flush(&mut new)?;
            }
            match write {
                Write::Refer(slice, size, by) => new.refers.push(Row::SliceRef(*slice, *size, 1 + by)),
                Write::Insert(row) => match row {
                    Row::Node(..) => new.nodes.push(row),
                    Row::Entry(..) => new.entries.push(row),
                    Row::Chunk(..) => new.chunks.push(row),
                    Row::SliceRef(..) => new.slice_refs.push(row),
                    _ => self.store(row, false)?,
                },
                Write::Put(row) => self.store(row, true)?,
                Write::Delete(key) => must(self.remove(key)?, || key.clone())?,
                Write::Discard(key) => drop(self.remove(key)?),
                // Removals of collections come before anything that fills them.
                write if no_xattrs && xattrs(write) => {}
                Write::Clear(list) => self.clear(*list)?,
                Write::Notify(_) => {}
                adding => {
                    // What is added to may be among the new.
                    self.flush(&mut new)?;
                    self.add(adding)?;
                }
            }
        }
        self.flush(&mut new)
    }

    fn flush(&self, rows: &mut Gathered<'_>) -> Result<(), EngineError> {
        self.insert_all(&NODES, &rows.nodes, |values, row| {
            if let Row::Node(ino, attr) = row {
                node_values(*ino, attr).iter().try_for_each(|value| values.push(value))?;
            }
            Ok(())
        })?;
        self.insert_all(&ENTRIES, &rows.entries, |values, row| {
            if let Row::Entry(dir, name, entry) = row {
                values.push(id(*dir))?;
                values.push(&name[..])?;
                values.push(id(entry.ino))?;
                values.push(entry.kind as u8)?;
            }
            Ok(())
        })?;
        self.insert_all(&CHUNKS, &rows.chunks, |values, row| {
            if let Row::Chunk(ino, index, slices) = row {
                values.push(id(*ino))?;
                values.push(*index)?;
                values.push(encode_slices(slices))?;
            }
            Ok(())
        })?;
        let slice_ref = |values: &mut Values<'_, '_>, row: &Row| {
            if let Row::SliceRef(slice, size, refs) = row {
                values.push(*slice as i64)?;
                values.push(*size)?;
                values.push(*refs)?;
            }
            Ok(())
        };
        self.insert_all(&SLICE_REFS, &rows.slice_refs, slice_ref)?;
        self.insert_all(&REFERS, &rows.refers.iter().collect::<Vec<_>>(), slice_ref)?;
        *rows = Gathered::default();
        Ok(())
    }

    /// Inserts rows of one table, of which each hands its values to `bind`.
    fn insert_all(
        &self,
        bulk: &'static Bulk,
        rows: &[&Row],
        bind: impl Fn(&mut Values<'_, '_>, &Row) -> rusqlite::Result<()>,
    ) -> Result<(), EngineError> {
        let (full, rest) = rows.as_chunks::<MANY>();
        let groups = full
            .iter()
            .map(|group| (&bulk.many, &group[..]))
            .chain(rest.chunks(1).map(|group| (&bulk.one, group)));
        for (text, group) in groups {
            let insert = |statement: &mut CachedStatement<'_>| {
                let mut values = Values { statement, bound: 0 };
                group.iter().try_for_each(|row| bind(&mut values, row))?;
                debug_assert_eq!(values.bound, group.len() * bulk.columns);
                statement.raw_execute()
            };
            let inserted = self.reader.statements.with(text, insert).flatten();
            inserted.map_err(|error| self.met(&error, group))?;
        }
        Ok(())
    }

    /// What an error of an insert means.
    fn met(&self, error: &rusqlite::Error, rows: &[&Row]) -> EngineError {
        if !is_duplicate(error) {
            return self.reader.options.failed(error);
        }
        let keys: Vec<Key> = rows.iter().map(|row| row.key()).collect();
        let existing: Vec<Key> =
            keys.iter().filter(|key| matches!(self.reader.get(key), Ok(Some(_)))).cloned().collect();
        // The unique key of some tables is narrower than ours: then any of them may be the culprit.
        EngineError::Conflict(if existing.is_empty() { keys } else { existing })
    }

    fn run(&self, sql: &'static str, params: impl Params) -> Result<usize, EngineError> {
        self.try_run(sql, params).map_err(|error| self.reader.options.failed(&error))
    }

    fn try_run(&self, sql: &'static str, params: impl Params) -> rusqlite::Result<usize> {
        self.reader.statements.with(sql, |statement| statement.execute(params)).flatten()
    }

    fn insert_one(&self, sql: &'static str, params: impl Params, row: &Row) -> Result<(), EngineError> {
        self.try_run(sql, params).map(drop).map_err(|error| self.met(&error, &[row]))
    }

    /// The writes that add to what is there.
    fn add(&self, write: &Write) -> Result<(), EngineError> {
        match write {
            Write::Bump { ino, nlink, time } => {
                let changed = self.bump(*ino, *nlink, *time)?;
                return must(changed == 1, || Key::Node(*ino));
            }
            Write::Count(Counter::AclMaxId, _) | Write::Link(..) => Ok(0),
            Write::Count(counter, by) => self.run(
                "INSERT INTO jfs_counter(name,value) VALUES(?1,?2) \
                 ON CONFLICT(name) DO UPDATE SET value=value+excluded.value",
                params![counter.name(), by],
            ),
            Write::Use(ino, by) => self.run(
                "UPDATE jfs_dir_stats SET data_length=data_length+?2,used_space=used_space+?3,\
                 used_inodes=used_inodes+?4 WHERE inode=?1",
                [id(*ino), by.length, by.space, by.inodes],
            ),
            Write::Charge(key, space, inodes) => match quota_columns(*key) {
                (0, ino) => self.run(
                    "UPDATE jfs_dir_quota SET used_space=used_space+?2,used_inodes=used_inodes+?3 WHERE inode=?1",
                    [ino, *space, *inodes],
                ),
                (kind, of) => self.run(
                    "INSERT INTO jfs_user_group_quota(qtype,qkey,max_space,max_inodes,used_space,used_inodes) \
                     VALUES(?1,?2,-1,-1,?3,?4) ON CONFLICT(qtype,qkey) DO UPDATE SET \
                     used_space=used_space+excluded.used_space,used_inodes=used_inodes+excluded.used_inodes",
                    [kind, of, *space, *inodes],
                ),
            },
            Write::Append(ino, index, slices) => return self.append(*ino, *index, slices),
            _ => Ok(0),
        }
        .map(drop)
    }

    /// Appends to a chunk, unless its record is damaged: nobody could tell what the new slices lie
    /// on.
    fn append(&self, ino: Ino, index: u32, slices: &[Slice]) -> Result<(), EngineError> {
        // Concatenation makes text of two blobs; the bytes are the same, but the column holds
        // blobs.
        let changed = self.run(
            "INSERT INTO jfs_chunk(inode,indx,slices) VALUES(?1,?2,?3) \
             ON CONFLICT(inode,indx) DO UPDATE SET slices=CAST(slices||excluded.slices AS BLOB) \
             WHERE octet_length(slices)%24=0",
            params![id(ino), index, encode_slices(slices)],
        )?;
        if changed == 1 {
            return Ok(());
        }
        let record = format!("chunk {} {index}", id(ino));
        Err(self.reader.options.damaged(Damage { record, reason: "slices are not of 24 bytes each".into() }))
    }

    fn bump(&self, ino: Ino, nlink: i32, time: Option<Time>) -> Result<usize, EngineError> {
        let Some(time) = time else {
            return self.run(
                "UPDATE jfs_node SET nlink=max(nlink+?2,0) WHERE inode=?1",
                [id(ino), i64::from(nlink)],
            );
        };
        let (micros, nanos) = time_columns(time);
        self.run(
            "UPDATE jfs_node SET nlink=max(nlink+?2,0),\
             mtimensec=CASE WHEN (mtime,mtimensec)<(?3,?4) THEN ?4 ELSE mtimensec END,mtime=max(mtime,?3),\
             ctimensec=CASE WHEN (ctime,ctimensec)<(?3,?4) THEN ?4 ELSE ctimensec END,ctime=max(ctime,?3) \
             WHERE inode=?1",
            [id(ino), i64::from(nlink), micros, nanos],
        )
    }
}

/// Binds the values of a statement one after another.
struct Values<'s, 'c> {
    statement: &'s mut CachedStatement<'c>,
    bound: usize,
}

impl Values<'_, '_> {
    fn push(&mut self, value: impl ToSql) -> rusqlite::Result<()> {
        self.bound += 1;
        self.statement.raw_bind_parameter(self.bound, value)
    }
}

fn must(holds: bool, key: impl FnOnce() -> Key) -> Result<(), EngineError> {
    if holds { Ok(()) } else { Err(EngineError::Conflict(vec![key()])) }
}
