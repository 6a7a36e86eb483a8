//! Pages of large collections.
//!
//! All scans use Redis' own cursors. A scan returns whatever exists from the first page to the last
//! at least once. It may return something twice while the server resizes a table. A cursor is valid
//! only for the server process that returned it. If another process has taken its place, the scan
//! starts again. Keys are checked exactly, not only by the pattern.

use redis::Value;
use sluice_meta::{
    engine::{Cursor, EngineError, Found, Page, Read, Scan},
    schema::{Key, QuotaKey, Row},
};
use sluice_types::{Ino, Name};

use crate::{
    answer::{Cell, Form, Reader},
    codec::{Shape, entry_ino},
    keys::{Keys, number},
    mixed::{Position, search},
    pipeline::{Args, Pipeline},
    pool::Pool,
    read::Plan,
    script::{FOLLOW, SCAN},
};

/// Most entries of a directory whose nodes the script reads, too.
const WOVEN: u64 = 100;

/// Most nodes that one command requests.
const NODES: usize = 3000;

/// The kinds of quotas, in sequence, each by one of its keys.
const QUOTAS: [QuotaKey; 3] = [QuotaKey::Dir(Ino(0)), QuotaKey::User(0), QuotaKey::Group(0)];

/// Keys removed at once.
const REMOVED: usize = 1000;

/// Removes every key of a volume that has a prefix, the settings last.
pub(crate) fn remove_all(pool: &Pool, reader: Reader<'_>) -> Result<(), EngineError> {
    let setting = reader.keys.word("setting");
    let remove = |keys: &[&[u8]]| {
        let mut removal = Pipeline::default();
        removal.command("UNLINK").extend(keys.iter().copied());
        reader.errors.sound(pool.ask(&removal)?.pop().unwrap_or(Value::Nil)).map(drop)
    };
    let mut at = (0, 0);
    loop {
        at = search(
            (pool, reader),
            "",
            at,
            REMOVED,
            || false,
            |found| {
                let found: Vec<Vec<u8>> =
                    found.into_iter().map(|key| reader.parse(key)).collect::<Result<_, _>>()?;
                let found: Vec<&[u8]> =
                    found.iter().map(|key| &key[..]).filter(|key| *key != &setting[..]).collect();
                if found.is_empty() { Ok(()) } else { remove(&found) }
            },
        )?;
        if at.1 == 0 {
            return remove(&[&setting]);
        }
    }
}

/// The request for one page.
pub(crate) struct Request {
    scan: Scan,
    /// Where it begins.
    place: Position,
    pub(crate) pipeline: Pipeline,
    /// How the records come, for each answer.
    forms: Vec<Form>,
}

/// The rows, and the errors of those that cannot be read.
type Rows = (Vec<Row>, Vec<EngineError>);

impl Request {
    /// `None` if the cursor is not of this engine.
    pub(crate) fn new(
        keys: &Keys,
        scan: Scan,
        from: Option<&Cursor>,
        limit: usize,
        process: u64,
    ) -> Option<Self> {
        let place = from.map_or_else(|| Some(Position::default()), Position::read)?.by(process);
        let limit = number(limit.max(1));
        // Everything at the key of a record of that kind, with what belongs to it elsewhere.
        let at_cursor = |out: &mut Pipeline, of: &Key, cursor: u64| {
            let cursor = &number(cursor)[..];
            let cells = keys.cells(of);
            let command = if cells[0].shape == Shape::Score { "ZSCAN" } else { "HSCAN" };
            if let [cell] = &cells[..] {
                out.command(command).extend([&cell.key[..], cursor, b"COUNT", &limit]);
            } else {
                let mut args = Args::default();
                args.extend([&limit, command.as_bytes(), cursor]);
                args.extend(cells.iter().map(|cell| &cell.key[..]));
                out.script(&SCAN, args);
            }
            Form { key: Some(cells[0].key.clone()), fields: true, values: cells.len() }
        };
        let at_place = |out: &mut Pipeline, of: &Key| at_cursor(out, of, place.cursor);
        let (mut pipeline, mut forms) = (Pipeline::default(), Vec::new());
        let out = &mut pipeline;
        forms.push(match scan {
            Scan::Entries { dir, nodes } => {
                let form = at_place(out, &Key::Entry(dir, Name::stored(b"")));
                // A small directory is returned at once.
                if nodes && place.cursor == 0 {
                    let mut args = Args::default();
                    args.extend([&keys.word("i")[..], b"0", &keys.dir(dir), &number(WOVEN)]);
                    out.script(&FOLLOW, args);
                }
                form
            }
            Scan::SliceRefs => at_place(out, &Key::SliceRef(0, 0)),
            Scan::DelSlices => at_place(out, &Key::DelSlices(0, 0)),
            Scan::Acls => at_place(out, &Key::Acl(0)),
            Scan::Writers => at_place(out, &Key::Writer(0, 0)),
            Scan::DelFiles => at_place(out, &Key::DelFile(Ino(0), 0)),
            Scan::Detached => at_place(out, &Key::Detached(Ino(0))),
            Scan::Sessions => at_place(out, &Key::Session(0)),
            Scan::DirStats => at_place(out, &Key::DirStat(Ino(0))),
            Scan::Quotas => at_place(out, &Key::Quota(*QUOTAS.get(place.part as usize)?)),
            // They have a module of their own.
            _ => return None,
        });
        if scan == Scan::Quotas && place.cursor == 0 {
            let others = &QUOTAS[place.part as usize + 1..];
            forms.extend(others.iter().map(|kind| at_cursor(out, &Key::Quota(*kind), 0)));
        }
        Some(Self { scan, place, pipeline, forms })
    }

