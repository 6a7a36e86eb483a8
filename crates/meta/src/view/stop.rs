//! Why an operation stops.

use sluice_types::FsError;

use crate::want::Want;

/// Why an operation stopped before its end.
#[derive(Debug)]
pub enum Stop {
    /// It needs these first.
    More(Vec<Want>),
    /// It fails, and leaves no trace.
    Fail(FsError),
}

impl From<FsError> for Stop {
    fn from(error: FsError) -> Self {
        Self::Fail(error)
    }
}
