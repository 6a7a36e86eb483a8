//! Stores very many new records with plain commands.
//!
//! What must stay true: a list that is there already is replaced, not appended to. The new length
//! shows whether it existed.

use redis::Value;
use rustc_hash::FxHashMap;
use sluice_meta::{
    engine::EngineError,
    schema::{Key, Row},
};
use sluice_types::Slice;

use crate::{
    codec::{Shape, encode},
    keys::{Keys, Text},
    pipeline::{Args, Pipeline},
    pool::Pool,
};

/// Arguments of one command: few enough for the server to turn to others soon.
const MOST: usize = 2000;

/// Stores new records. One trip, or two.
pub(crate) fn load(pool: &Pool, keys: &Keys, rows: &[Row]) -> Result<(), EngineError> {
    let mut request = Request::default();
    for row in rows {
        request.add(keys, row);
    }
    let (pipeline, lists) = request.finish();
    if pipeline.len() == 0 {
        return Ok(());
    }
    let answers = pool.ask(&pipeline)?;
    let mut again = Pipeline::default();
    for (at, answer) in answers.into_iter().enumerate() {
        let length = pool.errors().sound(answer)?;
        if let Some((list, values)) = lists.get(at)
            && length != Value::Int((values.len() / Slice::BYTES) as i64)
        {
            again.command("DEL").push(list);
            push(again.command("RPUSH"), list, values);
        }
    }
    if again.len() > 0 {
        pool.ask(&again)?.into_iter().try_for_each(|answer| pool.errors().sound(answer).map(drop))?;
    }
    Ok(())
}

/// Records on their way to commands.
#[derive(Default)]
struct Request {
    strings: Args,
    /// What is in hashes, sets and sorted sets, by command and key.
    parts: FxHashMap<(&'static str, Text), Args>,
    lists: Vec<(Text, Vec<u8>)>,
    full: Vec<(&'static str, Option<Text>, Args)>,
}

impl Request {
    fn add(&mut self, keys: &Keys, row: &Row) {
        let key: Key = row.key();
        for (cell, value) in keys.cells(&key).into_iter().zip(encode(row)) {
            // What is to be absent is.
            let Some(value) = value else { continue };
            let command = match cell.shape {
                Shape::List => {
                    self.lists.push((cell.key, value));
                    continue;
                }
                Shape::Text | Shape::Counter => {
                    self.strings.extend([&cell.key[..], &value]);
                    if self.strings.len() >= MOST {
                        self.full.push(("MSET", None, std::mem::take(&mut self.strings)));
                    }
                    continue;
                }
                Shape::Field | Shape::Number | Shape::Links => "HSET",
                Shape::Score => "ZADD",
                Shape::Member => "SADD",
            };
            let args = self.parts.entry((command, cell.key.clone())).or_default();
            match command {
                "HSET" => args.extend([&cell.field[..], &value]),
                "ZADD" => args.extend([&value[..], &cell.field]),
                _ => args.push(&cell.field),
            }
            if args.len() >= MOST {
                self.full.push((command, Some(cell.key), std::mem::take(args)));
            }
        }
    }

    /// The commands, those of the lists first, and these.
    fn finish(mut self) -> (Pipeline, Vec<(Text, Vec<u8>)>) {
        let mut pipeline = Pipeline::default();
        for (list, values) in &self.lists {
            push(pipeline.command("RPUSH"), list, values);
        }
        self.full.push(("MSET", None, self.strings));
        self.full.extend(self.parts.into_iter().map(|((command, key), args)| (command, Some(key), args)));
        for (command, key, args) in self.full.into_iter().filter(|(.., args)| args.len() > 0) {
            let command = pipeline.command(command);
            if let Some(key) = key {
                command.push(&key);
            }
            command.append(&args);
        }
        (pipeline, self.lists)
    }
}

/// A list of slices.
fn push(command: &mut Args, list: &[u8], slices: &[u8]) {
    command.push(list);
    command.extend(slices.chunks(Slice::BYTES));
}
