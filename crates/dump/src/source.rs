//! Where a dump comes from: the volume at one moment, or, where an engine cannot show that, as it
//! is from read to read.

use std::sync::Arc;

use sluice_meta::engine::{Cursor, Engine, EngineError, Found, Page, Read, Scan, Snapshot};

use crate::patience::patiently;

/// A volume that is read.
pub(crate) struct Source<'e> {
    seen: Seen<'e>,
    /// Whether a scan of one kind of record about inodes looks at all the others, too.
    pub(crate) is_mixed: bool,
}

enum Seen<'e> {
    /// At one moment.
    Moment(Arc<dyn Snapshot>),
    /// As it is.
    Present(&'e dyn Engine),
}

impl<'e> Source<'e> {
    /// The volume of `engine` as it is now, for so many threads.
    pub(crate) fn now(engine: &'e dyn Engine, readers: usize) -> Result<Self, EngineError> {
        if let Some(moment) = patiently(|| engine.snapshot(readers))? {
            return Ok(Self { seen: Seen::Moment(moment), is_mixed: engine.is_mixed() });
        }
        let sessions = patiently(|| engine.scan(Scan::Sessions, None, 1))?;
        if !sessions.rows.is_empty() {
            tracing::warn!(
                "clients have the volume open, and {} cannot show one moment of it: of what they change meanwhile the \
                 dump may have a part, and what they move may be in it twice or not at all",
                engine.name()
            );
        }
        Ok(Self { seen: Seen::Present(engine), is_mixed: engine.is_mixed() })
    }

    /// As [`Engine::read`].
    pub(crate) fn read(&self, reads: &[Read]) -> Result<Vec<Found>, EngineError> {
        patiently(|| match &self.seen {
            Seen::Moment(moment) => moment.read(reads),
            Seen::Present(engine) => engine.read(reads),
        })
    }

    /// As [`Engine::scan`].
    pub(crate) fn scan(&self, scan: Scan, from: Option<&Cursor>, limit: usize) -> Result<Page, EngineError> {
        patiently(|| match &self.seen {
            Seen::Moment(moment) => moment.scan(scan, from, limit),
            Seen::Present(engine) => engine.scan(scan, from, limit),
        })
    }

    /// As [`Engine::divide`].
    pub(crate) fn divide(&self, cursor: Cursor) -> (Vec<Cursor>, Option<Cursor>) {
        match &self.seen {
            Seen::Moment(_) => (Vec::new(), Some(cursor)),
            Seen::Present(engine) => engine.divide(cursor),
        }
    }
}
