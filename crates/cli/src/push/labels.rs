//! Labels of metrics.

/// Labels with their values.
pub(crate) type Labels = Vec<(String, String)>;
