//! Pages of large collections: one or two statements each, which begin after the last key of the
//! page before.
//!
//! What must stay true: the cost of a page depends on its rows, not on the size of the table. Rows
//! that are inserted or deleted between two pages do not make other rows be missed.

use sluice_meta::{
    engine::{Cursor, EngineError, Page, Scan},
    schema::Row,
};
use sluice_types::Ino;

use crate::{
    codec::{Columns, Damage, Record, decode, decode_node},
    query_runner::QueryRunner,
    text::Look,
    values::{Value, id, int},
};

/// What a statement reads.
#[derive(Clone, Copy)]
enum Ask<'c> {
    /// The rows of a record after a number. That of each comes first in the answer.
    Numbered(Record, i64),
    /// The rows of a record after a unique key of two columns.
    Behind(Record, [i64; 2]),
    /// The entries of a directory after a name.
    Entries(Ino, &'c [u8]),
    /// As [`Ask::Entries`], each with its node.
    EntriesNodes(Ino, &'c [u8]),
}

impl<'c> Ask<'c> {
    /// The statement that asks, and its parameters.
    fn statement(self, limit: i64) -> (Look, Record, Vec<Value<'c>>) {
        let name = |dir: Ino, after: &'c [u8]| vec![id(dir.0), Value::Bytes(after.into()), int(limit)];
        match self {
            Self::Numbered(record, after) => (Look::Page, record, vec![int(after), int(limit)]),
            Self::Behind(record, [a, b]) => (Look::Behind, record, vec![int(a), int(b), int(limit)]),
            Self::Entries(dir, after) => (Look::Entries, Record::Entry, name(dir, after)),
            Self::EntriesNodes(dir, after) => (Look::EntriesNodes, Record::Entry, name(dir, after)),
        }
    }
}

/// One page.
pub(crate) fn page(
    runner: &impl QueryRunner,
    scan: Scan,
    from: Option<&Cursor>,
    limit: usize,
) -> Result<Page, EngineError> {
    let limit = i64::try_from(limit.max(1)).unwrap_or(i64::MAX);
    let page = Page { rows: Vec::new(), damaged: Vec::new(), next: None };
    let mut filling = Filling { runner, page, limit, count: 0 };
    let record = match scan {
        Scan::Entries { dir, nodes } => {
            // No name is empty, so the empty one lies before all others.
            let after: &[u8] = from.map_or(&[], |cursor| &cursor.0);
            filling.take(if nodes { Ask::EntriesNodes(dir, after) } else { Ask::Entries(dir, after) })?;
            return Ok(filling.page);
        }
        Scan::Quotas => {
            // Those of directories, then those of users and groups.
            let [kind, of] = filling.numbers(from, [0, i64::MIN])?;
            if kind == 0 {
                filling.take(Ask::Numbered(Record::DirQuota, of))?;
            }
            if filling.count < limit {
                filling
                    .take(Ask::Behind(Record::Quota, if kind == 0 { [0, i64::MAX] } else { [kind, of] }))?;
            }
            return Ok(filling.page);
        }
        Scan::Writers => {
            let after = filling.numbers(from, [i64::MIN, -1])?;
            filling.take(Ask::Behind(Record::Writer, after))?;
            return Ok(filling.page);
        }
        Scan::Inodes => {
            return Err(filling.runner.volume().refused("each kind of record has a table of its own"));
        }
        Scan::Nodes => Record::Node,
        Scan::AllEntries => Record::Entry,
        Scan::Chunks => Record::Chunk,
        Scan::Symlinks => Record::Symlink,
        Scan::Xattrs => Record::Xattr,
        Scan::SliceRefs => Record::SliceRef,
        Scan::DelFiles => Record::DelFile,
        Scan::DelSlices => Record::DelSlices,
        Scan::Sessions => Record::Session,
        Scan::Sustained => Record::Sustained,
        Scan::Detached => Record::Detached,
        Scan::Acls => Record::Acl,
        Scan::DirStats => Record::DirStat,
    };
    let [after] = filling.numbers(from, [i64::MIN])?;
    filling.take(Ask::Numbered(record, after))?;
    Ok(filling.page)
}

/// Fills a page.
struct Filling<'a, A> {
    runner: &'a A,
    page: Page,
    limit: i64,
    /// Rows that were answered, the damaged ones among them.
    count: i64,
}

impl<A: QueryRunner> Filling<'_, A> {
    /// Takes what is answered, up to the limit.
    fn take(&mut self, ask: Ask<'_>) -> Result<(), EngineError> {
        let Self { runner, page, limit, count } = self;
        let Page { rows, damaged, next } = page;
        let mut sort = |decoded: Result<Row, Damage>| match decoded {
            Ok(row) => rows.push(row),
            Err(damage) => damaged.push(runner.volume().damaged(damage)),
        };
        let (what, record, values) = ask.statement(*limit - *count);
        runner.rows(what, record, &values, |row| {
            *count += 1;
            match ask {
                Ask::Numbered(record, _) => sort(decode(record, row, 1)),
                Ask::Behind(record, _) => sort(decode(record, row, 0)),
                Ask::Entries(..) | Ask::EntriesNodes(..) => sort(Ok(decode(Record::Entry, row, 0)?)),
            }
            if let Ask::EntriesNodes(..) = ask
                && let Some(node) = decode_node(row, 0)
            {
                sort(node);
            }
            if *count == *limit {
                *next =
                    Some(cursor(ask, row).map_err(|reason| Damage { record: "a row's key".into(), reason })?);
            }
            Ok(())
        })
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
            return Err(self.runner.volume().refused("the cursor belongs to another scan"));
        }
        Ok(std::array::from_fn(|at| i64::from_be_bytes(numbers[at])))
    }
}

/// Where the page after a row begins.
fn cursor(ask: Ask<'_>, row: &impl Columns) -> Result<Cursor, String> {
    let numbers = match ask {
        // The number stands alone, but for that of quotas, among which these come first.
        Ask::Numbered(Record::DirQuota, _) => vec![0, row.int(0)?],
        Ask::Numbered(..) => vec![row.int(0)?],
        Ask::Behind(..) => vec![row.int(0)?, row.int(1)?],
        Ask::Entries(..) | Ask::EntriesNodes(..) => return Ok(Cursor(row.bytes(1)?.to_vec())),
    };
    Ok(Cursor(numbers.into_iter().flat_map(i64::to_be_bytes).collect()))
}
