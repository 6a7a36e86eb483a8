//! The time after which a call counts as hung.

use std::time::Duration;

/// How long anything may take: longer is a hang.
pub(super) const TIMEOUT: Duration = Duration::from_mins(1);
