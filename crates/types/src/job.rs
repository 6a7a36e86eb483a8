//! Work on threads of its own, as the log names it.
//!
//! What must stay true: a span is entered once for a thread or a whole job, never for one request.

use tracing::error_span;

/// `work`, whose lines in the log name it `name`, below what the caller's lines name. For the body
/// of a thread.
pub fn job<T, W: FnOnce() -> T>(name: &str, work: W) -> impl FnOnce() -> T + use<T, W> {
    // Of the highest level, so that it is there whatever is logged.
    let span = error_span!("job", job = name);
    move || span.in_scope(work)
}
