//! Pages of records with keys of their own: one pass over all keys of the database.
//!
//! A page finds keys, or reads the values of keys that an earlier page found. What must stay true:
//! a key is found before it is read to its end, and a cursor contains the keys that were found and
//! not read.

use std::{
    borrow::Cow,
    cell,
    iter::once,
    panic::resume_unwind,
    sync::mpsc::{Receiver, channel},
    thread,
};

use redis::Value;
use sluice_meta::{
    engine::{Cursor, EngineError, Page, Scan},
    schema::Key,
};
use sluice_types::{Ino, Name};

use crate::{
    answer::{Cell, Reader},
    keys::{Keys, Text, number, parse, parse_pair},
    pipeline::Pipeline,
    pool::Pool,
};

/// Keys that one command of a search visits: it blocks the server for some 5 ms.
const PASSED: usize = 10_000;
/// Keys found by one page, 16 bytes each.
const FOUND: usize = 400_000;
/// As [`FOUND`], for keys of one kind: nobody divides them, so each page of records has a cursor
/// with those that are left.
const FOUND_OF_ONE: usize = 30_000;
/// Bytes of a cursor before its keys, and of each key.
const HEAD: usize = 32;
const PLACE: usize = 16;
/// Keys of one part that [`divide`] makes. With parts of 10,000, a dump takes 5 % longer, because
/// each thread needs more memory.
const PART: usize = 4000;
/// Answers of a search whose keys are merged at once.
const MERGED: usize = 4;
/// Strings that one command requests.
const STRINGS: usize = 2000;
/// A hash that fills at most so many pages is returned by one command, which takes the server a
/// quarter of the time that HSCAN takes. With pages of 20,000 records, it blocks the server for up
/// to 20 ms.
const WHOLE_PAGES: u64 = 7;

/// Searches keys of the volume that begin with a word, behind the cursor of a process. Another
/// process than that of the cursor begins anew. Each request visits `count` keys; the next one is
/// sent while the keys of an answer still come, as long as there are more and `more` agrees. `take`
/// gets the keys of each answer. Returns the process that answered, and its next cursor.
pub(crate) fn search(
    (pool, reader): (&Pool, Reader<'_>),
    word: &str,
    (of, cursor): (u64, u64),
    count: usize,
    more: impl Fn() -> bool,
    mut take: impl FnMut(Vec<Value>) -> Result<(), EngineError>,
) -> Result<(u64, u64), EngineError> {
    let request = |cursor| {
        let mut pipeline = Pipeline::default();
        let scan = pipeline.command("SCAN");
        scan.extend([&number(cursor)[..], b"COUNT", &number(count)]);
        let begin = reader.keys.word(word);
        if !begin.is_empty() {
            scan.extend([&b"MATCH"[..], &[&begin[..], b"*"].concat()]);
        }
        if !reader.keys.prefix.is_empty() {
            // While keys move to another node, a cluster node lists only those that it still has.
            // This command names a key that does not exist, so that a node without all keys of the
            // slot refuses it.
            pipeline.command("GET").push(&reader.keys.missing_key());
        }
        pipeline
    };
    let failed = cell::Cell::new(false);
    let next = |process, first: Option<&Value>| match first {
        None => Some(request(if process == of { cursor } else { 0 })),
        Some(Value::BulkString(cursor)) => {
            let cursor = parse(cursor).filter(|cursor| *cursor != 0)?;
            (!failed.get() && more()).then(|| request(cursor))
        }
        Some(_) => None,
    };
    let mut found = Ok(0);
    let process = pool.chain(next, |answers| {
        let mut keys_of = |answers: Vec<Value>| {
            let mut answers = answers.into_iter();
            let (cursor, keys): (u64, Vec<Value>) = reader.parse(answers.next().unwrap_or(Value::Nil))?;
            answers.try_for_each(|owned| reader.errors.sound(owned).map(drop))?;
            take(keys).map(|()| cursor)
        };
        if found.is_ok() {
            found = keys_of(answers);
            failed.set(found.is_err());
        }
    })?;
    Ok((process, found?))
}

/// What the keys begin with, each for one kind of records. A number follows.
const WORDS: [&str; 7] = ["i", "d", "c", "s", "x", "p", "session"];

/// Those of the keys that hold the records of a scan; none if one key holds them all.
pub(crate) fn words(scan: Scan) -> &'static [&'static str] {
    match scan {
        Scan::Inodes => &WORDS[..6],
        Scan::Nodes => &["i"],
        Scan::AllEntries => &["d"],
        Scan::Chunks => &["c"],
        Scan::Symlinks => &["s"],
        Scan::Xattrs => &["x"],
        Scan::Sustained => &["session"],
        _ => &[],
    }
}

