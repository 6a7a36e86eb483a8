//! Answers to reads: all of a call in one flight, those of one kind in one statement.
//!
//! What must stay true: answers stand in the order of the questions, say what the tables hold and
//! decide nothing.

use std::collections::BTreeMap;

use sluice_meta::{
    engine::{EngineError, Found, List, Read},
    schema::{Counter, Key, Row},
};
use sluice_types::Name;

use super::{
    Store,
    flight::{Answer, Arg, Flight, RawRow},
    statement::Template,
};
use crate::{
    codec::{Columns, Damage, Record, decode, decode_joined},
    text::{Look, listed},
    values::{Value, key_values},
};

/// How the rows of a statement become answers.
enum Take {
    /// They are rows of this record, all for the question at that place.
    Rows(Record, usize),
    /// As [`Take::Rows`], of an entry and its node.
    Joined(usize),
    Names(usize),
    /// The number of the last ACL rule.
    Last(usize),
    /// The first column tells which of these questions they answer.
    Many(Record, Vec<usize>),
    JoinedMany(Vec<usize>),
}

impl Store {
    /// Answers to all questions.
    pub(super) fn answers(&self, reads: &[Read]) -> Result<Vec<Found>, EngineError> {
        let mut flight = Flight::default();
        let takes = self.ask(reads, &mut flight);
        let mut found: Vec<Found> = reads.iter().map(nothing).collect();
        if flight.is_empty() {
            return Ok(found);
        }
        let answers = match self.pool.ask(&flight) {
            Ok(answers) => answers,
            // The question whether this is a volume has an answer in any database.
            Err(super::conn::Failure::Server(_, error))
                if error.is_missing_table() && matches!(reads, [Read::Get(Key::Setting)]) =>
            {
                return Ok(vec![Found::Row(None)]);
            }
            Err(error) => return Err(error.plain(&self.pool.options)),
        };
        for (take, answer) in takes.iter().zip(&answers) {
            take_in(take, answer, &mut found).map_err(|damage| self.pool.options.damaged(damage))?;
        }
        Ok(found)
    }

    /// Puts the questions into a flight.
    fn ask<'r>(&self, reads: &'r [Read], flight: &mut Flight<'r>) -> Vec<Take> {
        let mut takes = Vec::new();
        let mut keys: BTreeMap<Record, Vec<(usize, Vec<Value<'r>>)>> = BTreeMap::new();
        let mut lists: BTreeMap<(Record, bool), Vec<(usize, i64)>> = BTreeMap::new();
        let mut follows = Vec::new();
        let mut alone = |take, what, record, args| {
            flight.add(self.catalog.get(what, record), args);
            takes.push(take);
        };
        for (at, read) in reads.iter().enumerate() {
            match read {
                Read::Get(Key::Counter(Counter::AclMaxId)) => {
                    alone(Take::Last(at), Template::Look(Look::Last), Record::Acl, Vec::new());
                }
                Read::Get(Key::Parents(ino, parent)) => {
                    let args = vec![Arg::int(ino.0 as i64), Arg::int(parent.0 as i64)];
                    alone(Take::Rows(Record::Parents, at), Template::Look(Look::Get), Record::Parents, args);
                }
                // There is none by a name that is no text.
                Read::Get(Key::Xattr(_, name)) if std::str::from_utf8(name).is_err() => {}
                Read::Get(key) => {
                    if let Some((record, values)) = key_values(key) {
                        keys.entry(record).or_default().push((at, values));
                    }
                }
                Read::Follow(dir, name) => follows.push((at, dir.0 as i64, &name[..])),
                Read::Names { dir, limit } => {
                    let limit = i64::try_from(*limit).unwrap_or(i64::MAX);
                    let args = vec![Arg::int(dir.0 as i64), Arg::int(limit)];
                    alone(Take::Names(at), Template::Look(Look::Names), Record::Entry, args);
                }
                Read::All(List::Chunks(ino, from, to)) => {
                    let args = vec![Arg::int(ino.0 as i64), Arg::int((*from).into()), Arg::int((*to).into())];
                    alone(Take::Rows(Record::Chunk, at), Template::Look(Look::Range), Record::Chunk, args);
                }
                Read::All(list) => {
                    let (records, what, of) = listed(*list);
                    for record in records {
                        lists.entry((*record, what == Look::OfSession)).or_default().push((at, of as i64));
                    }
                }
            }
        }
        self.ask_keys(keys, flight, &mut takes);
        for ((record, of_session), wanted) in lists {
            let what = if of_session { Template::OfSession } else { Template::List };
            let ids = wanted.iter().map(|(_, id)| Value::Int(*id)).collect();
            flight.add(self.catalog.get(what, record), vec![Arg::places(wanted.len()), Arg::Many(ids)]);
            takes.push(Take::Many(record, wanted.into_iter().map(|(at, _)| at).collect()));
        }
        match &follows[..] {
            [] => {}
            [(at, dir, name)] => {
                let args = vec![Arg::int(*dir), Arg::One(Value::Bytes((*name).into()))];
                flight.add(self.catalog.get(Template::Look(Look::Follow), Record::Entry), args);
                takes.push(Take::Joined(*at));
            }
            many => {
                let dirs = many.iter().map(|(_, dir, _)| Value::Int(*dir)).collect();
                let names = many.iter().map(|(_, _, name)| Value::Bytes((*name).into())).collect();
                let args = vec![Arg::places(many.len()), Arg::Many(dirs), Arg::Many(names)];
                flight.add(self.catalog.get(Template::FollowMany, Record::Entry), args);
                takes.push(Take::JoinedMany(many.iter().map(|(at, ..)| *at).collect()));
            }
        }
        takes
    }

