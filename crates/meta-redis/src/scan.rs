//! Pages of large collections.
//!
//! All of them go through Redis' own cursors: what is there from the first page to the last is
//! returned at least once, and may be returned twice while the server resizes a table. A cursor
//! means something to the process that gave it, and nothing to one that took its place: there the
//! scan begins anew. Keys are matched exactly, not only by pattern.

use redis::Value;
use sluice_meta::{
    engine::{Cursor, EngineError, Found, Page, Read, Scan},
    schema::{Key, QuotaKey, Row},
};
use sluice_types::{Ino, Name};

use crate::{
    codec::{decode, entry_ino},
    keys::{Keys, Text, number, parse, parse_pair},
    pipeline::{Args, Pipeline},
    pool::Pool,
    read::{Plan, array, bytes, damaged, entry_row, node_row, printable, writer_key},
    script::SCAN,
};

/// Most entries of a directory whose nodes the script finds, too.
const WOVEN: u64 = 100;

/// Most nodes that one command asks for.
const NODES: usize = 3000;

/// One page asked for.
pub(crate) struct Request {
    scan: Scan,
    /// Which of the three kinds of quotas, or 0.
    part: u8,
    /// Which process is asked.
    process: u64,
    pipeline: Pipeline,
}

/// Where a scan stands.
struct Place {
    /// Which of several collections.
    part: u8,
    /// Which process gave the cursors.
    process: u64,
    /// Cursor of Redis.
    cursor: Text,
    /// Cursor in the first of `pending`.
    inner: Text,
    /// Keys that the cursor has passed but that are not read to their ends.
    pending: Vec<Text>,
}

impl Place {
    fn start(part: u8, process: u64) -> Self {
        Self { part, process, cursor: number(0), inner: number(0), pending: Vec::new() }
    }

    fn read(cursor: &Cursor) -> Option<Self> {
        let (part, rest) = cursor.0.split_first()?;
        let (process, rest) = rest.split_first_chunk()?;
        let process = u64::from_be_bytes(*process);
        let mut words = rest.split(|byte| *byte == b' ').map(Text::from_slice);
        let (cursor, inner) = (words.next()?, words.next()?);
        Some(Self { part: *part, process, cursor, inner, pending: words.collect() })
    }

    fn cursor(&self) -> Cursor {
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
    /// `None` if the cursor is none of this engine's.
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
        let limit = number(limit.max(1) as u64);
        let native = |command: &str, key: Text| {
            let mut pipeline = Pipeline::default();
            pipeline.command(command).extend([&key[..], &place.cursor, b"COUNT", &limit]);
            pipeline
        };
        let script = |op: &str, own: &[&[u8]]| {
            let mut args = Args::default();
            args.extend([op.as_bytes(), &keys.word("i"), &limit]);
            args.extend(own.iter().copied());
            Pipeline::of_script(&SCAN, args)
        };
        // Everything in the database whose key begins with a letter and goes on with a digit.
        let whole = |op: &str, word: &str, pattern: &str, more: &[&[u8]]| {
            let glob = [&keys.word(word)[..], b"[0-9]*"].concat();
            let prefix = number(keys.word("").len() as u64);
            let mut own: Vec<&[u8]> = vec![&place.cursor, &glob, &prefix, pattern.as_bytes()];
            own.extend(more);
            script(op, &own)
        };
        let joined = |command: &str, hashes: &[Text]| {
            let mut own: Vec<&[u8]> = vec![command.as_bytes(), &place.cursor];
            own.extend(hashes.iter().map(|hash| &hash[..]));
            script("joined", &own)
        };
        let pipeline = match scan {
            Scan::Entries { dir, nodes: false } => native("HSCAN", keys.dir(dir)),
            Scan::Entries { dir, nodes: true } => {
                let mut pipeline = native("HSCAN", keys.dir(dir));
                // A directory of few is answered at once.
                if &*place.cursor == b"0" {
                    let mut args = Args::default();
                    args.extend([&b"entries"[..], &keys.word("i"), &number(WOVEN), &keys.dir(dir)]);
                    pipeline.script(&SCAN, args);
                }
                pipeline
            }
            Scan::Nodes => whole("strings", "i", "^i%d+$", &[]),
            Scan::AllEntries => {
                let mut more: Vec<&[u8]> = vec![&place.inner];
                more.extend(place.pending.iter().map(|key| &key[..]));
                whole("hashes", "d", "^d%d+$", &more)
            }
            Scan::Chunks => whole("collections", "c", "^c%d+_%d+$", &[b"list"]),
            Scan::Sustained => whole("collections", "session", "^session%d+$", &[b"set"]),
            Scan::SliceRefs => native("HSCAN", keys.word("sliceRef")),
            Scan::DelSlices => native("HSCAN", keys.word("delSlices")),
            Scan::Acls => native("HSCAN", keys.word("acl")),
            Scan::Writers => native("HSCAN", keys.writers()),
            Scan::DelFiles => native("ZSCAN", keys.word("delfiles")),
            Scan::Detached => native("ZSCAN", keys.word("detachedNodes")),
            Scan::Sessions => joined("ZSCAN", &[keys.word("allSessions"), keys.word("sessionInfos")]),
            Scan::DirStats => joined("HSCAN", &keys.dir_stats()),
            Scan::Quotas => joined("HSCAN", &keys.quota(quota_key(place.part, 0)?)),
        };
        Some(Self { scan, part: place.part, process, pipeline })
    }