/// A key of the database.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Place {
    /// The inode or session.
    number: u64,
    /// Which of [`WORDS`].
    word: u32,
    /// Of the chunk.
    index: u32,
}

impl Place {
    /// The place of a key; `None` if it begins with none of `words`.
    ///
    /// # Errors
    /// If it begins as such a key and goes on as none.
    fn of(reader: Reader<'_>, words: &[&'static str], key: &[u8]) -> Result<Option<Self>, EngineError> {
        let rest = |word: &&'static str| {
            let rest = key.strip_prefix(&*reader.keys.prefix)?.strip_prefix(word.as_bytes())?;
            // Others begin with such a letter, too: `dirQuota`.
            rest.first()?.is_ascii_digit().then_some((*word, rest))
        };
        let Some((word, rest)) = words.iter().find_map(rest) else { return Ok(None) };
        let numbers =
            if word == "c" { parse_pair(rest, b'_') } else { parse(rest).map(|number| (number, 0)) };
        let word = WORDS.iter().position(|known| *known == word).unwrap_or_default() as u32;
        let padded = |digits: &[u8]| digits.len() > 1 && digits[0] == b'0';
        let numbers = numbers.filter(|_| !rest.split(|byte| *byte == b'_').any(padded));
        let place = numbers.map(|(number, index)| Some(Self { number, word, index }));
        place.ok_or_else(|| reader.not_of_the_format(key, b""))
    }

    fn word(self) -> &'static str {
        WORDS[self.word as usize]
    }

    /// The key.
    fn key(self, keys: &Keys) -> Text {
        let mut key = keys.of(self.word(), self.number);
        if self.word() == "c" {
            key.push(b'_');
            key.extend_from_slice(&number(self.index));
        }
        key
    }

    /// The record there, which is a field or member if the key holds several.
    fn record(self, field: &[u8]) -> Option<Key> {
        let ino = Ino(self.number);
        Some(match self.word() {
            "i" => Key::Node(ino),
            "d" => Key::Entry(ino, Name::stored(field)),
            "c" => Key::Chunk(ino, self.index),
            "s" => Key::Symlink(ino),
            "x" => Key::Xattr(ino, Name::stored(field)),
            "p" => Key::Parents(ino, Ino(parse(field)?)),
            _ => Key::Sustained(self.number, Ino(parse(field)?)),
        })
    }
}

/// The position of a scan.
#[derive(Clone, Default)]
pub(crate) struct Position {
    /// The process that returned the cursors.
    process: u64,
    /// Which of several collections.
    pub(crate) part: u64,
    /// Cursor of the collection, or of the search.
    pub(crate) cursor: u64,
    /// Cursor in the first of `pending`.
    inner: u64,
    /// Keys that the search has passed but that are not read to their ends.
    pending: Vec<Place>,
}

impl Position {
    pub(crate) fn read(cursor: &Cursor) -> Option<Self> {
        let (numbers, []) = cursor.0.as_chunks::<8>() else { return None };
        let (first, places) = numbers.split_first_chunk::<4>()?;
        let [process, part, cursor, inner] = first.map(u64::from_be_bytes);
        let (places, []) = places.as_chunks::<2>() else { return None };
        let place = |place: &[[u8; 8]; 2]| {
            let [number, rest] = place.map(u64::from_be_bytes);
            Place { number, word: (rest >> 32) as u32, index: rest as u32 }
        };
        let pending: Vec<Place> = places.iter().map(place).collect();
        let known = pending.iter().all(|place| (place.word as usize) < WORDS.len());
        known.then_some(Self { process, part, cursor, inner, pending })
    }

