//! Pages of everything about inodes: the keys of the database once, whatever kind they are.
//!
//! A page reads what the keys hold that the page before found, and finds the next keys in the same
//! trip. What must stay true: a key is found before it is read to its end, and a cursor holds what
//! was found and is not read.

use redis::Value;
use sluice_meta::{
    engine::{Cursor, EngineError, Page},
    schema::Row,
};

use crate::{
    answer::{Cell, Form, Reader},
    keys::{Text, number},
    pipeline::Pipeline,
    pool::Pool,
    scan::Place,
};

/// Strings asked for by one command.
const STRINGS: usize = 2000;

/// How the records at a key are stored.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    String,
    List,
    Hash,
}

/// What lies at a key; nothing if it is no concern of the scan.
fn kind(reader: Reader<'_>, key: &[u8]) -> Option<Kind> {
    let word = key.strip_prefix(&*reader.keys.prefix)?;
    let kind = match word.first()? {
        b'i' | b's' => Kind::String,
        b'c' => Kind::List,
        b'd' | b'x' | b'p' => Kind::Hash,
        _ => return None,
    };
    // Others begin with such a letter, too: `dirQuota`.
    word.get(1)?.is_ascii_digit().then_some(kind)
}

/// One page of about `limit` records.
pub(crate) fn page(
    pool: &Pool,
    reader: Reader<'_>,
    from: Option<&Cursor>,
    limit: usize,
) -> Result<Page, EngineError> {
    let refused = || pool.errors().refused("the cursor is not of this scan".into());
    let from = from.map(|cursor| Place::read(cursor).ok_or_else(refused)).transpose()?;
    // Cursors are good for one process only: behind it the scan begins anew.
    let place = |process| match &from {
        Some(place) if place.process == process => None,
        _ => Some(Place::start(0, process)),
    };
    let request = |process| {
        let fresh = place(process);
        Request::new(reader, fresh.as_ref().or(from.as_ref()), limit)
    };
    let (answers, process) = pool.ask_by(|process| request(process).pipeline)?;
    let fresh = place(process);
    request(process).page(reader, fresh.as_ref().or(from.as_ref()), process, answers)
}

/// What is asked.
#[derive(Default)]
struct Request {
    pipeline: Pipeline,
    /// The keys that each command asks for; of the last, which finds others, none.
    asked: Vec<(Kind, Vec<Text>)>,
    /// Whether the last command finds the next keys.
    finds: bool,
    /// Found and not asked for: they wait for the next page.
    waiting: Vec<Text>,
}

impl Request {
    fn new(reader: Reader<'_>, place: Option<&Place>, limit: usize) -> Self {
        let mut request = Self::default();
        let Some(place) = place else { return request };
        let count = number(limit.max(1));
        let mut strings: Vec<Text> = Vec::new();
        let mut hashes = 0;
        for (at, key) in place.pending.iter().enumerate() {
            match kind(reader, key) {
                Some(Kind::String) => strings.push(key.clone()),
                Some(Kind::List) => {
                    request.pipeline.command("LRANGE").extend([&key[..], b"0", b"-1"]);
                    request.asked.push((Kind::List, vec![key.clone()]));
                }
                // One of them may hold a page by itself.
                Some(Kind::Hash) if hashes < limit => {
                    let inner: &[u8] = if at == 0 { &place.inner } else { b"0" };
                    request.pipeline.command("HSCAN").extend([&key[..], inner, b"COUNT", &count]);
                    request.asked.push((Kind::Hash, vec![key.clone()]));
                    hashes += 1;
                }
                Some(Kind::Hash) => request.waiting.push(key.clone()),
                None => {}
            }
        }
        for keys in strings.chunks(STRINGS) {
            request.pipeline.command("MGET").extend(keys.iter().map(|key| &key[..]));
            request.asked.push((Kind::String, keys.to_vec()));
        }
        // The cursor is that of the keys found last, and 0 again behind all of them.
        let begins = &*place.cursor == b"0" && place.pending.is_empty();
        if request.waiting.is_empty() && (begins || &*place.cursor != b"0") {
            let glob = [&reader.keys.prefix[..], b"*"].concat();
            let scan = request.pipeline.command("SCAN");
            scan.push(&place.cursor);
            if !reader.keys.prefix.is_empty() {
                scan.extend([&b"MATCH"[..], &glob]);
            }
            scan.extend([&b"COUNT"[..], &count]);
            request.finds = true;
        }
        request
    }

    fn page(
        self,
        reader: Reader<'_>,
        place: Option<&Place>,
        process: u64,
        answers: Vec<Value>,
    ) -> Result<Page, EngineError> {
        let mut page = Page { rows: Vec::new(), damaged: Vec::new(), next: None };
        let mut next = Place::start(0, process);
        if let Some(place) = place {
            next.cursor.clone_from(&place.cursor);
        }
        // What is not read to its end comes first.
        let mut unread: Option<Text> = None;
        let mut answers = answers.into_iter();
        for (kind, keys) in self.asked {
            let answer = answers.next().unwrap_or(Value::Nil);
            match kind {
                Kind::String => {
                    let values: Vec<Cell> = reader.parse(answer)?;
                    let there = keys.into_iter().zip(values).filter(|(_, value)| value.is_some());
                    let cells = there.flat_map(|(key, value)| [Some(key.into_vec()), value]).collect();
                    take(&mut page, reader.rows(&Form { key: None, fields: false, values: 1 }, cells));
                }
                Kind::List => {
                    let slices: Vec<Vec<u8>> = reader.parse(answer)?;
                    let [key] = &keys[..] else { continue };
                    if !slices.is_empty() {
                        let cells = vec![Some(key.to_vec()), Some(slices.concat())];
                        take(&mut page, reader.rows(&Form { key: None, fields: false, values: 1 }, cells));
                    }
                }
                Kind::Hash => {
                    let (inner, cells): (String, Vec<Cell>) = reader.parse(answer)?;
                    let [key] = &keys[..] else { continue };
                    if inner != "0" && unread.is_some() {
                        // Only one can be half read: this one is read again.
                        next.pending.push(key.clone());
                        continue;
                    }
                    take(
                        &mut page,
                        reader.rows(&Form { key: Some(key.clone()), fields: true, values: 1 }, cells),
                    );
                    if inner != "0" {
                        next.inner = Text::from_vec(inner.into_bytes());
                        unread = Some(key.clone());
                    }
                }
            }
        }
        next.pending.extend(self.waiting);
        if self.finds {
            let (cursor, keys): (String, Vec<Vec<u8>>) =
                reader.parse(answers.next().unwrap_or(Value::Nil))?;
            next.cursor = Text::from_vec(cursor.into_bytes());
            next.pending
                .extend(keys.into_iter().filter(|key| kind(reader, key).is_some()).map(Text::from_vec));
        }
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
