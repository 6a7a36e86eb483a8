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
    keys::{Keys, Text, number},
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
const REMOVED: u64 = 1000;

/// Requests keys of the volume after a cursor of Redis; `count` keys are visited.
pub(crate) fn search(keys: &Keys, cursor: &[u8], count: u64) -> Pipeline {
    let mut pipeline = Pipeline::default();
    let scan = pipeline.command("SCAN");
    scan.extend([cursor, b"COUNT", &number(count)]);
    if !keys.prefix.is_empty() {
        scan.extend([&b"MATCH"[..], &[&keys.prefix[..], b"*"].concat()]);
        // While keys move to another node, a cluster node lists only those that it still has. This
        // command names a key that does not exist, so that a node without all keys of the slot
        // refuses it.
        pipeline.command("GET").push(&keys.missing_key());
    }
    pipeline
}

/// The cursor and the keys in the answers to [`search`].
pub(crate) fn searched(
    reader: Reader<'_>,
    answers: Vec<Value>,
) -> Result<(String, Vec<Vec<u8>>), EngineError> {
    let mut answers = answers.into_iter();
    let found = answers.next().unwrap_or(Value::Nil);
    answers.try_for_each(|owned| reader.errors.sound(owned).map(drop))?;
    reader.parse(found)
}

/// Removes every key of a volume that has a prefix, the settings last.
pub(crate) fn remove_all(pool: &Pool, reader: Reader<'_>) -> Result<(), EngineError> {
    let setting = reader.keys.word("setting");
    let remove = |keys: &[&[u8]]| {
        let mut removal = Pipeline::default();
        removal.command("UNLINK").extend(keys.iter().copied());
        reader.errors.sound(pool.ask(&removal)?.pop().unwrap_or(Value::Nil)).map(drop)
    };
    let (mut cursor, mut asked) = ("0".to_owned(), 0);
    loop {
        let from = |process| if process == asked { cursor.as_bytes() } else { b"0" };
        let (answers, process) = pool.ask_by(|process| search(reader.keys, from(process), REMOVED))?;
        let (next, found) = searched(reader, answers)?;
        let found: Vec<&[u8]> = found.iter().map(|key| &key[..]).filter(|key| *key != &setting[..]).collect();
        if !found.is_empty() {
            remove(&found)?;
        }
        if next == "0" {
            return remove(&[&setting]);
        }
        (cursor, asked) = (next, process);
    }
}

/// The request for one page.
pub(crate) struct Request {
    scan: Scan,
    /// Which of the three kinds of quotas, or 0.
    part: u8,
    /// The server process to ask.
    process: u64,
    pub(crate) pipeline: Pipeline,
    /// How the records come, for each answer.
    forms: Vec<Form>,
}

/// The rows, and the errors of those that cannot be read.
type Rows = (Vec<Row>, Vec<EngineError>);

/// The position of a scan.
pub(crate) struct Place {
    /// Which of several collections.
    pub(crate) part: u8,
    /// The process that returned the cursors.
    pub(crate) process: u64,
    /// Cursor of Redis.
    pub(crate) cursor: Text,
    /// Cursor in the first of `pending`.
    pub(crate) inner: Text,
    /// Keys that the cursor has passed but that are not read to their ends.
    pub(crate) pending: Vec<Text>,
}

impl Place {
    pub(crate) fn start(part: u8, process: u64) -> Self {
        Self { part, process, cursor: number(0), inner: number(0), pending: Vec::new() }
    }

    pub(crate) fn read(cursor: &Cursor) -> Option<Self> {
        let (part, rest) = cursor.0.split_first()?;
        let (process, rest) = rest.split_first_chunk()?;
        let process = u64::from_be_bytes(*process);
        let mut words = rest.split(|byte| *byte == b' ').map(Text::from_slice);
        let (cursor, inner) = (words.next()?, words.next()?);
        Some(Self { part: *part, process, cursor, inner, pending: words.collect() })
    }

    pub(crate) fn cursor(&self) -> Cursor {
        let mut out = vec![self.part];
        out.extend(self.process.to_be_bytes());
        out.extend_from_slice(&self.cursor);
        for word in std::iter::once(&self.inner).chain(&self.pending) {
            out.push(b' ');
            out.extend_from_slice(word);
        }
        Cursor(out)
    }
}

