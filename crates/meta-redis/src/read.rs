//! Reads: many questions, one pipeline.
//!
//! Native commands answer what stands alone, one script what depends on another answer; all of them
//! travel together. Answers come back in the order of the questions, whatever the order of the
//! commands.

use redis::Value;
use rustc_hash::FxHashMap;
use sluice_meta::{
    engine::{EngineError, Found, List, Read},
    schema::{Key, Row},
};
use sluice_types::{Ino, Name};

use crate::{
    codec::{Cell, decode, entry, entry_ino},
    keys::{Keys, Text, number, parse, parse_owner, parse_pair},
    pipeline::{Args, Pipeline},
    pool::Pool,
    script::{FOLLOW, READ},
};

/// Most chunks that one call of the script looks at, so that it does not hold the server for long.
const CHUNKS: u32 = 4096;

/// Most chunks that may be asked for or cleared at once, 256 TiB of a file: nothing lists the
/// chunks of a file, so that each index has to be tried.
pub(crate) const MOST_CHUNKS: u32 = 1 << 22;

/// Most fields or keys of one command: the scripts cannot take more than 8000.
const FIELDS: usize = 3000;

/// Fewer hashes than these are asked for one by one.
const FEW: usize = 4;

/// One call of the script for ranges of chunks.
#[derive(Default)]
struct Ranges {
    args: Args,
    /// How many chunks it looks at.
    chunks: u32,
    /// Whose they are.
    whose: Vec<usize>,
}

/// Questions turned into commands.
pub(crate) struct Plan<'r> {
    keys: &'r Keys,
    reads: &'r [Read],
    strings: Vec<(usize, Text)>,
    hashes: FxHashMap<Text, Vec<(usize, Text)>>,
    singles: Vec<(usize, Cell)>,
    follows: FxHashMap<Ino, Vec<(usize, &'r Name)>>,
    scripted: Args,
    /// Whose answer each part of the script's is.
    answers: Vec<usize>,
    /// The reads that are followed, in the order of their answers.
    followed: Vec<usize>,
    /// Calls of the script for ranges of chunks.
    ranges: Vec<Ranges>,
    natives: Pipeline,
    native_for: Vec<usize>,
    /// Extended attributes asked for.
    xattrs: Vec<(usize, Text)>,
    /// First cell of each read; reads that are no [`Read::Get`] have none.
    cells: Vec<usize>,
    total: usize,
}

impl<'r> Plan<'r> {
    pub(crate) fn new(keys: &'r Keys, reads: &'r [Read]) -> Self {
        let mut plan = Self {
            keys,
            reads,
            strings: Vec::new(),
            hashes: FxHashMap::default(),
            singles: Vec::new(),
            follows: FxHashMap::default(),
            scripted: Args::default(),
            answers: Vec::new(),
            followed: Vec::new(),
            ranges: Vec::new(),
            natives: Pipeline::default(),
            native_for: Vec::new(),
            xattrs: Vec::new(),
            cells: Vec::with_capacity(reads.len() + 1),
            total: 0,
        };
        for (at, read) in reads.iter().enumerate() {
            plan.cells.push(plan.total);
            match read {
                Read::Get(key) => plan.get(key),
                Read::Follow(dir, name) => plan.follows.entry(*dir).or_default().push((at, name)),
                Read::Names { dir, limit } => {
                    plan.ask(at, "n", &[&keys.dir(*dir), &number(*limit as u64)]);
                }
                Read::All(list) => plan.list(at, *list),
            }
        }
        plan.cells.push(plan.total);
        plan
    }

    fn get(&mut self, key: &Key) {
        for cell in self.keys.cells(key) {
            let at = self.total;
            self.total += 1;
            match cell {
                Cell::Str(key) => self.strings.push((at, key)),
                Cell::Field(hash, field) => self.hashes.entry(hash).or_default().push((at, field)),
                other => self.singles.push((at, other)),
            }
        }
    }