    pub(crate) fn into_pipeline(self) -> Pipeline {
        self.pipeline
    }

    /// Reads the answers.
    pub(crate) fn page(&self, pool: &Pool, keys: &Keys, answers: Vec<Value>) -> Result<Page, EngineError> {
        let mut sound = Vec::with_capacity(answers.len());
        for answer in answers {
            sound.push(pool.errors().sound(answer)?);
        }
        let mut answers = sound.into_iter();
        let mut parts = array(pool, answers.next())?.into_iter();
        if let Some(Value::Array(all)) = answers.next() {
            let (rows, damaged) = self.rows(pool, keys, all)?;
            return Ok(Page { rows, damaged, next: None });
        }
        let mut place = Place::start(self.part, self.process);
        place.cursor = text(pool, parts.next())?;
        let values = array(pool, parts.next())?;
        if let Some(inner) = parts.next() {
            place.inner = text(pool, Some(inner))?;
            for key in array(pool, parts.next())? {
                place.pending.push(text(pool, Some(key))?);
            }
        }
        let (rows, damaged) = match self.scan {
            Scan::Entries { dir, nodes: true } => self.with_nodes(pool, keys, dir, values)?,
            _ => self.rows(pool, keys, values)?,
        };
        let next = if &*place.cursor != b"0" || !place.pending.is_empty() {
            Some(place.cursor())
        } else if self.scan == Scan::Quotas && quota_key(self.part + 1, 0).is_some() {
            Some(Place::start(self.part + 1, self.process).cursor())
        } else {
            None
        };
        Ok(Page { rows, damaged, next })
    }

    /// Names and entries of a directory, with the nodes, which are asked for.
    fn with_nodes(
        &self,
        pool: &Pool,
        keys: &Keys,
        dir: Ino,
        entries: Vec<Value>,
    ) -> Result<(Vec<Row>, Vec<EngineError>), EngineError> {
        let mut texts = Vec::with_capacity(entries.len());
        for text in entries {
            texts.push(bytes(pool, text)?.unwrap_or_default());
        }
        let inos: Vec<Option<Ino>> = texts.chunks_exact(2).map(|entry| entry_ino(&entry[1])).collect();
        let wanted: Vec<Ino> = inos.iter().flatten().copied().collect();
        let mut pipeline = Pipeline::default();
        for inos in wanted.chunks(NODES) {
            let command = pipeline.command("MGET");
            for ino in inos {
                command.push(&keys.node(*ino));
            }
        }
        let mut nodes = Vec::with_capacity(wanted.len());
        let answers = if wanted.is_empty() { Vec::new() } else { pool.ask(&pipeline)? };
        for answer in answers {
            nodes.extend(array(pool, Some(pool.errors().sound(answer)?))?);
        }
        let (mut woven, mut lost) = (Vec::with_capacity(wanted.len() * 3), Vec::new());
        let mut nodes = nodes.into_iter();
        for (entry, ino) in texts.chunks_exact_mut(2).zip(inos) {
            let [name, stored] = [0, 1].map(|at| std::mem::take(&mut entry[at]));
            let node = if ino.is_some() { nodes.next().unwrap_or(Value::Nil) } else { Value::Nil };
            if ino.is_some() && node == Value::Nil {
                lost.push(Read::Follow(dir, Name::stored(&name)));
            } else {
                woven.extend([Value::BulkString(name), Value::BulkString(stored), node]);
            }
        }
        let (mut rows, damaged) = self.rows(pool, keys, woven)?;
        // Both may have gone between the questions: they are looked at again, together.
        for found in Plan::new(keys, &lost).run(pool)? {
            if let Found::Rows(both) = found {
                rows.extend(both);
            }
        }
        Ok((rows, damaged))
    }

