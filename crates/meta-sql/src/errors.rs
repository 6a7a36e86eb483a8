//! Errors that name their engine.

/// Adds constructors for the common errors to the options of an engine, which have a `label` and
/// the `naming` of the tables.
macro_rules! errors {
    ($options:ty) => {
        impl $options {
            /// The engine does not answer now.
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
