//! Answers to reads: one statement for all records of a kind, all statements in one trip.
//!
//! What must stay true: an answer says what the tables hold and decides nothing. Nothing is held:
//! the commit compares.

use std::{collections::BTreeMap, fmt::Write as _};

use rustc_hash::FxHashMap;
use sluice_meta::{
    engine::{EngineError, Found, List, Read},
    schema::{Counter, Key, Row},
};
use sluice_types::{Ino, Name};

use super::{
    connection::{Answers, Failure},
    error::is_missing_table,
    options::Options,
    pool::Pool,
    tables::{Tables, push_bytes, push_int},
};
use crate::{
    codec::{Columns, Damage, Record, decode, decode_node, joined_columns},
    values::key_values,
};

/// Keys in one statement.
const MANY: usize = 500;

/// Statements that answer reads.
pub(super) struct Plan<'r> {
    reads: &'r [Read],
    statements: Vec<(String, Ask<'r>)>,
}

/// What a statement asks for.
enum Ask<'r> {
    /// Records, each answering the question for its key.
    Rows(Record),
    /// An attribute; the table may know its name in another case.
    Xattr(&'r Key),
    /// Entries with their nodes.
    Joined,
    /// The number of the last ACL rule.
    LastAcl,
    /// Part of the answer to the read at this place.
    Part(usize, Record),
    /// Collections of several inodes.
    Members(Members),
    /// Names, the answer to the read at this place.
    Names(usize),
}

/// Collections of one kind: the record, and of chunks from which to which.
type Members = (Record, u32, u32);

/// A statement that reads entries and the nodes they name, up to its WHERE.
pub(super) fn join(tables: &Tables, index: &str) -> String {
    let columns = joined_columns();
    format!("SELECT {columns} FROM {} e {index} LEFT JOIN {} n ON n.inode=e.inode ", tables.edge, tables.node)
}

