//! Errors that name their engine.

/// Gives the options of an engine, which have a `label` and the `naming` of the tables, the
/// constructors of its errors.
macro_rules! errors {
    ($options:ty) => {
        impl std::ops::Deref for $options {
            type Target = sluice_meta::engine::Label;

            fn deref(&self) -> &Self::Target {
                &self.label
            }
        }

        impl $options {
            /// A row breaks the format.
            pub(crate) fn damaged(&self, damage: $crate::codec::Damage) -> EngineError {
                self.corrupt(format!("{}{}", self.naming.prefix(), damage.record), damage.reason)
            }
        }
    };
}
pub(crate) use errors;
