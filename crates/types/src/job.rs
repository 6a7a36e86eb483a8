//! Names background threads and jobs in the log.
//!
//! What must stay true: a span is entered once for a thread or a whole job, never for one request.

use tracing::error_span;

/// `work` for the body of a thread. The log lines of `work` have this `name`, after the names of
/// the caller's span.
pub fn job<T, W: FnOnce() -> T>(name: &str, work: W) -> impl FnOnce() -> T + use<T, W> {
    // At the highest level, so that it exists whatever is logged.
    let span = error_span!("job", job = name);
    move || span.in_scope(work)
}
