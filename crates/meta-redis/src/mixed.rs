//! Pages of all records about inodes: one pass over all keys of the database, of every kind.
//!
//! A page finds keys, or reads the values of keys that an earlier page found. What must stay true:
//! a key is found before it is read to its end, and a cursor contains the keys that were found and
//! not read.

use std::cell::RefCell;

use redis::Value;
use sluice_meta::{
    engine::{Cursor, EngineError, Page},
    schema::Row,
};

use crate::{
    answer::{Cell, Form, Reader},
    keys::{Keys, Text, number, parse},
    pipeline::Pipeline,
    pool::Pool,
    scan::{Place, search, searched},
};

/// Keys that one command of a search visits: it blocks the server for some 5 ms.
const PASSED: u64 = 10_000;
/// Keys found by one page.
const FOUND: usize = 100_000;
/// Keys of one part that [`divide`] makes.
const PART: usize = 10_000;
/// Strings that one command requests.
const STRINGS: usize = 2000;
/// Hashes requested at once: a single one may fill a page.
const HASHES: usize = 1000;

/// The letter of a key that tells the kind of its value; `None` if the scan does not need the key.
fn letter(reader: Reader<'_>, key: &[u8]) -> Option<u8> {
    let word = key.strip_prefix(&*reader.keys.prefix)?;
    let letter = word.first().filter(|letter| b"iscdxp".contains(letter))?;
    // Others begin with such a letter, too: `dirQuota`.
    word.get(1)?.is_ascii_digit().then_some(*letter)
}

/// Parts of the keys in a cursor, and a cursor that finds other keys. The parts are in the order of
/// inodes. Records that were made together are often close in the server's memory, and reading them
/// together is faster.
pub(crate) fn divide(keys: &Keys, cursor: Cursor) -> (Vec<Cursor>, Option<Cursor>) {
    let Some(mut place) = Place::read(&cursor).filter(|place| !place.pending.is_empty()) else {
        return (Vec::new(), Some(cursor));
    };
    // The first key is partly read.
    if &*place.inner != b"0" {
        return (Vec::new(), Some(cursor));
    }
    place.pending.sort_by_cached_key(|key| inode(keys, key));
    let part = |part: &[Text]| Place { pending: part.to_vec(), ..Place::start(0, place.process) }.cursor();
    let parts = place.pending.chunks(PART).map(part).collect();
    let others = Place { cursor: place.cursor.clone(), ..Place::start(0, place.process) };
    (parts, (&*others.cursor != b"0").then(|| others.cursor()))
}

/// The number in a key.
fn inode(keys: &Keys, key: &[u8]) -> u64 {
    let digits = key.get(keys.prefix.len() + 1..).unwrap_or_default();
    digits.split(|byte| !byte.is_ascii_digit()).next().and_then(parse).unwrap_or_default()
}

/// One page: no records but a cursor with the keys that were found, or about `limit` records.
pub(crate) fn page(
    pool: &Pool,
    reader: Reader<'_>,
    from: Option<&Cursor>,
    limit: usize,
) -> Result<Page, EngineError> {
    let refused = || pool.errors().refused("the cursor is not of this scan");
    match from.map(|cursor| Place::read(cursor).ok_or_else(refused)).transpose()? {
        Some(place) if !place.pending.is_empty() => read(pool, reader, &place, limit),
        place => find(pool, reader, place.unwrap_or_else(|| Place::start(0, 0))),
    }
}

/// Finds more keys.
fn find(pool: &Pool, reader: Reader<'_>, mut place: Place) -> Result<Page, EngineError> {
    loop {
        // Cursors are valid for one server process only. For another one the search starts again.
        let cursor = |process| if process == place.process { place.cursor.clone() } else { number(0) };
        let (answers, process) = pool.ask_by(|process| search(reader.keys, &cursor(process), PASSED))?;
        let (cursor, keys) = searched(reader, answers)?;
        if process != place.process {
            place = Place::start(0, process);
        }
        place.cursor = Text::from_vec(cursor.into_bytes());
        place
            .pending
            .extend(keys.iter().filter(|key| letter(reader, key).is_some()).map(|key| Text::from_slice(key)));
        let ends = &*place.cursor == b"0";
        if ends || place.pending.len() >= FOUND {
            let next = (!ends || !place.pending.is_empty()).then(|| place.cursor());
            return Ok(Page { rows: Vec::new(), damaged: Vec::new(), next });
        }
    }
}

/// Reads the values of the first keys that were found.
fn read(pool: &Pool, reader: Reader<'_>, place: &Place, limit: usize) -> Result<Page, EngineError> {
    let asked = RefCell::default();
    let request = |process| {
        let inner = if process == place.process { place.inner.clone() } else { number(0) };
        let mut request = Request::new(reader, &place.pending, &inner, limit);
        let pipeline = std::mem::take(&mut request.pipeline);
        asked.replace(request);
        pipeline
    };
    let (answers, process) = pool.ask_by(request)?;
    if process != place.process && &*place.cursor != b"0" {
        return find(pool, reader, Place::start(0, process));
    }
    let others = Place { cursor: place.cursor.clone(), ..Place::start(0, process) };
    asked.into_inner().page(reader, others, answers)
}

