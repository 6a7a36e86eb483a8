//! Runs reads: all reads of a call in one flight, and all reads of the same kind of record in one
//! statement.
//!
//! What must stay true: results have the order of the requests, and are exactly what the tables
//! hold.

use sluice_meta::engine::{EngineError, Found, Read};

use super::{
    Store,
    flight::{Arg, Flight, RawRow},
    statement::Template,
};
use crate::{
    codec::{Columns, Damage, Record, decode, decode_joined},
    questions::{Questions, may_lack_tables, put, take, unexpected_answer},
    text::Look,
    values::Value,
};

/// How the rows of a statement become results.
enum Take {
    /// They are the result of the request at that position.
    One(usize, Look, Record),
    /// The first column says to which of these requests they belong.
    Many(Record, Vec<usize>),
    /// As [`Take::Many`], of entries and their nodes.
    JoinedMany(Vec<usize>),
}

impl Store {
    /// The results of all requests.
    pub(super) fn answers(&self, reads: &[Read]) -> Result<Vec<Found>, EngineError> {
        let mut flight = Flight::default();
        let takes = self.ask(reads, &mut flight);
        let mut found: Vec<Found> = reads.iter().map(Found::nothing).collect();
        if flight.is_empty() {
            return Ok(found);
        }
        let answers = match self.pool.ask(&flight) {
            Ok(answers) => answers,
            Err(super::conn::Failure::Server(_, error))
                if error.is_missing_table() && may_lack_tables(reads) =>
            {
                return Ok(found);
            }
            Err(error) => return Err(error.plain(&self.pool.options)),
        };
        for (take, answer) in takes.iter().zip(&answers) {
            take_in(take, answer, &mut found).map_err(|damage| self.pool.options.volume.damaged(damage))?;
        }
        Ok(found)
    }

    /// Adds the requests to a flight.
    fn ask<'r>(&self, reads: &'r [Read], flight: &mut Flight<'r>) -> Vec<Take> {
        let mut takes = Vec::new();
        let mut add = |take, template, record, args| {
            flight.add(self.catalog.get(template, record), args);
            takes.push(take);
        };
        let Questions { keys, lists, ranges, mut follows, alone } = Questions::new(reads);
        for (at, what, record, values) in alone {
            let args = values.into_iter().map(Arg::One).collect();
            add(Take::One(at, what, record), Template::Look(what), record, args);
        }
        for ((from, to), wanted) in ranges {
            for (at, ino) in wanted {
                let args = [ino, from.into(), to.into()].map(Arg::int).into();
                let take = Take::One(at, Look::Range, Record::Chunk);
                add(take, Template::Look(Look::Range), Record::Chunk, args);
            }
        }
        for (record, mut wanted) in keys {
            if wanted.len() > 1 {
                let places = wanted.iter().map(|(at, ..)| *at).collect();
                let mut args = vec![Arg::places(wanted.len())];
                args.extend(columns(wanted.into_iter().map(|(.., values)| values)));
                add(Take::Many(record, places), Template::GetMany, record, args);
            } else if let Some((at, _, values)) = wanted.pop() {
                let args = values.into_iter().map(Arg::One).collect();
                add(Take::One(at, Look::Get, record), Template::Look(Look::Get), record, args);
            }
        }
        for ((record, what), wanted) in lists {
            let template = if what == Look::OfSession { Template::OfSession } else { Template::List };
            let (places, ids): (Vec<usize>, Vec<_>) =
                wanted.into_iter().map(|(at, id)| (at, Value::Int(id))).unzip();
            add(Take::Many(record, places), template, record, vec![Arg::places(ids.len()), Arg::Many(ids)]);
        }
        let name = |name: &'r [u8]| Value::Bytes(name.into());
        if follows.len() > 1 {
            let places = follows.iter().map(|(at, ..)| *at).collect();
            let (dirs, names): (Vec<_>, Vec<_>) =
                follows.into_iter().map(|(_, dir, of)| (Value::Int(dir), name(of))).unzip();
            let args = vec![Arg::places(dirs.len()), Arg::Many(dirs), Arg::Many(names)];
            add(Take::JoinedMany(places), Template::FollowMany, Record::Entry, args);
        } else if let Some((at, dir, of)) = follows.pop() {
            let args = vec![Arg::int(dir), Arg::One(name(of))];
            let take = Take::One(at, Look::Follow, Record::Entry);
            add(take, Template::Look(Look::Follow), Record::Entry, args);
        }
        takes
    }
}

/// Adds the rows of an answer to the results.
fn take_in(how: &Take, answer: &[RawRow], found: &mut [Found]) -> Result<(), Damage> {
    for row in answer {
        match how {
            Take::One(at, what, record) => take(*what, *record, row, &mut found[*at])?,
            Take::Many(record, places) => put(&mut found[place(row, places)?], decode(*record, row, 1)?),
            Take::JoinedMany(places) => {
                let found = &mut found[place(row, places)?];
                decode_joined(row, 1, |row| put(found, row))?;
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

fn place(row: &RawRow, places: &[usize]) -> Result<usize, Damage> {
    let at = row.int(0).map_err(unexpected_answer)? as usize;
    places.get(at).copied().ok_or_else(|| unexpected_answer(format!("there is no question {at}")))
}
