//! Why a simulation does not start.

use sluice_meta::OpenError;

/// Why a participant could not start.
pub(crate) enum StartError {
    /// The database did not answer as it should.
    Refused,
    /// This machine lacks what the simulation needs.
    Machine(String),
}

impl From<OpenError> for StartError {
    fn from(_: OpenError) -> Self {
        Self::Refused
    }
}