    pub(crate) fn cursor(&self) -> Cursor {
        let mut out = Vec::with_capacity(HEAD + PLACE * self.pending.len());
        let mut put = |number: u64| out.extend_from_slice(&number.to_be_bytes());
        for number in [self.process, self.part, self.cursor, self.inner] {
            put(number);
        }
        for Place { number, word, index } in &self.pending {
            put(*number);
            put((u64::from(*word) << 32) | u64::from(*index));
        }
        Cursor(out)
    }

    /// The position for another process, where no cursor is valid: that of the collection begins.
    pub(crate) fn by(self, process: u64) -> Self {
        let begin = Self { process, part: self.part, ..Self::default() };
        if process == self.process { self } else { begin }
    }

    /// Where the next page begins, if there is more.
    fn next(&self) -> Option<Cursor> {
        (self.cursor != 0 || !self.pending.is_empty()).then(|| self.cursor())
    }
}

/// Parts of the keys in a cursor, and a cursor that finds other keys. The keys are not decoded,
/// because the server waits meanwhile.
pub(crate) fn divide(cursor: Cursor) -> (Vec<Cursor>, Option<Cursor>) {
    let Some((head, places)) = cursor.0.split_at_checked(HEAD) else { return (Vec::new(), Some(cursor)) };
    match Position::read(&Cursor(head.to_vec())) {
        // The cursor in a key that is partly read is of no use elsewhere.
        Some(all) if all.inner == 0 && !places.is_empty() => {
            let head = Position { process: all.process, ..Position::default() }.cursor();
            let part = |part: &[u8]| Cursor([&head.0, part].concat());
            (places.chunks(PLACE * PART).map(part).collect(), all.next())
        }
        _ => (Vec::new(), Some(cursor)),
    }
}

/// Places, and the errors of keys that have none.
type Places = (Vec<Place>, Vec<EngineError>);

/// A pass over all keys.
pub(crate) struct Pass<'p> {
    pub(crate) pool: &'p Pool,
    pub(crate) reader: Reader<'p>,
    /// What the keys begin with.
    pub(crate) words: &'static [&'static str],
    /// About how many records a page has.
    pub(crate) limit: usize,
}