    fn ask_keys<'r>(
        &self,
        keys: BTreeMap<Record, Vec<(usize, Vec<Value<'r>>)>>,
        flight: &mut Flight<'r>,
        takes: &mut Vec<Take>,
    ) {
        for (record, mut wanted) in keys {
            if wanted.len() == 1 {
                let Some((at, values)) = wanted.pop() else { continue };
                let args = values.into_iter().map(Arg::One).collect();
                flight.add(self.catalog.get(Template::Look(Look::Get), record), args);
                takes.push(Take::Rows(record, at));
                continue;
            }
            let places = wanted.iter().map(|(at, _)| *at).collect();
            let mut args = vec![Arg::places(wanted.len())];
            args.extend(columns(wanted.into_iter().map(|(_, values)| values)));
            flight.add(self.catalog.get(Template::GetMany, record), args);
            takes.push(Take::Many(record, places));
        }
    }
}

/// Takes the rows of an answer to where they belong.
fn take_in(take: &Take, answer: &Answer, found: &mut [Found]) -> Result<(), Damage> {
    for row in &answer.rows {
        match take {
            Take::Rows(record, at) => put(found, *at, decode(*record, row, 0)?),
            Take::Joined(at) => decode_joined(row, 0, |row| put(found, *at, row))?,
            Take::Names(at) => {
                if let Some(Found::Names(names)) = found.get_mut(*at) {
                    names.push(Name::stored(row.bytes(0).map_err(odd)?));
                }
            }
            Take::Last(at) => {
                if !row.is_null(0) {
                    put(found, *at, Row::Counter(Counter::AclMaxId, row.int(0).map_err(odd)?));
                }
            }
            Take::Many(record, places) => put(found, place(row, places)?, decode(*record, row, 1)?),
            Take::JoinedMany(places) => {
                let at = place(row, places)?;
                decode_joined(row, 1, |row| put(found, at, row))?;
            }
        }
    }
    Ok(())
}

/// The columns of many rows, as parameters.
pub(super) fn columns<'v>(rows: impl Iterator<Item = Vec<Value<'v>>>) -> Vec<Arg<'v>> {
    let mut columns: Vec<Vec<Value<'v>>> = Vec::new();
    for row in rows {
        columns.resize_with(row.len(), Vec::new);
        for (column, value) in columns.iter_mut().zip(row) {
            column.push(value);
        }
    }
    columns.into_iter().map(Arg::Many).collect()
}

const fn nothing(read: &Read) -> Found {
    match read {
        Read::Get(..) => Found::Row(None),
        Read::Follow(..) | Read::All(..) => Found::Rows(Vec::new()),
        Read::Names { .. } => Found::Names(Vec::new()),
    }
}

fn put(found: &mut [Found], at: usize, row: Row) {
    match found.get_mut(at) {
        Some(Found::Row(place)) => *place = Some(row),
        Some(Found::Rows(rows)) => rows.push(row),
        _ => {}
    }
}

fn place(row: &RawRow, places: &[usize]) -> Result<usize, Damage> {
    let at = row.int(0).map_err(odd)? as usize;
    places.get(at).copied().ok_or_else(|| odd(format!("there is no question {at}")))
}

fn odd(reason: String) -> Damage {
    Damage { record: "an answer".into(), reason }
}