impl<'r> Plan<'r> {
    pub(super) fn new(tables: &Tables, reads: &'r [Read]) -> Self {
        let mut plan = Self { reads, statements: Vec::new() };
        let mut keys: BTreeMap<Record, Vec<&'r Key>> = BTreeMap::new();
        let mut follows: Vec<(Ino, &'r Name)> = Vec::new();
        let mut members: BTreeMap<Members, Vec<i64>> = BTreeMap::new();
        for (at, read) in reads.iter().enumerate() {
            match read {
                Read::Get(key) => plan.get(tables, at, key, &mut keys),
                Read::Follow(dir, name) => follows.push((*dir, name)),
                Read::Names { dir, limit } => {
                    let text = format!(
                        "SELECT name FROM {} WHERE parent={} LIMIT {limit}",
                        tables.edge, dir.0 as i64
                    );
                    plan.statements.push((text, Ask::Names(at)));
                }
                Read::All(list) => match members_of(*list) {
                    Some((kind, ino)) => members.entry(kind).or_default().push(ino.0 as i64),
                    None => plan.list(tables, at, *list),
                },
            }
        }
        for (record, keys) in keys {
            for keys in keys.chunks(MANY) {
                plan.statements.push((select_by_keys(tables, record, keys), Ask::Rows(record)));
            }
        }
        for (kind, inodes) in members {
            for inodes in inodes.chunks(MANY) {
                plan.statements.push((select_members(tables, kind, inodes), Ask::Members(kind)));
            }
        }
        follows.sort_unstable();
        for follows in follows.chunks(MANY) {
            let mut text = join(tables, "") + "WHERE ";
            for (number, group) in follows.chunk_by(|(a, _), (b, _)| a == b).enumerate() {
                let or = if number > 0 { " OR " } else { "" };
                let _ = write!(text, "{or}e.parent={} AND e.name IN (", group[0].0.0 as i64);
                for (at, (_, name)) in group.iter().enumerate() {
                    if at > 0 {
                        text.push(',');
                    }
                    push_bytes(&mut text, name);
                }
                text.push(')');
            }
            plan.statements.push((text, Ask::Joined));
        }
        plan
    }

    fn get(&mut self, tables: &Tables, at: usize, key: &'r Key, keys: &mut BTreeMap<Record, Vec<&'r Key>>) {
        match (key, key_values(key)) {
            (Key::Parents(ino, parent), _) => {
                let condition = format!("inode={} AND parent={}", ino.0 as i64, parent.0 as i64);
                self.part(tables, at, Record::Parents, &(condition + " GROUP BY inode,parent"));
            }
            (Key::Counter(Counter::AclMaxId), _) => {
                let text = format!("SELECT max(id) FROM {}", tables.of(Record::Acl).table);
                self.statements.push((text, Ask::LastAcl));
            }
            // There is none by a name that is no text, and the server would not even compare with
            // it.
            (Key::Xattr(_, name), _) if std::str::from_utf8(name).is_err() => {}
            (Key::Xattr(..), Some((record, _))) => {
                self.statements.push((select_by_keys(tables, record, &[key]), Ask::Xattr(key)));
            }
            (_, Some((record, _))) => keys.entry(record).or_default().push(key),
            (_, None) => {}
        }
    }

    fn part(&mut self, tables: &Tables, at: usize, record: Record, condition: &str) {
        let place = tables.of(record);
        let text = format!("SELECT {} FROM {} WHERE {condition}", place.columns, place.table);
        self.statements.push((text, Ask::Part(at, record)));
    }

    fn list(&mut self, tables: &Tables, at: usize, list: List) {
        let of = |ino: Ino| format!("inode={}", ino.0 as i64);
        let by = |sid: u64| format!("sid={}", sid as i64);
        match list {
            List::Parents(ino) => {
                self.part(tables, at, Record::Parents, &(of(ino) + " GROUP BY inode,parent"));
            }
            List::Flocks(ino) => self.part(tables, at, Record::Flock, &of(ino)),
            List::Plocks(ino) => self.part(tables, at, Record::Plock, &of(ino)),
            // Asked for together with those of other inodes.
            List::Xattrs(_) | List::Chunks(..) => {}
            List::Sustained(sid) => self.part(tables, at, Record::Sustained, &by(sid)),
            List::LocksOf(sid) => {
                self.part(tables, at, Record::Flock, &by(sid));
                self.part(tables, at, Record::Plock, &by(sid));
            }
            List::Lanes(writer) => {
                self.part(tables, at, Record::Writer, &format!("writer={}", writer as i64));
            }
            List::Changes(writer) => {
                self.part(tables, at, Record::Changes, &format!("writer={}", writer as i64));
            }
        }
    }

    /// The statements, to be sent in one trip.
    pub(super) fn text(&self) -> String {
        let mut text = String::with_capacity(self.statements.iter().map(|(text, _)| text.len() + 1).sum());
        for (at, (statement, _)) in self.statements.iter().enumerate() {
            if at > 0 {
                text.push(';');
            }
            text.push_str(statement);
        }
        text
    }

    /// Asks, outside any transaction.
    pub(super) fn run(&self, pool: &Pool) -> Result<Vec<Found>, EngineError> {
        if self.statements.is_empty() {
            return self.answered(&pool.options, Answers::new());
        }
        match pool.ask(&self.text()) {
            Ok(answers) => self.answered(&pool.options, answers),
            // The question whether this is a volume has an answer even where there are no tables.
            Err(Failure::Server(error, _))
                if is_missing_table(&error) && matches!(self.reads, [Read::Get(Key::Setting)]) =>
            {
                Ok(vec![Found::Row(None)])
            }
            Err(failed) => Err(pool.options.unanswered(failed)),
        }
    }

    /// What the rows of the statements say.
    pub(super) fn answered(&self, options: &Options, answers: Answers) -> Result<Vec<Found>, EngineError> {
        let damaged = |damage| options.damaged(damage);
        let mut rows: FxHashMap<Key, Row> = FxHashMap::default();
        let mut followed: FxHashMap<(Ino, Name), Vec<Row>> = FxHashMap::default();
        let mut parts: FxHashMap<usize, Vec<Row>> = FxHashMap::default();
        let mut names: FxHashMap<usize, Vec<Name>> = FxHashMap::default();
        let mut members: FxHashMap<(Members, Ino), Vec<Row>> = FxHashMap::default();
        if answers.len() != self.statements.len() {
            return Err(options.refused("its answers do not fit the questions"));
        }
        for ((_, ask), answer) in self.statements.iter().zip(answers) {
            for row in &answer {
                match ask {
                    Ask::Rows(record) => {
                        let found = decode(*record, row, 0).map_err(damaged)?;
                        rows.insert(found.key(), found);
                    }
                    Ask::Xattr(key) => {
                        if let (Key::Xattr(ino, name), Row::Xattr(_, _, value)) =
                            (key, decode(Record::Xattr, row, 0).map_err(damaged)?)
                        {
                            rows.insert((*key).clone(), Row::Xattr(*ino, name.clone(), value));
                        }
                    }
                    Ask::Joined => {
                        let entry = decode(Record::Entry, row, 0).map_err(damaged)?;
                        let Row::Entry(dir, name, _) = &entry else { continue };
                        let at = (*dir, name.clone());
                        let node = decode_node(row, 0).transpose().map_err(damaged)?;
                        followed.insert(at, std::iter::once(entry).chain(node).collect());
                    }
                    Ask::LastAcl => {
                        let number = |reason| damaged(Damage { record: "acl".into(), reason });
                        if !row.is_null(0) {
                            let last = Row::Counter(Counter::AclMaxId, row.int(0).map_err(number)?);
                            rows.insert(last.key(), last);
                        }
                    }
                    Ask::Part(at, record) => {
                        parts.entry(*at).or_default().push(decode(*record, row, 0).map_err(damaged)?);
                    }
                    Ask::Members(kind) => {
                        let member = decode(kind.0, row, 0).map_err(damaged)?;
                        if let Row::Xattr(ino, ..) | Row::Chunk(ino, ..) = &member {
                            members.entry((*kind, *ino)).or_default().push(member);
                        }
                    }
                    Ask::Names(at) => {
                        let number = |reason| damaged(Damage { record: "edge".into(), reason });
                        let name = Name::stored(row.bytes(0).map_err(number)?);
                        names.entry(*at).or_default().push(name);
                    }
                }
            }
        }
        let found = self.reads.iter().enumerate().map(|(at, read)| match read {
            Read::Get(Key::Parents(..)) => Found::Row(parts.remove(&at).and_then(|mut rows| rows.pop())),
            Read::Get(key) => Found::Row(rows.get(key).cloned()),
            Read::Follow(dir, name) => {
                Found::Rows(followed.get(&(*dir, name.clone())).cloned().unwrap_or_default())
            }
            Read::Names { .. } => Found::Names(names.remove(&at).unwrap_or_default()),
            Read::All(list) => Found::Rows(match members_of(*list) {
                Some(key) => members.get(&key).cloned().unwrap_or_default(),
                None => parts.remove(&at).unwrap_or_default(),
            }),
        });
        Ok(found.collect())
    }
}

/// The kind of a collection that is asked for together with those of other inodes, and whose it is.
const fn members_of(list: List) -> Option<(Members, Ino)> {
    match list {
        List::Xattrs(ino) => Some(((Record::Xattr, 0, 0), ino)),
        List::Chunks(ino, from, to) => Some(((Record::Chunk, from, to), ino)),
        _ => None,
    }
}

/// Selects collections of these inodes.
fn select_members(tables: &Tables, (record, from, to): Members, inodes: &[i64]) -> String {
    let place = tables.of(record);
    let mut text = format!("SELECT {} FROM {} WHERE inode IN (", place.columns, place.table);
    for (at, ino) in inodes.iter().enumerate() {
        if at > 0 {
            text.push(',');
        }
        push_int(&mut text, *ino);
    }
    text.push(')');
    if record == Record::Chunk {
        let _ = write!(text, " AND indx>={from} AND indx<{to} ORDER BY inode,indx");
    }
    text
}

/// Selects the records of these keys.
fn select_by_keys(tables: &Tables, record: Record, keys: &[&Key]) -> String {
    let place = tables.of(record);
    let mut text = format!("SELECT {} FROM {} WHERE ", place.columns, place.table);
    let mut keys: Vec<_> = keys.iter().filter_map(|key| key_values(key)).map(|(_, values)| values).collect();
    keys.sort_unstable();
    place.among_keys(&mut text, &keys);
    text
}