    /// Reads the answers.
    pub(crate) fn page(
        &self,
        pool: &Pool,
        reader: Reader<'_>,
        answers: Vec<Value>,
    ) -> Result<Page, EngineError> {
        let mut answers = answers.into_iter();
        let mut page = Page { rows: Vec::new(), damaged: Vec::new(), next: None };
        let mut place = self.place.clone();
        for form in &self.forms {
            let answer = answers.next().unwrap_or(Value::Nil);
            let (cursor, values): (u64, Vec<Cell>) = reader.parse(answer)?;
            if let Scan::Entries { dir, .. } = self.scan
                && let Some(all) = answers.next()
                && all != Value::Nil
            {
                (page.rows, page.damaged) = weave(reader, dir, reader.parse(all)?)?;
                return Ok(page);
            }
            place.cursor = cursor;
            let (rows, mut damaged) = match self.scan {
                Scan::Entries { dir, nodes: true } => with_nodes(pool, reader, dir, values)?,
                _ => reader.rows(form, values),
            };
            // A listing without a name would look complete.
            if matches!(self.scan, Scan::Entries { nodes: false, .. }) && !damaged.is_empty() {
                return Err(damaged.swap_remove(0));
            }
            page.rows.extend(rows);
            page.damaged.append(&mut damaged);
            if cursor != 0 {
                page.next = Some(place.cursor());
                return Ok(page);
            }
            place.part += 1;
        }
        let more = self.scan == Scan::Quotas && (place.part as usize) < QUOTAS.len();
        page.next = more.then(|| place.cursor());
        Ok(page)
    }
}

/// The records of entries and of their nodes: names, entries and nodes in turn.
fn weave(reader: Reader<'_>, dir: Ino, mut all: Vec<Cell>) -> Result<Rows, EngineError> {
    let (mut rows, mut damaged) = (Vec::with_capacity(all.len() * 2 / 3), Vec::new());
    for entry in all.chunks_exact_mut(3) {
        let [name, stored, attr] = [0, 1, 2].map(|at| std::mem::take(&mut entry[at]));
        let node = reader.node(&stored, attr);
        rows.extend(reader.entry(dir, Name::stored(&name.unwrap_or_default()), stored)?);
        match node {
            Ok(node) => rows.extend(node),
            Err(damage) => damaged.push(damage),
        }
    }
    Ok((rows, damaged))
}

/// Names and entries of a directory, with the nodes, which are asked for.
fn with_nodes(
    pool: &Pool,
    reader: Reader<'_>,
    dir: Ino,
    mut entries: Vec<Cell>,
) -> Result<Rows, EngineError> {
    let inos = |entry: &[Cell]| entry[1].as_deref().and_then(entry_ino);
    let wanted: Vec<Ino> = entries.chunks_exact(2).filter_map(inos).collect();
    let mut pipeline = Pipeline::default();
    for inos in wanted.chunks(NODES) {
        let command = pipeline.command("MGET");
        for ino in inos {
            command.push(&reader.keys.node(*ino));
        }
    }
    let mut nodes: Vec<Cell> = Vec::with_capacity(wanted.len());
    let answers = if wanted.is_empty() { Vec::new() } else { pool.ask(&pipeline)? };
    for answer in answers {
        nodes.append(&mut reader.parse(answer)?);
    }
    let (mut woven, mut lost) = (Vec::with_capacity(wanted.len() * 3), Vec::new());
    let mut nodes = nodes.into_iter();
    for entry in entries.chunks_exact_mut(2) {
        let named = inos(entry).is_some();
        let node = if named { nodes.next().flatten() } else { None };
        let [name, stored] = [0, 1].map(|at| std::mem::take(&mut entry[at]));
        if named && node.is_none() {
            lost.push(Read::Follow(dir, Name::stored(&name.unwrap_or_default())));
        } else {
            woven.extend([name, stored, node]);
        }
    }
    let (mut rows, damaged) = weave(reader, dir, woven)?;
    // Both may have gone between the reads: they are read again, together.
    for found in Plan::new(reader, &lost).run(pool)? {
        if let Found::Rows(both) = found {
            rows.extend(both);
        }
    }
    Ok((rows, damaged))
}
