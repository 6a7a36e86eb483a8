//! Reads: many questions, one pipeline.
//!
//! Native commands answer what stands alone, one script what depends on another answer; all of them travel together.
//! Answers come back in the order of the questions, whatever the order of the commands.

mod round;

use redis::Value;
use sluice_meta::{
    engine::{EngineError, Found, Hold, List, Read},
    schema::{Key, Row},
};
use sluice_types::{Ino, Name};

use self::round::{CHUNKS, FIELDS, Round};
use crate::{
    codec::{Cell, decode, entry, entry_ino},
    keys::{Keys, number, parse, parse_owner, parse_pair},
    pipeline::Pipeline,
    pool::Pool,
};

/// Most chunks that may be asked for or cleared at once, 256 TiB of a file: nothing lists the chunks of a file, so
/// that each index has to be tried.
pub(crate) const MOST_CHUNKS: u32 = 1 << 22;

/// Questions turned into commands: first those about what is held, then the others.
pub(crate) struct Plan<'r> {
    keys: &'r Keys,
    reads: &'r [Read],
    rounds: [Round<'r>; 2],
    /// First cell of each read; reads that are no [`Read::Get`] have none.
    cells: Vec<usize>,
    total: usize,
}

/// Everything that came back, by cell and by read.
pub(crate) struct Answers {
    pub(crate) found: Vec<Found>,
    /// Cells of all [`Read::Get`]s as stored, where they are wanted again at the commit.
    pub(crate) raw: Vec<(Key, Vec<u8>)>,
}

impl<'r> Plan<'r> {
    pub(crate) fn new(keys: &'r Keys, reads: &'r [Read]) -> Self {
        let rounds = [Round::default(), Round::default()];
        let mut plan = Self { keys, reads, rounds, cells: Vec::with_capacity(reads.len() + 1), total: 0 };
        for (at, read) in reads.iter().enumerate() {
            plan.cells.push(plan.total);
            let round = &mut plan.rounds[usize::from(read.hold() == Hold::None)];
            match read {
                Read::Get(key, _) => {
                    for cell in keys.cells(key) {
                        round.get(plan.total, cell);
                        plan.total += 1;
                    }
                }
                Read::Follow(dir, name, _) => round.follows.entry(*dir).or_default().push((at, name)),
                Read::Names { dir, limit } => {
                    round.ask(at, "n", &[&keys.dir(*dir), &number(*limit as u64)]);
                }
                Read::All(list, _) => round.list(keys, at, *list),
            }
        }
        plan.cells.push(plan.total);
        plan
    }

    /// Asks the server everything.
    pub(crate) fn run(mut self, pool: &Pool) -> Result<Answers, EngineError> {
        let mut pipeline = Pipeline::default();
        for round in &mut self.rounds {
            round.put_into(&mut pipeline, self.keys);
            if round.ranges.len() > (MOST_CHUNKS / CHUNKS) as usize {
                return Err(pool.refused("the file has too many chunks to look at them all at once".into()));
            }
        }
        let mut values = Vec::with_capacity(pipeline.len());
        if pipeline.len() > 0 {
            for value in pool.ask(&pipeline)? {
                values.push(pool.sound(value)?);
            }
        }
        self.finish(pool, values)
    }

    /// Puts every answer where it belongs.
    fn finish(self, pool: &Pool, values: Vec<Value>) -> Result<Answers, EngineError> {
        let mut values = values.into_iter();
        let mut found: Vec<Option<Found>> = self.reads.iter().map(|_| None).collect();
        let mut cells: Vec<Option<Vec<u8>>> = vec![None; self.total];
        for round in &self.rounds {
            self.take(pool, round, &mut values, &mut cells, &mut found)?;
        }
        let mut raw = Vec::new();
        for (at, read) in self.reads.iter().enumerate() {
            let Read::Get(key, _) = read else { continue };
            let cells = &mut cells[self.cells[at]..self.cells[at + 1]];
            if let (Key::Setting | Key::Session(_), Some(Some(text))) = (key, cells.last()) {
                raw.push((key.clone(), text.clone()));
            }
            let row = decode(key, cells).map_err(|damage| damaged(pool, self.keys, key, damage))?;
            found[at] = Some(Found::Row(row));
        }
        let empty = |read: &Read| match read {
            Read::Get(..) => Found::Row(None),
            Read::Names { .. } => Found::Names(Vec::new()),
            _ => Found::Rows(Vec::new()),
        };
        let found = found.into_iter().zip(self.reads).map(|(f, read)| f.unwrap_or_else(|| empty(read)));
        Ok(Answers { found: found.collect(), raw })
    }

