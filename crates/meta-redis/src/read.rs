//! Reads: many requests in one pipeline.
//!
//! Native commands read independent records. One script reads records that depend on another one.
//! All are sent together. Results have the order of the requests, whatever the order of the
//! commands.

use redis::Value;
use rustc_hash::FxHashMap;
use sluice_meta::{
    engine::{EngineError, Found, List, Read},
    schema::Key,
};
use sluice_types::{Ino, Name};

use crate::{
    answer::{Cell, Form, Reader},
    codec::Shape,
    keys::{Text, begin, number},
    pipeline::{Args, Pipeline},
    pool::Pool,
    script::{FOLLOW, READ},
};

/// Most chunks that one call of the script reads, so that it does not block the server for long.
const CHUNKS_PER_CALL: u32 = 4096;

/// Most chunks that may be read or cleared at once, 256 TiB of a file. No key lists the chunks of a
/// file, so each index must be tried.
pub(crate) const MAX_CHUNKS: u32 = 1 << 22;

/// Most fields or keys of one command: the scripts cannot take more than 8000.
const FIELDS: usize = 3000;

/// Fewer hashes than this are read one by one.
const FEW: usize = 4;

/// The form of the answer to a command. Numbers are those of reads and of their cells.
enum Answer {
    /// One cell.
    Cell(usize),
    /// Cells.
    Cells(Vec<usize>),
    /// The records of a collection.
    Rows(usize),
    /// For each read, an entry and the node that it names.
    Followed(Vec<usize>),
    /// For each read, the answer of a part of the script.
    Scripted(Vec<usize>),
    /// For each read whose hash exists, its position among the reads, and its fields.
    Hashes(Vec<usize>),
}

/// One call of the script.
#[derive(Default)]
struct Call {
    args: Args,
    /// How many chunks it reads.
    chunks: u32,
    /// The reads that it answers.
    whose: Vec<usize>,
}

/// The commands for a list of reads.
pub(crate) struct Plan<'r> {
    reader: Reader<'r>,
    reads: &'r [Read],
    pipeline: Pipeline,
    answers: Vec<Answer>,
    /// First cell of each read; reads that are no [`Read::Get`] have none.
    cells: Vec<usize>,
    calls: Vec<Call>,
    /// Cells that are fields, by their hashes; under an empty key strings, which are keys.
    hashes: FxHashMap<Text, Vec<(usize, Text)>>,
    /// Reads of names, by their directories.
    follows: FxHashMap<Ino, Vec<(usize, &'r Name)>>,
    /// Reads of extended attributes, and their hashes.
    xattrs: Vec<(usize, Text)>,
}

impl<'r> Plan<'r> {
    pub(crate) fn new(reader: Reader<'r>, reads: &'r [Read]) -> Self {
        let mut plan = Self {
            reader,
            reads,
            pipeline: Pipeline::default(),
            answers: Vec::new(),
            cells: Vec::with_capacity(reads.len() + 1),
            calls: Vec::new(),
            hashes: FxHashMap::default(),
            follows: FxHashMap::default(),
            xattrs: Vec::new(),
        };
        let mut cell = 0;
        for (at, read) in reads.iter().enumerate() {
            plan.cells.push(cell);
            match read {
                Read::Get(key) => cell = plan.get(key, cell),
                Read::Follow(dir, name) => plan.follows.entry(*dir).or_default().push((at, name)),
                Read::Names { dir, limit } => {
                    plan.ask(at, "n", &[&reader.keys.dir(*dir), &number(*limit)], 0);
                }
                Read::All(list) => plan.list(at, *list),
            }
        }
        plan.cells.push(cell);
        plan.gather();
        plan
    }

    /// Adds reads of the cells of a record. Returns the number of the next cell.
    fn get(&mut self, key: &Key, first: usize) -> usize {
        let mut at = first;
        for cell in self.reader.keys.cells(key) {
            match cell.shape {
                Shape::Text | Shape::Counter => {
                    self.hashes.entry(Text::new()).or_default().push((at, cell.key));
                }
                Shape::Field | Shape::Number | Shape::Links => {
                    self.hashes.entry(cell.key).or_default().push((at, cell.field));
                }
                Shape::List => self.command("LRANGE", &[&cell.key, b"0", b"-1"], Answer::Cell(at)),
                Shape::Score => self.command("ZSCORE", &[&cell.key, &cell.field], Answer::Cell(at)),
                Shape::Member => self.command("SISMEMBER", &[&cell.key, &cell.field], Answer::Cell(at)),
            }
            at += 1;
        }
        at
    }