    /// Adds a question to the script.
    fn ask(&mut self, at: usize, op: &str, args: &[&[u8]]) {
        self.scripted.push(op.as_bytes());
        self.scripted.push_number(args.len() as u64);
        self.scripted.extend(args.iter().copied());
        self.answers.push(at);
    }

    fn list(&mut self, at: usize, list: List) {
        let keys = self.keys;
        let (command, key) = match list {
            List::Xattrs(ino) => return self.xattrs.push((at, keys.xattrs(ino))),
            List::Parents(ino) => ("HGETALL", keys.parents(ino)),
            List::Flocks(ino) => ("HGETALL", keys.flocks(ino)),
            List::Plocks(ino) => ("HGETALL", keys.plocks(ino)),
            List::Lanes(_) => ("HGETALL", keys.writers()),
            List::Changes(writer) => ("HGETALL", keys.notices(writer)),
            List::Sustained(sid) => ("SMEMBERS", keys.sustained(sid)),
            List::LocksOf(sid) => {
                let mut session = number(sid);
                session.push(b'_');
                return self.ask(at, "l", &[&keys.locked(sid), &session]);
            }
            List::Chunks(ino, from, to) => {
                let mut start = from;
                while start < to {
                    let end = to.min(start.saturating_add(CHUNKS));
                    let bounds = [number(u64::from(start)), number(u64::from(end))];
                    if self.ranges.last().is_none_or(|last| last.chunks + (end - start) > CHUNKS) {
                        self.ranges.push(Ranges::default());
                    }
                    if let Some(ranges) = self.ranges.last_mut() {
                        ranges.args.extend([&b"c"[..], b"3", &keys.chunks(ino), &bounds[0], &bounds[1]]);
                        ranges.chunks += end - start;
                        ranges.whose.push(at);
                    }
                    start = end;
                }
                return;
            }
        };
        self.natives.command(command).push(&key);
        self.native_for.push(at);
    }

    /// Asks the server everything.
    pub(crate) fn run(mut self, pool: &Pool) -> Result<Vec<Found>, EngineError> {
        let mut follows = Args::default();
        follows.push(&self.keys.word("i"));
        for (dir, names) in &self.follows {
            for names in names.chunks(FIELDS) {
                follows.push_number(names.len() as u64);
                follows.push(&self.keys.dir(*dir));
                follows.extend(names.iter().map(|(_, name)| &name[..]));
                self.followed.extend(names.iter().map(|(at, _)| *at));
            }
        }
        // A script rules out all that are not there at once; for a few it is not worth its while.
        if self.xattrs.len() < FEW {
            for (at, key) in std::mem::take(&mut self.xattrs) {
                self.natives.command("HGETALL").push(&key);
                self.native_for.push(at);
            }
        }
        let mut pipeline = std::mem::take(&mut self.natives);
        let mut targets: Vec<Vec<usize>> = Vec::new();
        for strings in self.strings.chunks(FIELDS) {
            let command = pipeline.command("MGET");
            command.extend(strings.iter().map(|(_, key)| &key[..]));
            targets.push(strings.iter().map(|(at, _)| *at).collect());
        }
        for (hash, fields) in &self.hashes {
            for fields in fields.chunks(FIELDS) {
                let command = pipeline.command("HMGET");
                command.push(hash);
                command.extend(fields.iter().map(|(_, field)| &field[..]));
                targets.push(fields.iter().map(|(at, _)| *at).collect());
            }
        }
        for (_, cell) in &self.singles {
            single(&mut pipeline, cell);
        }
        for ranges in &mut self.ranges {
            pipeline.script(&READ, std::mem::take(&mut ranges.args));
        }
        for hashes in self.xattrs.chunks(FIELDS) {
            let mut args = Args::default();
            args.push(b"x");
            args.push_number(hashes.len() as u64);
            args.extend(hashes.iter().map(|(_, key)| &key[..]));
            pipeline.script(&READ, args);
        }
        if !self.followed.is_empty() {
            pipeline.script(&FOLLOW, follows);
        }
        if !self.answers.is_empty() {
            pipeline.script(&READ, std::mem::take(&mut self.scripted));
        }
        if self.ranges.len() > (MOST_CHUNKS / CHUNKS) as usize {
            return Err(pool
                .errors()
                .refused("the file has too many chunks to look at them all at once".into()));
        }
        if pipeline.len() == 0 {
            return self.finish(pool, Vec::new(), Vec::new(), targets);
        }
        let mut values = Vec::with_capacity(pipeline.len());
        for value in pool.ask(&pipeline)? {
            values.push(pool.errors().sound(value)?);
        }
        let scripted = if self.answers.is_empty() { Vec::new() } else { array(pool, values.pop())? };
        self.finish(pool, values, scripted, targets)
    }