impl Pass<'_> {
    /// One page: no records but a cursor with the keys that were found, or records.
    pub(crate) fn page(&self, from: Option<&Cursor>) -> Result<Page, EngineError> {
        let refused = || self.reader.errors.refused("the cursor is not of this scan");
        match from.map(|cursor| Position::read(cursor).ok_or_else(refused)).transpose()? {
            Some(position) if !position.pending.is_empty() => self.read(position),
            position => self.find(position.map_or((0, 0), |position| (position.process, position.cursor))),
        }
    }

    /// Finds more keys, behind the cursor of a process.
    fn find(&self, at: (u64, u64)) -> Result<Page, EngineError> {
        let (begin, most) = if let [word] = self.words { (*word, FOUND_OF_ONE) } else { ("", FOUND) };
        thread::scope(|scope| {
            let (sender, names) = channel();
            let places = scope.spawn(move || self.places(&names));
            let (requests, found) = (cell::Cell::new(1), cell::Cell::new(0));
            let more = || {
                requests.set(requests.get() + 1);
                requests.get() <= FOUND / PASSED && found.get() < most
            };
            let searched = search((self.pool, self.reader), begin, at, PASSED, more, |keys| {
                found.set(found.get() + keys.len());
                // Who takes them ends after us.
                let _ = sender.send(keys);
                Ok(())
            });
            drop(sender);
            let places = places.join().unwrap_or_else(|panic| resume_unwind(panic));
            let (process, cursor) = searched?;
            let (pending, damaged) = places?;
            let position = Position { process, cursor, pending, ..Position::default() };
            Ok(Page { rows: Vec::new(), damaged, next: position.next() })
        })
    }

    /// The places of keys. Records that were made together are often close in the server's memory,
    /// and reading them together is faster.
    fn places(&self, names: &Receiver<Vec<Value>>) -> Result<Places, EngineError> {
        let (mut places, mut damaged) = (Vec::new(), Vec::new());
        for (at, names) in names.iter().enumerate() {
            let begin = places.len();
            for key in names {
                let key: Vec<u8> = self.reader.parse(key)?;
                match Place::of(self.reader, self.words, &key) {
                    Ok(place) => places.extend(place),
                    Err(damage) => damaged.push(damage),
                }
            }
            // The server finds the next keys meanwhile.
            places[begin..].sort_unstable();
            if at % MERGED == MERGED - 1 {
                places.sort();
            }
        }
        // This sort merges what is sorted.
        places.sort();
        places.dedup();
        Ok((places, damaged))
    }

    /// Reads the values of the first keys that were found.
    fn read(&self, position: Position) -> Result<Page, EngineError> {
        let request = Request::new(self, &position, &self.lengths(&position)?);
        let (answers, process) = self.pool.ask_by(|_| Cow::Borrowed(&request.pipeline))?;
        // No cursor is valid there.
        if process != position.process && position.cursor != 0 {
            return self.find((0, 0));
        }
        if process != position.process && position.inner != 0 {
            return self.read(Position { inner: 0, process, ..position });
        }
        request.page(self.reader, Position { process, ..position }, answers)
    }

    /// How many records each of the next keys holds, in their order.
    fn lengths(&self, position: &Position) -> Result<Vec<u64>, EngineError> {
        let places = self.next_places(position);
        let mut pipeline = Pipeline::default();
        for place in places {
            let command = match place.word() {
                "session" => "SCARD",
                "d" | "x" | "p" => "HLEN",
                _ => continue,
            };
            pipeline.command(command).push(&place.key(self.reader.keys));
        }
        let answers = if pipeline.len() == 0 { Vec::new() } else { self.pool.ask(&pipeline)? };
        let mut answers = answers.into_iter();
        let length = |place: &Place| match place.word() {
            "i" | "s" | "c" => Ok(1),
            _ => self.reader.parse(answers.next().unwrap_or(Value::Nil)),
        };
        places.iter().map(length).collect()
    }

    /// The keys that one page may read.
    fn next_places<'a>(&self, position: &'a Position) -> &'a [Place] {
        &position.pending[..position.pending.len().min(self.limit.max(1))]
    }
}

/// The commands of one page.
#[derive(Default)]
struct Request {
    pipeline: Pipeline,
    /// The keys in the order of the commands. Strings come last, several in a command.
    asked: Vec<Place>,
    /// Keys that are left for the next page.
    waiting: Vec<Place>,
    /// Whether the first one is a hash of which a part is requested.
    is_divided: bool,
}

impl Request {
    /// Asks for keys that hold so many records each.
    fn new(pass: &Pass<'_>, position: &Position, lengths: &[u64]) -> Self {
        let mut request = Self::default();
        let (now, later) = position.pending.split_at(lengths.len());
        let limit = pass.limit.max(1) as u64;
        let (mut strings, mut room) = (Vec::new(), limit);
        for (at, (place, length)) in now.iter().zip(lengths).enumerate() {
            let key = place.key(pass.reader.keys);
            let is_divided = *length > limit * WHOLE_PAGES || (at == 0 && position.inner != 0);
            match place.word() {
                "i" | "s" => {
                    strings.push(*place);
                    continue;
                }
                "c" => request.pipeline.command("LRANGE").extend([&key[..], b"0", b"-1"]),
                // Only the first one can be partly read, and it may fill more than a page.
                word if at > 0 && (is_divided && word != "session" || *length > room && room < limit) => {
                    request.waiting.push(*place);
                    continue;
                }
                word => {
                    room = room.saturating_sub(*length);
                    match word {
                        "session" => request.pipeline.command("SMEMBERS").push(&key),
                        _ if is_divided => {
                            request.is_divided = true;
                            let (cursor, count) = (number(position.inner), number(limit));
                            let scan = request.pipeline.command("HSCAN");
                            scan.extend([&key[..], &cursor, b"COUNT", &count]);
                        }
                        _ => request.pipeline.command("HGETALL").push(&key),
                    }
                }
            }
            request.asked.push(*place);
        }
        for places in strings.chunks(STRINGS) {
            let command = request.pipeline.command("MGET");
            for place in places {
                command.push(&place.key(pass.reader.keys));
            }
        }
        request.asked.append(&mut strings);
        request.waiting.extend_from_slice(later);
        request
    }