    fn command(&mut self, name: &str, args: &[&[u8]], answer: Answer) {
        self.pipeline.command(name).extend(args.iter().copied());
        self.answers.push(answer);
    }

    /// Adds a read to the script.
    fn ask(&mut self, at: usize, op: &str, args: &[&[u8]], chunks: u32) {
        if self.calls.last().is_none_or(|last| last.chunks + chunks > CHUNKS_PER_CALL) {
            self.calls.push(Call::default());
        }
        if let Some(call) = self.calls.last_mut() {
            call.args.push(op.as_bytes());
            call.args.push_number(args.len() as u64);
            call.args.extend(args.iter().copied());
            call.chunks += chunks;
            call.whose.push(at);
        }
    }

    fn list(&mut self, at: usize, list: List) {
        let keys = self.reader.keys;
        match (list, keys.list(list)) {
            (List::Xattrs(_), Some(hash)) => self.xattrs.push((at, hash)),
            (List::Sustained(_), Some(set)) => self.command("SMEMBERS", &[&set], Answer::Rows(at)),
            (_, Some(hash)) => self.command("HGETALL", &[&hash], Answer::Rows(at)),
            (List::LocksOf(sid), _) => {
                self.ask(at, "l", &[&keys.locked(sid), &begin(sid, b'_')], 0);
            }
            (List::Chunks(ino, from, to), _) => {
                let mut start = from;
                while start < to {
                    let end = to.min(start.saturating_add(CHUNKS_PER_CALL));
                    let bounds = [start, end].map(number);
                    self.ask(at, "c", &[&keys.chunks(ino), &bounds[0], &bounds[1]], end - start);
                    start = end;
                }
            }
            _ => {}
        }
    }

    /// Makes commands of the collected reads.
    fn gather(&mut self) {
        let places = |items: &[(usize, Text)]| items.iter().map(|(at, _)| *at).collect();
        let texts = |items: &[(usize, Text)], args: &mut Args| {
            args.extend(items.iter().map(|(_, text)| &text[..]));
        };
        for (hash, fields) in &self.hashes {
            for fields in fields.chunks(FIELDS) {
                let command = self.pipeline.command(if hash.is_empty() { "MGET" } else { "HMGET" });
                command.extend((!hash.is_empty()).then_some(&hash[..]));
                texts(fields, command);
                self.answers.push(Answer::Cells(places(fields)));
            }
        }
        // A script finds those that do not exist at once. For a few, it costs more than it saves.
        if self.xattrs.len() < FEW {
            for (at, key) in std::mem::take(&mut self.xattrs) {
                self.command("HGETALL", &[&key], Answer::Rows(at));
            }
        }
        for hashes in self.xattrs.chunks(FIELDS) {
            let mut args = Args::default();
            args.push(b"x");
            args.push_number(hashes.len() as u64);
            texts(hashes, &mut args);
            self.pipeline.script(&READ, args);
            self.answers.push(Answer::Hashes(places(hashes)));
        }
        if !self.follows.is_empty() {
            let (mut args, mut followed) = (Args::default(), Vec::new());
            args.push(&self.reader.keys.word("i"));
            for (dir, names) in &self.follows {
                for names in names.chunks(FIELDS) {
                    args.push_number(names.len() as u64);
                    args.push(&self.reader.keys.dir(*dir));
                    args.extend(names.iter().map(|(_, name)| &name[..]));
                    followed.extend(names.iter().map(|(at, _)| *at));
                }
            }
            self.pipeline.script(&FOLLOW, args);
            self.answers.push(Answer::Followed(followed));
        }
        for call in &mut self.calls {
            self.pipeline.script(&READ, std::mem::take(&mut call.args));
            self.answers.push(Answer::Scripted(std::mem::take(&mut call.whose)));
        }
    }

    /// Sends the commands.
    pub(crate) fn run(self, pool: &Pool) -> Result<Vec<Found>, EngineError> {
        if self.calls.len() > (MAX_CHUNKS / CHUNKS_PER_CALL) as usize {
            let reason = "the file has too many chunks to look at them all at once";
            return Err(self.reader.errors.refused(reason));
        }
        let values = if self.answers.is_empty() { Vec::new() } else { pool.ask(&self.pipeline)? };
        self.finish(values)
    }