    /// Puts every answer where it belongs.
    fn finish(
        self,
        pool: &Pool,
        values: Vec<Value>,
        scripted: Vec<Value>,
        targets: Vec<Vec<usize>>,
    ) -> Result<Vec<Found>, EngineError> {
        let mut values = values.into_iter();
        let mut found: Vec<Option<Found>> = self.reads.iter().map(|_| None).collect();
        for at in &self.native_for {
            let rows = self.rows_of(pool, *at, array(pool, values.next())?)?;
            found[*at] = Some(Found::Rows(rows));
        }
        let mut cells: Vec<Option<Vec<u8>>> = vec![None; self.total];
        for target in targets {
            for (at, value) in target.into_iter().zip(array(pool, values.next())?) {
                cells[at] = bytes(pool, value)?;
            }
        }
        for ((at, _), value) in self.singles.iter().zip(&mut values) {
            cells[*at] = cell_value(pool, value)?;
        }
        for (ranges, value) in self.ranges.iter().zip(&mut values) {
            for (at, chunks) in ranges.whose.iter().zip(array(pool, Some(value))?) {
                self.scripted_answer(pool, *at, array(pool, Some(chunks))?, &mut found)?;
            }
        }
        for hashes in self.xattrs.chunks(FIELDS) {
            let answer = array(pool, values.next())?.pop();
            let mut present = array(pool, answer)?.into_iter();
            while let (Some(position), Some(fields)) = (present.next(), present.next()) {
                let Value::Int(position) = position else { return Err(pool.errors().unexpected("a read")) };
                let hash = usize::try_from(position).ok().and_then(|position| hashes.get(position));
                let Some((at, _)) = hash else { return Err(pool.errors().unexpected("a read")) };
                found[*at] = Some(Found::Rows(self.rows_of(pool, *at, array(pool, Some(fields))?)?));
            }
        }
        if !self.followed.is_empty() {
            self.follow(pool, array(pool, values.next())?, &mut found)?;
        }
        for (at, value) in self.answers.iter().zip(scripted) {
            self.scripted_answer(pool, *at, array(pool, Some(value))?, &mut found)?;
        }
        for (at, read) in self.reads.iter().enumerate() {
            let Read::Get(key) = read else { continue };
            let cells = &mut cells[self.cells[at]..self.cells[at + 1]];
            let row = decode(key, cells).map_err(|damage| damaged(pool, self.keys, key, damage))?;
            found[at] = Some(Found::Row(row));
        }
        let empty = |read: &Read| match read {
            Read::Get(..) => Found::Row(None),
            Read::Names { .. } => Found::Names(Vec::new()),
            _ => Found::Rows(Vec::new()),
        };
        let found = found.into_iter().zip(self.reads).map(|(f, read)| f.unwrap_or_else(|| empty(read)));
        Ok(found.collect())
    }

