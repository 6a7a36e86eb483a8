//! Runs work that would block the runtime.
//!
//! What must stay true: the work always runs, on some thread, and its result is returned.

use crate::store::ObjectError;

/// Work on up to this many bytes runs on the calling thread: it costs less than to wake another
/// one.
const INLINE_BYTES: u64 = 128 * 1024;

/// Runs `work` on `bytes` bytes: on this thread if they are few or there is no runtime, else on a
/// blocking thread. `u64::MAX` stands for work of unknown duration.
pub(crate) async fn offload<T, F>(bytes: u64, work: F) -> Result<T, ObjectError>
where
    T: Send + 'static,
    F: FnOnce() -> Result<T, ObjectError> + Send + 'static,
{
    let runtime = if bytes <= INLINE_BYTES { None } else { tokio::runtime::Handle::try_current().ok() };
    match runtime {
        None => work(),
        Some(runtime) => runtime.spawn_blocking(work).await.unwrap_or_else(|failure| {
            Err(ObjectError::Unavailable {
                action: "finish",
                key: "a blocking step".into(),
                store: "this process".into(),
                reason: failure.to_string(),
            })
        }),
    }
}