    /// Assigns the answers to the reads.
    fn finish(self, values: Vec<Value>) -> Result<Vec<Found>, EngineError> {
        let reader = self.reader;
        let mut found: Vec<Found> = self.reads.iter().map(Found::nothing).collect();
        let mut cells: Vec<Cell> = vec![None; self.cells.last().copied().unwrap_or_default()];
        for (answer, value) in self.answers.iter().zip(values) {
            match answer {
                Answer::Cell(at) => cells[*at] = single(reader, value)?,
                Answer::Cells(places) => {
                    for (at, value) in places.iter().zip(reader.parse::<Vec<Value>>(value)?) {
                        cells[*at] = reader.parse(value)?;
                    }
                }
                Answer::Rows(at) => self.add(*at, reader.parse(value)?, &mut found)?,
                Answer::Followed(reads) => {
                    let mut values = reader.parse::<Vec<Value>>(value)?.into_iter();
                    for at in reads {
                        let mut next = || reader.parse(values.next().unwrap_or(Value::Nil));
                        found[*at] = self.follow(*at, next()?, next()?)?;
                    }
                }
                Answer::Scripted(reads) => {
                    for (at, value) in reads.iter().zip(reader.parse::<Vec<Value>>(value)?) {
                        self.add(*at, reader.parse(value)?, &mut found)?;
                    }
                }
                Answer::Hashes(reads) => {
                    let present: Vec<Vec<(usize, Vec<Cell>)>> = reader.parse(value)?;
                    for (position, fields) in present.into_iter().flatten() {
                        let at = reads.get(position).ok_or_else(|| reader.errors.unexpected("a read"))?;
                        self.add(*at, fields, &mut found)?;
                    }
                }
            }
        }
        for (at, read) in self.reads.iter().enumerate() {
            let Read::Get(key) = read else { continue };
            found[at] = Found::Row(reader.row(key, &mut cells[self.cells[at]..self.cells[at + 1]])?);
        }
        Ok(found)
    }

    /// An entry and the node that it names.
    fn follow(&self, at: usize, stored: Cell, attr: Cell) -> Result<Found, EngineError> {
        let Read::Follow(dir, name) = &self.reads[at] else { return Ok(Found::nothing(&self.reads[at])) };
        let mut rows = Vec::with_capacity(2);
        if stored.is_some() {
            let node = self.reader.node(&stored, attr);
            rows.extend(self.reader.entry(*dir, name.clone(), stored)?);
            rows.extend(node?);
        }
        Ok(Found::Rows(rows))
    }

    /// Adds names or records to what was found.
    fn add(&self, at: usize, mut texts: Vec<Cell>, found: &mut [Found]) -> Result<(), EngineError> {
        match (&mut found[at], &self.reads[at]) {
            (Found::Names(names), _) => {
                names.extend(texts.iter().map(|name| Name::stored(name.as_deref().unwrap_or_default())));
            }
            (Found::Rows(rows), Read::All(list)) => {
                if let List::Lanes(writer) = list {
                    texts = lanes_of(*writer, texts);
                }
                let form = Form {
                    key: self.reader.keys.list(*list),
                    fields: !matches!(list, List::Chunks(..)),
                    values: usize::from(!matches!(list, List::Sustained(_))),
                };
                let (more, damaged) = self.reader.rows(&form, texts);
                if let Some(damage) = damaged.into_iter().next() {
                    return Err(damage);
                }
                rows.extend(more);
            }
            _ => {}
        }
        Ok(())
    }
}

/// Selects the fields of one writer, with their values.
fn lanes_of(writer: u64, mut fields: Vec<Cell>) -> Vec<Cell> {
    let own = begin(writer, b':');
    let is_own = |field: &Cell| field.as_deref().is_some_and(|field| field.starts_with(&own));
    let lanes = fields.chunks_exact_mut(2).filter(|lane| is_own(&lane[0]));
    lanes.flat_map(|lane| lane.iter_mut().map(std::mem::take)).collect()
}

/// The value of a cell that was read by its own command.
fn single(reader: Reader<'_>, value: Value) -> Result<Cell, EngineError> {
    Ok(match value {
        Value::Int(present) => (present != 0).then(Vec::new),
        Value::Array(items) => {
            let records: Vec<Vec<u8>> = reader.parse(Value::Array(items))?;
            Some(records.concat()).filter(|records| !records.is_empty())
        }
        text => reader.parse(text)?,
    })
}
