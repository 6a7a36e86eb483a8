//! The change log: a list of lines, and the number of the last one.
//!
//! What must stay true: the numbers of the lines are computed from the number of the last line. So
//! lines are removed only at the front, and each appended line also updates this number.

use redis::Value;
use sluice_meta::engine::{ChangeLog, EngineError, LogLine};

use crate::{
    engine::RedisEngine,
    keys::{Keys, Text, number},
    pipeline::{Args, Pipeline},
    script::LOG,
};

impl Keys {
    /// The list of lines.
    pub(crate) fn log(&self) -> Text {
        self.word("txnLog")
    }

    /// The number of the last line.
    pub(crate) fn log_end(&self) -> Text {
        self.word("txnLastLog")
    }
}

/// What there is: the number of the last line, how many lines there are, the number before those
/// that follow, and these.
type Look = (u64, u64, u64, Vec<Vec<u8>>);

impl RedisEngine {
    fn look(&self, after: u64, limit: usize) -> Result<Look, EngineError> {
        self.reader()?.parse(self.run(&[&number(after), &number(limit)])?)
    }

    /// Runs the script of the log.
    fn run(&self, own: &[&[u8]]) -> Result<Value, EngineError> {
        let keys = self.reader()?.keys;
        let mut args = Args::default();
        args.extend([&keys.log()[..], &keys.log_end()].into_iter().chain(own.iter().copied()));
        Ok(self.pool.ask(&Pipeline::of_script(&LOG, args))?.pop().unwrap_or(Value::Nil))
    }
}

impl ChangeLog for RedisEngine {
    fn last(&self) -> Result<u64, EngineError> {
        self.look(0, 0).map(|(last, ..)| last)
    }

    fn count(&self) -> Result<u64, EngineError> {
        self.look(0, 0).map(|(_, count, ..)| count)
    }

    fn lines(&self, after: u64, limit: usize) -> Result<Vec<LogLine>, EngineError> {
        let (.., before, lines) = self.look(after, limit.max(1))?;
        let numbered = lines.into_iter().zip(before + 1..);
        Ok(numbered.map(|(text, number)| LogLine { number, text: text.into() }).collect())
    }

    fn trim(&self, to: u64) -> Result<(), EngineError> {
        self.pool.errors().sound(self.run(&[&number(to)])?).map(drop)
    }
}
