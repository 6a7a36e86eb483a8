//! Where a dump comes from: the volume at one moment, or, where an engine cannot show that, as it is
//! from read to read.

use std::sync::Arc;

use sluice_meta::engine::{Cursor, Engine, EngineError, Found, Page, Read, Scan, Snapshot};

use crate::store::patiently;

/// A volume that is read.
pub(crate) enum Source<'e> {
    /// At one moment.
    Moment(Arc<dyn Snapshot>),
    /// As it is.
    Present(&'e dyn Engine),
}

impl<'e> Source<'e> {
    /// The volume of `engine` as it is now, for so many threads.
    pub(crate) fn now(engine: &'e dyn Engine, readers: usize) -> Result<Self, EngineError> {
        if let Some(moment) = patiently(|| engine.snapshot(readers))? {
            return Ok(Self::Moment(moment));
        }
        let sessions = patiently(|| engine.scan(Scan::Sessions, None, 1))?;
        if !sessions.rows.is_empty() {
            tracing::warn!(
                "clients have the volume open, and {} cannot show one moment of it: of what they change meanwhile the \
                 dump may have a part, and what they move may be in it twice or not at all",
                engine.name()
            );
        }
        Ok(Self::Present(engine))
    }

    /// As [`Engine::read`].
    pub(crate) fn read(&self, reads: &[Read]) -> Result<Vec<Found>, EngineError> {
        patiently(|| match self {
            Self::Moment(moment) => moment.read(reads),
            Self::Present(engine) => engine.read(reads),
        })
    }

    /// As [`Engine::scan`].
    pub(crate) fn scan(&self, scan: Scan, from: Option<&Cursor>, limit: usize) -> Result<Page, EngineError> {
        patiently(|| match self {
            Self::Moment(moment) => moment.scan(scan, from, limit),
            Self::Present(engine) => engine.scan(scan, from, limit),
        })
    }
}