    /// What can be read, and what cannot.
    fn rows(
        &self,
        pool: &Pool,
        keys: &Keys,
        values: Vec<Value>,
    ) -> Result<(Vec<Row>, Vec<EngineError>), EngineError> {
        let width = match self.scan {
            Scan::Entries { nodes: true, .. } | Scan::AllEntries | Scan::Sessions => 3,
            Scan::DirStats | Scan::Quotas => 4,
            _ => 2,
        };
        let (mut rows, mut damaged_rows) = (Vec::with_capacity(values.len() / width), Vec::new());
        let mut sort = |decoded: Result<Option<Row>, EngineError>| match decoded {
            Ok(row) => rows.extend(row),
            Err(damage) => damaged_rows.push(damage),
        };
        let mut values = values.into_iter();
        while let Some(first) = values.next() {
            let first = bytes(pool, first)?.unwrap_or_default();
            let mut rest = values.by_ref().take(width - 1);
            match self.scan {
                Scan::Sustained => {
                    for member in array(pool, rest.next())? {
                        let member = text(pool, Some(member))?;
                        let row = sustained(keys, &first, &member);
                        sort(
                            row.ok_or_else(|| pool.errors().corrupt(printable(&first), "no inode number"))
                                .map(Some),
                        );
                    }
                    continue;
                }
                Scan::Entries { dir, .. } => {
                    let stored = text(pool, rest.next())?;
                    sort(Ok(Some(entry_row(pool, keys, dir, Name::stored(&first), &stored)?)));
                    if let Some(attr) = rest.next() {
                        sort(node_row(pool, keys, &stored, bytes(pool, attr)?));
                    }
                    continue;
                }
                Scan::AllEntries => {
                    let dir = keys.strip(&first).and_then(|key| parse(key.get(1..)?)).unwrap_or_default();
                    let name = Name::stored(&text(pool, rest.next())?);
                    sort(entry_row(pool, keys, Ino(dir), name, &text(pool, rest.next())?).map(Some));
                    continue;
                }
                _ => {}
            }
            let mut cells = Vec::with_capacity(width - 1);
            for value in rest {
                cells.push(bytes(pool, value)?);
            }
            let Some(key) = self.key(keys, &first) else {
                let record = format!("{:?} {}", self.scan, printable(&first));
                sort(Err(pool.errors().corrupt(record, "a name that is none of the volume format")));
                continue;
            };
            sort(decode(&key, &mut cells).map_err(|damage| damaged(pool, keys, &key, damage)));
        }
        Ok((rows, damaged_rows))
    }

    /// The record that a key, field or member found stands for.
    fn key(&self, keys: &Keys, found: &[u8]) -> Option<Key> {
        let plain = || keys.strip(found)?.get(1..);
        let id = || u32::try_from(parse(found)?).ok();
        Some(match self.scan {
            Scan::Nodes => Key::Node(Ino(parse(plain()?)?)),
            Scan::Chunks => {
                let (ino, index) = parse_pair(plain()?, b'_')?;
                Key::Chunk(Ino(ino), u32::try_from(index).ok()?)
            }
            Scan::SliceRefs => {
                let (id, size) = parse_pair(found.strip_prefix(b"k")?, b'_')?;
                Key::SliceRef(id, u32::try_from(size).ok()?)
            }
            Scan::DelSlices => {
                let (id, time) = parse_pair(found, b'_')?;
                Key::DelSlices(id, time as i64)
            }
            Scan::DelFiles => {
                let (ino, length) = parse_pair(found, b':')?;
                Key::DelFile(Ino(ino), length)
            }
            Scan::Acls => Key::Acl(id()?),
            Scan::Writers => writer_key(found)?,
            Scan::Detached => Key::Detached(Ino(parse(found)?)),
            Scan::Sessions => Key::Session(parse(found)?),
            Scan::DirStats => Key::DirStat(Ino(parse(found)?)),
            Scan::Quotas => Key::Quota(quota_key(self.part, parse(found)?)?),
            Scan::Entries { .. } | Scan::AllEntries | Scan::Sustained => return None,
        })
    }
}

/// The quota of a kind.
fn quota_key(part: u8, id: u64) -> Option<QuotaKey> {
    Some(match part {
        0 => QuotaKey::Dir(Ino(id)),
        1 => QuotaKey::User(u32::try_from(id).ok()?),
        2 => QuotaKey::Group(u32::try_from(id).ok()?),
        _ => return None,
    })
}

fn sustained(keys: &Keys, key: &[u8], member: &[u8]) -> Option<Row> {
    let sid = parse(keys.strip(key)?.strip_prefix(b"session")?)?;
    Some(Row::Sustained(sid, Ino(parse(member)?)))
}

fn text(pool: &Pool, value: Option<Value>) -> Result<Text, EngineError> {
    let value = value.ok_or_else(|| pool.errors().unexpected("a scan"))?;
    Ok(Text::from_vec(bytes(pool, value)?.unwrap_or_default()))
}
