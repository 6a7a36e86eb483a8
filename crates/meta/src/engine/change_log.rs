//! The change log of a volume, as an engine keeps it.
//!
//! Lines are appended by [`Write::Log`](super::Write::Log), in the commit of the change that they
//! describe. This trait reads and trims them.

use bytes::Bytes;

use super::EngineError;

/// A line of the change log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogLine {
    /// Its number. Later lines have higher ones, but for [`ChangeLog::settled`].
    pub number: u64,
    /// Its text, without a line break.
    pub text: Bytes,
}

/// Reads and trims the change log of a volume.
pub trait ChangeLog {
    /// The number of the last line that was appended, be it that it was trimmed; 0 before the
    /// first. TiKV, where the format keeps no number beside the lines, answers 0 if all were
    /// trimmed. One trip.
    fn last(&self) -> Result<u64, EngineError>;

    /// How many lines there are. It may take as long as a read of all of them.
    fn count(&self) -> Result<u64, EngineError>;

    /// The lines with higher numbers than `after`, in their order; at most about `limit`, and none
    /// only if there are none. One trip.
    fn lines(&self, after: u64, limit: usize) -> Result<Vec<LogLine>, EngineError>;

    /// Removes the lines up to number `to`, with it. Not one trip, but as many as it takes.
    fn trim(&self, to: u64) -> Result<(), EngineError>;

    /// The number up to which no line is expected any more once line `last` is there: `last`
    /// itself, unless the engine numbers lines before it appends them. PostgreSQL and MySQL do so
    /// too, and say `last`: there a line that is committed late may be missed.
    fn settled(&self, last: u64) -> u64 {
        last
    }
}
