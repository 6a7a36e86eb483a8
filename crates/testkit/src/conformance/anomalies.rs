//! The scripts of [`crate::anomaly`] as one case of the suite.

use super::Factory;
use crate::anomaly;

/// Nothing that the contract forbids is ever the outcome. What it allows need not show.
pub fn no_forbidden_anomaly(factory: &Factory<'_>) {
    anomaly::run_all(factory, false);
}