    /// Entries and the nodes they name.
    fn follow(
        &self,
        pool: &Pool,
        values: Vec<Value>,
        found: &mut [Option<Found>],
    ) -> Result<(), EngineError> {
        let mut values = values.into_iter();
        for at in &self.followed {
            let Read::Follow(dir, name) = &self.reads[*at] else { continue };
            let (entry_bytes, attr) = (values.next(), values.next());
            let mut rows = Vec::with_capacity(2);
            if let Some(stored) = entry_bytes.map(|value| bytes(pool, value)).transpose()?.flatten() {
                rows.push(entry_row(pool, self.keys, *dir, name.clone(), &stored)?);
                let attr = attr.map(|value| bytes(pool, value)).transpose()?.flatten();
                rows.extend(node_row(pool, self.keys, &stored, attr)?);
            }
            found[*at] = Some(Found::Rows(rows));
        }
        Ok(())
    }

    fn scripted_answer(
        &self,
        pool: &Pool,
        at: usize,
        values: Vec<Value>,
        found: &mut [Option<Found>],
    ) -> Result<(), EngineError> {
        if matches!(&self.reads[at], Read::Names { .. }) {
            let mut names = Vec::with_capacity(values.len());
            for value in values {
                names.push(Name::stored(&bytes(pool, value)?.unwrap_or_default()));
            }
            found[at] = Some(Found::Names(names));
            return Ok(());
        }
        let rows = self.rows_of(pool, at, values)?;
        match &mut found[at] {
            Some(Found::Rows(before)) => before.extend(rows),
            other => *other = Some(Found::Rows(rows)),
        }
        Ok(())
    }

    /// The records of a collection.
    fn rows_of(&self, pool: &Pool, at: usize, values: Vec<Value>) -> Result<Vec<Row>, EngineError> {
        let Read::All(list) = &self.reads[at] else { return Ok(Vec::new()) };
        let mut texts = Vec::with_capacity(values.len());
        for value in values {
            texts.push(bytes(pool, value)?.unwrap_or_default());
        }
        let width = match list {
            List::Sustained(_) => 1,
            List::LocksOf(_) => 3,
            _ => 2,
        };
        let mut rows = Vec::with_capacity(texts.len() / width);
        for record in texts.chunks_mut(width) {
            let first = &record[0];
            let key = match list {
                List::Xattrs(ino) => Some(Key::Xattr(*ino, Name::stored(first))),
                List::Parents(ino) => parse(first).map(|parent| Key::Parents(*ino, Ino(parent))),
                List::Flocks(ino) => parse_owner(first).map(|owner| Key::Flock(*ino, owner)),
                List::Plocks(ino) => parse_owner(first).map(|owner| Key::Plock(*ino, owner)),
                List::Chunks(ino, ..) => parse(first).map(|index| Key::Chunk(*ino, index as u32)),
                List::Sustained(sid) => parse(first).map(|ino| Key::Sustained(*sid, Ino(ino))),
                List::LocksOf(_) => lock_key(self.keys, first, &record[1]),
                List::Lanes(writer) => match writer_key(first) {
                    Some(Key::Writer(of, lane)) if of == *writer => Some(Key::Writer(of, lane)),
                    _ => continue,
                },
                List::Changes(writer) => parse_pair(first, b':').and_then(|(lane, slot)| {
                    Some(Key::Changes(*writer, lane.try_into().ok()?, slot.try_into().ok()?))
                }),
            };
            let Some(key) = key else {
                return Err(pool
                    .errors()
                    .corrupt(format!("{list:?}"), "a field that is none of the volume format"));
            };
            let value = std::mem::take(&mut record[width - 1]);
            let row = decode(&key, &mut [Some(value)]);
            rows.extend(row.map_err(|damage| damaged(pool, self.keys, &key, damage))?);
        }
        Ok(rows)
    }
}

fn single(pipeline: &mut Pipeline, cell: &Cell) {
    let (command, args): (_, &[&[u8]]) = match cell {
        Cell::Str(key) => ("GET", &[key]),
        Cell::Field(key, field) => ("HGET", &[key, field]),
        Cell::Score(key, member) => ("ZSCORE", &[key, member]),
        Cell::Member(key, member) => ("SISMEMBER", &[key, member]),
        Cell::List(key) => ("LRANGE", &[key, b"0", b"-1"]),
    };
    pipeline.command(command).extend(args.iter().copied());
}