impl Request {
    /// `None` if the cursor is not of this engine.
    pub(crate) fn new(
        keys: &Keys,
        scan: Scan,
        from: Option<&Cursor>,
        limit: usize,
        process: u64,
    ) -> Option<Self> {
        let place = match from.map(Place::read) {
            Some(None) => return None,
            Some(Some(place)) if place.process == process => place,
            Some(Some(place)) => Place::start(place.part, process),
            None => Place::start(0, process),
        };
        let limit = number(limit.max(1));
        let script = |out: &mut Pipeline, op: &str, own: &[&[u8]]| {
            let mut args = Args::default();
            args.extend([op.as_bytes(), &limit]);
            args.extend(own.iter().copied());
            out.script(&SCAN, args);
        };
        // Everything at the key of a record of that kind, with what belongs to it elsewhere.
        let at_cursor = |out: &mut Pipeline, of: &Key, cursor: &[u8]| {
            let cells = keys.cells(of);
            let command = if cells[0].shape == Shape::Score { "ZSCAN" } else { "HSCAN" };
            if let [cell] = &cells[..] {
                out.command(command).extend([&cell.key[..], cursor, b"COUNT", &limit]);
            } else {
                let mut own: Vec<&[u8]> = vec![command.as_bytes(), cursor];
                own.extend(cells.iter().map(|cell| &cell.key[..]));
                script(out, "joined", &own);
            }
            Form { key: Some(cells[0].key.clone()), fields: true, values: cells.len() }
        };
        let at_place = |out: &mut Pipeline, of: &Key| at_cursor(out, of, &place.cursor);
        // Everything in the database whose key begins with a letter and goes on with a digit.
        let whole = |out: &mut Pipeline, kind: &str, word: &str, pattern: &str| {
            let glob = [&keys.word(word)[..], b"[0-9]*"].concat();
            let prefix = number(keys.word("").len());
            let mut own: Vec<&[u8]> = vec![&place.cursor, &glob, &prefix, pattern.as_bytes()];
            if kind == "hashes" {
                own.push(&place.inner);
                own.extend(place.pending.iter().map(|key| &key[..]));
            }
            let (fields, values) = (matches!(kind, "set" | "hashes"), usize::from(kind != "set"));
            script(out, kind, &own);
            Form { key: None, fields, values }
        };
        let (mut pipeline, mut forms) = (Pipeline::default(), Vec::new());
        let out = &mut pipeline;
        forms.push(match scan {
            Scan::Entries { dir, nodes } => {
                let form = at_place(out, &Key::Entry(dir, Name::stored(b"")));
                // A small directory is returned at once.
                if nodes && &*place.cursor == b"0" {
                    let mut args = Args::default();
                    args.extend([&keys.word("i")[..], b"0", &keys.dir(dir), &number(WOVEN)]);
                    out.script(&FOLLOW, args);
                }
                form
            }
            // It has a module of its own.
            Scan::Inodes => return None,
            Scan::Nodes => whole(out, "string", "i", "^i%d+$"),
            Scan::AllEntries => whole(out, "hashes", "d", "^d%d+$"),
            Scan::Chunks => whole(out, "list", "c", "^c%d+_%d+$"),
            Scan::Symlinks => whole(out, "string", "s", "^s%d+$"),
            Scan::Xattrs => whole(out, "hashes", "x", "^x%d+$"),
            Scan::Sustained => whole(out, "set", "session", "^session%d+$"),
            Scan::SliceRefs => at_place(out, &Key::SliceRef(0, 0)),
            Scan::DelSlices => at_place(out, &Key::DelSlices(0, 0)),
            Scan::Acls => at_place(out, &Key::Acl(0)),
            Scan::Writers => at_place(out, &Key::Writer(0, 0)),
            Scan::DelFiles => at_place(out, &Key::DelFile(Ino(0), 0)),
            Scan::Detached => at_place(out, &Key::Detached(Ino(0))),
            Scan::Sessions => at_place(out, &Key::Session(0)),
            Scan::DirStats => at_place(out, &Key::DirStat(Ino(0))),
            Scan::Quotas => at_place(out, &Key::Quota(*QUOTAS.get(usize::from(place.part))?)),
        });
        if scan == Scan::Quotas && &*place.cursor == b"0" {
            let others = &QUOTAS[usize::from(place.part) + 1..];
            forms.extend(others.iter().map(|kind| at_cursor(out, &Key::Quota(*kind), b"0")));
        }
        Some(Self { scan, part: place.part, process, pipeline, forms })
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
        let mut place = Place::start(self.part, self.process);
        for form in &self.forms {
            let answer = answers.next().unwrap_or(Value::Nil);
            let mut parts = reader.parse::<Vec<Value>>(answer)?.into_iter();
            let mut next = || parts.next().unwrap_or(Value::Nil);
            let (cursor, values) = (next(), next());
            if let Scan::Entries { dir, .. } = self.scan
                && let Some(all) = answers.next()
                && all != Value::Nil
            {
                (page.rows, page.damaged) = weave(reader, dir, reader.parse(all)?)?;
                return Ok(page);
            }
            place.cursor = text(reader, cursor)?;
            let values: Vec<Cell> = reader.parse(values)?;
            if matches!(self.scan, Scan::AllEntries | Scan::Xattrs) {
                place.inner = text(reader, next())?;
                let pending: Vec<Vec<u8>> = reader.parse(next())?;
                place.pending = pending.into_iter().map(Text::from_vec).collect();
            }
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
            if &*place.cursor != b"0" || !place.pending.is_empty() {
                page.next = Some(place.cursor());
                return Ok(page);
            }
            place.part += 1;
        }
        let more = self.scan == Scan::Quotas && usize::from(place.part) < QUOTAS.len();
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

/// A cursor of Redis.
fn text(reader: Reader<'_>, value: Value) -> Result<Text, EngineError> {
    reader.parse::<String>(value).map(|text| Text::from_vec(text.into_bytes()))
}