    /// The records.
    fn page(self, reader: Reader<'_>, mut next: Position, answers: Vec<Value>) -> Result<Page, EngineError> {
        let mut page = Page { rows: Vec::new(), damaged: Vec::new(), next: None };
        let mut take = |place: Place, field: &[u8], value: Vec<u8>| {
            let row = match place.record(field) {
                Some(key) => reader.row(&key, &mut [Some(value)]),
                None => Err(reader.not_of_the_format(&place.key(reader.keys), field)),
            };
            match row {
                Ok(row) => page.rows.extend(row),
                Err(damage) => page.damaged.push(damage),
            }
        };
        (next.inner, next.pending) = (0, Vec::new());
        let mut is_divided = self.is_divided;
        let mut asked = self.asked.into_iter();
        for answer in answers {
            let Some(place) = asked.next() else { break };
            match place.word() {
                "i" | "s" => {
                    let places = once(place).chain(asked.by_ref());
                    // The values come first: when they end, no place is taken from the next answer.
                    for (value, place) in reader.parse::<Vec<Cell>>(answer)?.into_iter().zip(places) {
                        let Some(value) = value else { continue };
                        take(place, b"", value);
                    }
                }
                // A list without elements does not exist.
                "c" => match reader.parse::<Vec<Vec<u8>>>(answer)?.concat() {
                    slices if slices.is_empty() => {}
                    slices => take(place, b"", slices),
                },
                "session" => {
                    for member in reader.parse::<Vec<Vec<u8>>>(answer)? {
                        take(place, &member, Vec::new());
                    }
                }
                _ => {
                    let cells: Vec<Vec<u8>> = if std::mem::take(&mut is_divided) {
                        let (inner, cells) = reader.parse(answer)?;
                        if inner != 0 {
                            (next.inner, next.pending) = (inner, vec![place]);
                        }
                        cells
                    } else {
                        reader.parse(answer)?
                    };
                    let mut cells = cells.into_iter();
                    while let (Some(field), Some(value)) = (cells.next(), cells.next()) {
                        take(place, &field, value);
                    }
                }
            }
        }
        next.pending.extend(self.waiting);
        page.next = next.next();
        Ok(page)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_hold_all_keys_in_their_order() {
        let pending: Vec<Place> =
            (0..25_000).map(|n| Place { number: n / 2, word: (n % 7) as u32, index: n as u32 }).collect();
        for cursor in [0, 77] {
            let all = Position { process: 9, part: 3, cursor, inner: 0, pending: pending.clone() };
            let (parts, rest) = divide(all.cursor());
            let rest = rest.and_then(|rest| Position::read(&rest));
            let rest = rest.map(|rest| (rest.process, rest.part, rest.cursor, rest.pending.len()));
            assert_eq!(rest, (cursor != 0).then_some((9, 3, 77, 0)));
            let parts: Vec<Position> = parts.iter().filter_map(Position::read).collect();
            assert_eq!(parts.len(), 25_000_usize.div_ceil(PART));
            assert!(parts.iter().all(|part| part.process == 9 && part.cursor == 0 && part.inner == 0));
            assert!(parts.into_iter().flat_map(|part| part.pending).eq(pending.iter().copied()));
        }
        let half_read = Position { inner: 5, pending, ..Position::default() }.cursor();
        assert_eq!(divide(half_read.clone()), (Vec::new(), Some(half_read)), "its cursor is of one key");
    }
}
