//! Answers to reads: one statement for all records of a kind, all statements in one round trip.
//!
//! What must stay true: a result is exactly what the tables hold. Reads take no locks: the commit
//! compares.

use std::{fmt::Write as _, hash::Hash};

use mysql_async::Row as Columned;
use rustc_hash::FxHashMap;
use sluice_meta::{
    engine::{EngineError, Found, Read},
    schema::{Key, Row},
};
use smallvec::SmallVec;

use super::{
    connection::{Answers, Failure},
    error::is_missing_table,
    options::Options,
    pool::Pool,
    tables::{Tables, commas, push_bytes, push_int},
};
use crate::{
    codec::{Columns, Damage, Record, decode, decode_joined},
    questions::{Questions, may_lack_tables, put, take, unexpected_answer},
    text::Look,
    values::Value,
};

/// Keys in one statement.
const MANY: usize = 500;

/// Statements that answer reads.
pub(super) struct Plan<'r> {
    reads: &'r [Read],
    statements: Vec<(String, Ask<'r>)>,
}

/// The positions of requests with the same answer.
type Places = SmallVec<[usize; 1]>;

/// What a statement reads.
enum Ask<'r> {
    /// The answer to the question at this place.
    One(usize, Look, Record),
    /// An attribute; the table may know its name in another case.
    Xattr(usize, &'r Key),
    /// Records, by their keys.
    Keys(Record, FxHashMap<&'r Key, Places>),
    /// Entries with their nodes, by directory and name.
    Joined(FxHashMap<(i64, &'r [u8]), Places>),
    /// Collections, by the column of the answer with the owner of a row.
    Lists(Record, usize, FxHashMap<i64, Places>),
}

/// The questions with their places, those with one answer together.
fn places<K: Eq + Hash>(questions: impl Iterator<Item = (K, usize)>) -> FxHashMap<K, Places> {
    let mut places: FxHashMap<K, Places> = FxHashMap::default();
    for (key, at) in questions {
        places.entry(key).or_default().push(at);
    }
    places
}

impl<'r> Plan<'r> {
    pub(super) fn new(tables: &Tables, reads: &'r [Read]) -> Self {
        let Questions { keys, lists, ranges, mut follows, alone } = Questions::new(reads);
        let mut statements = Vec::new();
        for (at, what, record, values) in alone {
            statements.push((tables.look(what, record, &values), Ask::One(at, what, record)));
        }
        for (record, mut wanted) in keys {
            wanted.sort_unstable_by(|(.., a), (.., b)| a.cmp(b));
            let many = if record == Record::Xattr { 1 } else { MANY };
            for group in wanted.chunks(many) {
                let mut text = select(tables, record);
                let values: Vec<&[Value<'_>]> = group.iter().map(|(.., values)| &values[..]).collect();
                tables.of(record).among_keys(&mut text, &values);
                let ask = match group {
                    [(at, key @ Key::Xattr(..), _)] => Ask::Xattr(*at, key),
                    _ => Ask::Keys(record, places(group.iter().map(|(at, key, _)| (*key, *at)))),
                };
                statements.push((text, ask));
            }
        }
        for ((record, what), wanted) in lists {
            let (column, name) =
                if what == Look::OfSession { (1, "sid") } else { (0, tables.of(record).name(0)) };
            let end = if record == Record::Parents { " GROUP BY inode,parent" } else { "" };
            collections(&mut statements, tables, record, (column, name, end), &wanted);
        }
        for ((from, to), wanted) in ranges {
            let end = format!(" AND indx>={from} AND indx<{to} ORDER BY inode,indx");
            collections(&mut statements, tables, Record::Chunk, (0, "inode", &end), &wanted);
        }
        follows.sort_unstable_by_key(|(_, dir, name)| (*dir, *name));
        for follows in follows.chunks(MANY) {
            let mut text = format!("{} WHERE ", tables.joined);
            for (number, group) in follows.chunk_by(|(_, a, _), (_, b, _)| a == b).enumerate() {
                let or = if number > 0 { " OR " } else { "" };
                let _ = write!(text, "{or}e.parent={} AND e.name IN (", group[0].1);
                commas(&mut text, group, |text, (.., name)| push_bytes(text, name));
                text.push(')');
            }
            let asked = follows.iter().map(|(at, dir, name)| ((*dir, *name), *at));
            statements.push((text, Ask::Joined(places(asked))));
        }
        Self { reads, statements }
    }

    /// The statements, to be sent in one trip.
    pub(super) fn text(&self) -> String {
        let texts: Vec<&str> = self.statements.iter().map(|(text, _)| &text[..]).collect();
        texts.join(";")
    }

    /// Asks, outside any transaction.
    pub(super) fn run(&self, pool: &Pool) -> Result<Vec<Found>, EngineError> {
        if self.statements.is_empty() {
            return self.answered(&pool.options, Answers::new());
        }
        match pool.ask(&self.text()) {
            Ok(answers) => self.answered(&pool.options, answers),
            Err(Failure::Server(error, _)) if is_missing_table(&error) && may_lack_tables(self.reads) => {
                Ok(self.reads.iter().map(Found::nothing).collect())
            }
            Err(failed) => Err(pool.options.unanswered(failed)),
        }
    }

    /// Decodes the rows of the statements.
    pub(super) fn answered(&self, options: &Options, answers: Answers) -> Result<Vec<Found>, EngineError> {
        if answers.len() != self.statements.len() {
            return Err(options.volume.refused("its answers do not fit the questions"));
        }
        let mut found: Vec<Found> = self.reads.iter().map(Found::nothing).collect();
        for ((_, ask), answer) in self.statements.iter().zip(answers) {
            for row in &answer {
                ask.take(row, &mut found).map_err(|damage| options.volume.damaged(damage))?;
            }
        }
        Ok(found)
    }
}

impl Ask<'_> {
    /// Adds a row to the results.
    fn take(&self, row: &Columned, found: &mut [Found]) -> Result<(), Damage> {
        let give = |places: Option<&Places>, row: Row, found: &mut [Found]| {
            if let Some((last, others)) = places.and_then(|places| places.split_last()) {
                for at in others {
                    put(&mut found[*at], row.clone());
                }
                put(&mut found[*last], row);
            }
        };
        match self {
            Self::One(at, what, record) => take(*what, *record, row, &mut found[*at])?,
            Self::Xattr(at, key) => {
                if let (Key::Xattr(ino, name), Row::Xattr(_, _, value)) =
                    (key, decode(Record::Xattr, row, 0)?)
                {
                    put(&mut found[*at], Row::Xattr(*ino, name.clone(), value));
                }
            }
            Self::Keys(record, places) => {
                let row = decode(*record, row, 0)?;
                give(places.get(&row.key()), row, found);
            }
            Self::Joined(places) => {
                let asked =
                    (row.int(0).map_err(unexpected_answer)?, row.bytes(1).map_err(unexpected_answer)?);
                let places = places.get(&asked);
                decode_joined(row, 0, |row| give(places, row, found))?;
            }
            Self::Lists(record, column, places) => {
                let whose = row.int(*column).map_err(unexpected_answer)?;
                give(places.get(&whose), decode(*record, row, 0)?, found);
            }
        }
        Ok(())
    }
}

/// A statement that reads records, up to its condition.
fn select(tables: &Tables, record: Record) -> String {
    let place = tables.of(record);
    format!("SELECT {} FROM {} WHERE ", place.columns, place.table)
}

/// Adds the statements that read collections, given the number and the name of the column with the
/// owner of a row, and how the statements end.
fn collections(
    statements: &mut Vec<(String, Ask<'_>)>,
    tables: &Tables,
    record: Record,
    (column, name, end): (usize, &str, &str),
    wanted: &[(usize, i64)],
) {
    for wanted in wanted.chunks(MANY) {
        let mut text = select(tables, record) + name + " IN (";
        commas(&mut text, wanted, |text, (_, of)| push_int(text, *of));
        text = text + ")" + end;
        let asked = wanted.iter().map(|(at, of)| (*of, *at));
        statements.push((text, Ask::Lists(record, column, places(asked))));
    }
}
