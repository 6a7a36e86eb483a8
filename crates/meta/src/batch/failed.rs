//! Why an attempt failed.

use rustc_hash::FxHashSet;

use crate::engine::EngineError;

/// Why an attempt failed.
pub(super) enum Failed {
    /// Nothing was committed: records changed under the operations at these places of the batch.
    Again { culprits: FxHashSet<usize> },
    /// Nothing was committed: the engine could not be asked.
    Unavailable(EngineError),
    /// Nothing was committed: the engine will not do it.
    Refused(EngineError),
    /// Whether it was committed could not be found out.
    Unknown(EngineError),
}

impl From<EngineError> for Failed {
    fn from(error: EngineError) -> Self {
        match error {
            EngineError::Unavailable { .. } => Self::Unavailable(error),
            EngineError::Indeterminate { .. } => Self::Unknown(error),
            EngineError::Conflict(_) => Self::Again { culprits: FxHashSet::default() },
            EngineError::Full(_) | EngineError::Corrupt { .. } | EngineError::Refused { .. } => {
                Self::Refused(error)
            }
        }
    }
}
