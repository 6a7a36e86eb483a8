//! The position of a dump in the change log: the last line. A reader of the log loads the dump and
//! continues after this line.
//!
//! What must stay true: the position is read before the volume. So a change that the dump lacks is
//! in a later line, as far as the engine keeps lines in the order of their numbers
//! ([`ChangeLog::settled`]).

use sluice_meta::{
    Meta,
    engine::{ChangeLog, Engine, EngineError, LogLine},
};

use crate::{DumpError, retry::retry};

/// Lines that are read at once.
const PAGE: usize = 1000;

/// The end of the change log.
#[derive(Debug, Default)]
pub(crate) struct LogEnd {
    /// The number of the last line, 0 of none.
    pub(crate) last: u64,
    /// The lines that exist, if others may still appear before the last one.
    pub(crate) lines: Vec<LogLine>,
}

impl LogEnd {
    /// Reads it from the volume of `engine`, if that has a log.
    pub(crate) fn read(engine: &dyn Engine) -> Result<Self, DumpError> {
        // This is the first request: if there is no answer, the URL may be wrong.
        let Some(format) = Meta::load_format(engine)? else { return Ok(Self::default()) };
        match engine.change_log() {
            Some(log) if format.change_log => Ok(retry(|| Self::of(log))?),
            _ => Ok(Self::default()),
        }
    }

    fn of(log: &dyn ChangeLog) -> Result<Self, EngineError> {
        let last = log.last()?;
        let (mut lines, mut at) = (Vec::new(), log.settled(last));
        while at < last {
            let page = log.lines(at, PAGE)?;
            at = page.last().map_or(last, |line| line.number);
            lines.extend(page.into_iter().take_while(|line| line.number <= last));
        }
        Ok(Self { last, lines })
    }
}
