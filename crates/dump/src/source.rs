//! The source of a dump: a snapshot of the volume, or, on an engine without snapshots, separate
//! reads of the current state.

use std::sync::Arc;

use sluice_meta::{
    engine::{Cursor, Engine, EngineError, Found, Page, Read, Scan, Snapshot},
    schema::{Counter, Key, Row},
};

use crate::{retry::retry, throttle::ReadThrottle};

/// A volume that is read.
pub(crate) struct Source<'e> {
    seen: Seen<'e>,
    /// Whether a scan of one kind of record about inodes reads all the others, too.
    pub(crate) is_mixed: bool,
    throttle: Option<ReadThrottle>,
}

enum Seen<'e> {
    /// From a snapshot.
    Moment(Arc<dyn Snapshot>),
    /// As it is.
    Present(&'e dyn Engine),
}

impl<'e> Source<'e> {
    /// The volume of `engine` as it is now, for so many threads. If `throttled`, the database is
    /// left to others for most of the time.
    pub(crate) fn now(engine: &'e dyn Engine, readers: usize, throttled: bool) -> Result<Self, EngineError> {
        let mut source =
            Self { seen: Self::seen(engine, readers)?, is_mixed: engine.is_mixed(), throttle: None };
        if throttled {
            let inodes = source.read(&[Read::Get(Key::Counter(Counter::TotalInodes))])?;
            let inodes = match inodes.first() {
                Some(Found::Row(Some(Row::Counter(_, inodes)))) => *inodes,
                _ => 0,
            };
            source.throttle = Some(ReadThrottle::new(inodes));
        }
        Ok(source)
    }

    fn seen(engine: &'e dyn Engine, readers: usize) -> Result<Seen<'e>, EngineError> {
        if let Some(moment) = retry(|| engine.snapshot(readers))? {
            return Ok(Seen::Moment(moment));
        }
        let sessions = retry(|| engine.scan(Scan::Sessions, None, 1))?;
        if !sessions.rows.is_empty() {
            tracing::warn!(
                "clients have the volume open, and {} cannot show one moment of it: of what they change meanwhile the \
                 dump may have a part, and what they move may be in it twice or not at all",
                engine.name()
            );
        }
        Ok(Seen::Present(engine))
    }

    /// As [`Engine::read`].
    pub(crate) fn read(&self, reads: &[Read]) -> Result<Vec<Found>, EngineError> {
        self.gently(|| match &self.seen {
            Seen::Moment(moment) => moment.read(reads),
            Seen::Present(engine) => engine.read(reads),
        })
    }

    /// As [`Engine::scan`].
    pub(crate) fn scan(&self, scan: Scan, from: Option<&Cursor>, limit: usize) -> Result<Page, EngineError> {
        self.gently(|| match &self.seen {
            Seen::Moment(moment) => moment.scan(scan, from, limit),
            Seen::Present(engine) => engine.scan(scan, from, limit),
        })
    }

    fn gently<T>(&self, ask: impl FnMut() -> Result<T, EngineError>) -> Result<T, EngineError> {
        match &self.throttle {
            Some(throttle) => throttle.read(|| retry(ask)),
            None => retry(ask),
        }
    }

    /// As [`Engine::divide`].
    pub(crate) fn divide(&self, cursor: Cursor) -> (Vec<Cursor>, Option<Cursor>) {
        match &self.seen {
            Seen::Moment(moment) => moment.divide(cursor),
            Seen::Present(engine) => engine.divide(cursor),
        }
    }
}