/// The value of a cell that a command of its own was asked for.
fn cell_value(pool: &Pool, value: Value) -> Result<Option<Vec<u8>>, EngineError> {
    Ok(match value {
        Value::Int(0) => None,
        Value::Int(_) => Some(Vec::new()),
        Value::Array(items) if items.is_empty() => None,
        Value::Array(items) => {
            let mut all = Vec::new();
            for item in items {
                all.extend(bytes(pool, item)?.unwrap_or_default());
            }
            Some(all)
        }
        other => bytes(pool, other)?,
    })
}

/// The key of a writer's field.
pub(crate) fn writer_key(field: &[u8]) -> Option<Key> {
    let (writer, lane) = parse_pair(field, b':')?;
    Some(Key::Writer(writer, u16::try_from(lane).ok()?))
}

/// The key of a lock, from its Redis key and field.
fn lock_key(keys: &Keys, key: &[u8], field: &[u8]) -> Option<Key> {
    let (key, owner) = (keys.strip(key)?, parse_owner(field)?);
    match (key.strip_prefix(b"lockf"), key.strip_prefix(b"lockp")) {
        (Some(ino), _) => Some(Key::Flock(Ino(parse(ino)?), owner)),
        (_, Some(ino)) => Some(Key::Plock(Ino(parse(ino)?), owner)),
        _ => None,
    }
}

/// The record of a stored entry.
pub(crate) fn entry_row(
    pool: &Pool,
    keys: &Keys,
    dir: Ino,
    name: Name,
    stored: &[u8],
) -> Result<Row, EngineError> {
    match entry(stored) {
        Ok(entry) => Ok(Row::Entry(dir, name, entry)),
        Err(damage) => Err(damaged(pool, keys, &Key::Entry(dir, name), damage)),
    }
}

/// The record of the node that a stored entry names.
pub(crate) fn node_row(
    pool: &Pool,
    keys: &Keys,
    stored: &[u8],
    attr: Option<Vec<u8>>,
) -> Result<Option<Row>, EngineError> {
    let (Some(ino), Some(attr)) = (entry_ino(stored), attr) else { return Ok(None) };
    let key = Key::Node(ino);
    decode(&key, &mut [Some(attr)]).map_err(|damage| damaged(pool, keys, &key, damage))
}

/// The error about a stored record, which is named as Redis names it.
pub(crate) fn damaged(pool: &Pool, keys: &Keys, key: &Key, damage: &str) -> EngineError {
    let record = match keys.cells(key).first() {
        Some(Cell::Field(hash, field) | Cell::Score(hash, field) | Cell::Member(hash, field)) => {
            format!("{} {}", printable(hash), printable(field))
        }
        Some(cell) => printable(cell.container()),
        None => format!("{key:?}"),
    };
    pool.errors().corrupt(record, damage)
}

/// A key or field for messages.
pub(crate) fn printable(text: &[u8]) -> String {
    text.escape_ascii().to_string()
}

/// An answer that is a list.
pub(crate) fn array(pool: &Pool, value: Option<Value>) -> Result<Vec<Value>, EngineError> {
    match value {
        Some(Value::Array(items)) => Ok(items),
        Some(Value::ServerError(error)) => Err(pool.errors().classify(&error)),
        _ => Err(pool.errors().unexpected("a read")),
    }
}

/// An answer that is a text or nothing.
pub(crate) fn bytes(pool: &Pool, value: Value) -> Result<Option<Vec<u8>>, EngineError> {
    match value {
        Value::Nil => Ok(None),
        Value::BulkString(bytes) => Ok(Some(bytes)),
        Value::Int(number) => Ok(Some(number.to_string().into_bytes())),
        Value::SimpleString(text) => Ok(Some(text.into_bytes())),
        _ => Err(pool.errors().unexpected("a read")),
    }
}