    /// Takes the answers to one round, in the order of [`Round::put_into`].
    fn take(
        &self,
        pool: &Pool,
        round: &Round<'_>,
        values: &mut impl Iterator<Item = Value>,
        cells: &mut [Option<Vec<u8>>],
        found: &mut [Option<Found>],
    ) -> Result<(), EngineError> {
        for at in &round.native_for {
            let rows = self.rows_of(pool, *at, array(pool, values.next())?)?;
            found[*at] = Some(Found::Rows(rows));
        }
        for target in &round.targets {
            for (at, value) in target.iter().zip(array(pool, values.next())?) {
                cells[*at] = bytes(pool, value)?;
            }
        }
        for ((at, _), value) in round.singles.iter().zip(values.by_ref()) {
            cells[*at] = cell_value(pool, value)?;
        }
        for (ranges, value) in round.ranges.iter().zip(values.by_ref()) {
            for (at, chunks) in ranges.whose.iter().zip(array(pool, Some(value))?) {
                self.scripted_answer(pool, *at, array(pool, Some(chunks))?, found)?;
            }
        }
        for hashes in round.xattrs.chunks(FIELDS) {
            let answer = array(pool, values.next())?.pop();
            let mut present = array(pool, answer)?.into_iter();
            while let (Some(position), Some(fields)) = (present.next(), present.next()) {
                let Value::Int(position) = position else { return Err(pool.odd("a read")) };
                let hash = usize::try_from(position).ok().and_then(|position| hashes.get(position));
                let Some((at, _)) = hash else { return Err(pool.odd("a read")) };
                found[*at] = Some(Found::Rows(self.rows_of(pool, *at, array(pool, Some(fields))?)?));
            }
        }
        if !round.followed.is_empty() {
            self.follow(pool, &round.followed, array(pool, values.next())?, found)?;
        }
        if !round.answers.is_empty() {
            for (at, value) in round.answers.iter().zip(array(pool, values.next())?) {
                self.scripted_answer(pool, *at, array(pool, Some(value))?, found)?;
            }
        }
        Ok(())
    }

    /// Entries and the nodes they name.
    fn follow(
        &self,
        pool: &Pool,
        followed: &[usize],
        values: Vec<Value>,
        found: &mut [Option<Found>],
    ) -> Result<(), EngineError> {
        let mut values = values.into_iter();
        for at in followed {
            let Read::Follow(dir, name, _) = &self.reads[*at] else { continue };
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
        let Read::All(list, _) = &self.reads[at] else { return Ok(Vec::new()) };
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
                return Err(pool.corrupt(format!("{list:?}"), "a field that is none of the volume format"));
            };
            let value = std::mem::take(&mut record[width - 1]);
            let row = decode(&key, &mut [Some(value)]);
            rows.extend(row.map_err(|damage| damaged(pool, self.keys, &key, damage))?);
        }
        Ok(rows)
    }
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
    pool.corrupt(record, damage)
}

/// A key or field for messages.
pub(crate) fn printable(text: &[u8]) -> String {
    text.escape_ascii().to_string()
}

/// An answer that is a list.
pub(crate) fn array(pool: &Pool, value: Option<Value>) -> Result<Vec<Value>, EngineError> {
    match value {
        Some(Value::Array(items)) => Ok(items),
        Some(Value::ServerError(error)) => Err(pool.judge(&error)),
        _ => Err(pool.odd("a read")),
    }
}

/// An answer that is a text or nothing.
pub(crate) fn bytes(pool: &Pool, value: Value) -> Result<Option<Vec<u8>>, EngineError> {
    match value {
        Value::Nil => Ok(None),
        Value::BulkString(bytes) => Ok(Some(bytes)),
        Value::Int(number) => Ok(Some(number.to_string().into_bytes())),
        Value::SimpleString(text) => Ok(Some(text.into_bytes())),
        _ => Err(pool.odd("a read")),
    }
}
