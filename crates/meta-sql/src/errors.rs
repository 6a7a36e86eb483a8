//! Errors that name their engine.

/// Gives what the URL of an engine says, which has a `label` and the `naming` of its tables, the
/// errors that any engine has.
macro_rules! errors {
    ($options:ty) => {
        impl $options {
            /// The engine cannot be asked now.
            pub(crate) fn unavailable(&self, reason: impl Into<String>) -> EngineError {
                EngineError::Unavailable { engine: self.label.clone(), reason: reason.into() }
            }

            /// A commit may have happened or not.
            pub(crate) fn indeterminate(&self, reason: impl Into<String>) -> EngineError {
                EngineError::Indeterminate { engine: self.label.clone(), reason: reason.into() }
            }

            /// The engine refuses for good.
            pub(crate) fn refused(&self, reason: impl Into<String>) -> EngineError {
                EngineError::Refused { engine: self.label.clone(), reason: reason.into() }
            }

            /// A row breaks the format.
            pub(crate) fn damaged(&self, damage: $crate::codec::Damage) -> EngineError {
                EngineError::Corrupt {
                    engine: self.label.clone(),
                    record: format!("{}{}", self.naming.prefix(), damage.record),
                    reason: damage.reason,
                }
            }
        }
    };
}
pub(crate) use errors;