/// What one command requests.
enum Asked {
    Strings(Vec<Text>),
    List(Text),
    Hash(Text),
}

/// The commands of one page.
#[derive(Default)]
struct Request {
    pipeline: Pipeline,
    /// In the order of the commands.
    asked: Vec<Asked>,
    /// Keys that are left for the next page.
    waiting: Vec<Text>,
}

impl Request {
    /// The first of them continues at `inner`.
    fn new(reader: Reader<'_>, keys: &[Text], inner: &[u8], limit: usize) -> Self {
        let mut request = Self::default();
        let (now, later) = keys.split_at(keys.len().min(limit.max(1)));
        let mut strings: Vec<Text> = Vec::new();
        let mut hashes = 0;
        for (at, key) in now.iter().enumerate() {
            match letter(reader, key) {
                Some(b'i' | b's') => strings.push(key.clone()),
                Some(b'c') => {
                    request.pipeline.command("LRANGE").extend([&key[..], b"0", b"-1"]);
                    request.asked.push(Asked::List(key.clone()));
                }
                Some(_) if hashes < HASHES => {
                    let inner: &[u8] = if at == 0 { inner } else { b"0" };
                    let count = number(limit.max(1));
                    request.pipeline.command("HSCAN").extend([&key[..], inner, b"COUNT", &count]);
                    request.asked.push(Asked::Hash(key.clone()));
                    hashes += 1;
                }
                Some(_) => request.waiting.push(key.clone()),
                None => {}
            }
        }
        for keys in strings.chunks(STRINGS) {
            request.pipeline.command("MGET").extend(keys.iter().map(|key| &key[..]));
            request.asked.push(Asked::Strings(keys.to_vec()));
        }
        request.waiting.extend_from_slice(later);
        request
    }

    /// The records, and `next` with what is not read.
    fn page(self, reader: Reader<'_>, mut next: Place, answers: Vec<Value>) -> Result<Page, EngineError> {
        let mut page = Page { rows: Vec::new(), damaged: Vec::new(), next: None };
        // A key that is partly read comes first.
        let mut unread: Option<Text> = None;
        // Keys and their values, in turn.
        let mut whole: Vec<Cell> = Vec::new();
        let mut answers = answers.into_iter();
        for asked in self.asked {
            let answer = answers.next().unwrap_or(Value::Nil);
            match asked {
                Asked::Strings(keys) => {
                    let values: Vec<Cell> = reader.parse(answer)?;
                    let there = keys.into_iter().zip(values).filter(|(_, value)| value.is_some());
                    whole.extend(there.flat_map(|(key, value)| [Some(key.into_vec()), value]));
                }
                Asked::List(key) => {
                    let slices: Vec<Vec<u8>> = reader.parse(answer)?;
                    if !slices.is_empty() {
                        whole.extend([key.into_vec(), slices.concat()].map(Some));
                    }
                }
                Asked::Hash(key) => {
                    let (inner, cells): (String, Vec<Cell>) = reader.parse(answer)?;
                    if inner != "0" && unread.is_some() {
                        // Only one key can be partly read: this one is read again.
                        next.pending.push(key);
                        continue;
                    }
                    take(
                        &mut page,
                        reader.rows(&Form { key: Some(key.clone()), fields: true, values: 1 }, cells),
                    );
                    if inner != "0" {
                        next.inner = Text::from_vec(inner.into_bytes());
                        unread = Some(key);
                    }
                }
            }
        }
        take(&mut page, reader.rows(&Form { key: None, fields: false, values: 1 }, whole));
        next.pending.extend(self.waiting);
        next.pending.splice(0..0, unread);
        let more = &*next.cursor != b"0" || !next.pending.is_empty();
        page.next = more.then(|| next.cursor());
        Ok(page)
    }
}

fn take(page: &mut Page, (rows, damaged): (Vec<Row>, Vec<EngineError>)) {
    page.rows.extend(rows);
    page.damaged.extend(damaged);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_hold_all_keys_in_the_order_of_inodes() {
        let keys = Keys::new(b"{3}", 3);
        let found: Vec<Text> = (0..25_000).map(|n| keys.of("i", n * 7919 % 25_000)).collect();
        for cursor in [0, 77] {
            let place = Place { cursor: number(cursor), pending: found.clone(), ..Place::start(0, 9) };
            let (parts, rest) = divide(&keys, place.cursor());
            let rest = rest.and_then(|rest| Place::read(&rest)).map(|rest| (rest.cursor, rest.pending.len()));
            assert_eq!(rest, (cursor != 0).then(|| (number(cursor), 0)));
            let parts: Vec<Place> = parts.iter().filter_map(Place::read).collect();
            assert!(
                parts.iter().all(|part| part.process == 9 && &*part.cursor == b"0" && &*part.inner == b"0")
            );
            let read: Vec<Text> = parts.into_iter().flat_map(|part| part.pending).collect();
            assert!(read == (0..25_000).map(|n| keys.of("i", n)).collect::<Vec<_>>());
        }
        let half_read = Place { inner: number(5), pending: found, ..Place::start(0, 9) }.cursor();
        assert_eq!(
            divide(&keys, half_read.clone()),
            (Vec::new(), Some(half_read)),
            "its cursor is of one key"
        );
    }
}
