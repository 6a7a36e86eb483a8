//! Work that would hold up the runtime.
//!
//! What must stay true: it is done, on one thread or another, and its result comes back.

use crate::store::ObjectError;

/// Work on up to this many bytes is done where it is called: it costs less than waking another
/// thread.
const INLINE_BYTES: u64 = 128 * 1024;

/// Does `work` on `bytes` bytes: here if they are few or there is no runtime, else on a blocking
/// thread. `u64::MAX` stands for work whose time is not known.
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
