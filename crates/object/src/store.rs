//! The interface of object stores.
//!
//! Objects are immutable: a key is put once (a retry may put the same bytes again), read and
//! deleted. Every call has a deadline of its own.

use std::{fmt, fs, ops::Range, path::Path};

use bytes::Bytes;
use futures::{future::BoxFuture, stream::BoxStream};
use sluice_types::Time;

/// Bytes of the largest object that is read as a whole: four times the largest block, compressed or
/// encrypted or not. A larger object is no block, and would take too much memory.
pub(crate) const MAX_OBJECT: u64 = 64 << 20;

/// Bytes of a part, where a file is stored in parts.
pub(crate) const PART: u64 = 16 << 20;

/// Why an object above [`MAX_OBJECT`] is refused.
pub(crate) fn too_large() -> String {
    format!("it has more than {} MiB, which no block has; somebody else put it there", MAX_OBJECT >> 20)
}

/// A local file that is to be stored cannot be read.
pub(crate) fn unreadable(file: &Path, error: &std::io::Error) -> ObjectError {
    ObjectError::Config { store: file.display().to_string(), reason: format!("it cannot be read: {error}") }
}

/// An object store. Keys are relative to the volume's prefix and never start with `/`.
pub trait ObjectStore: fmt::Debug + Send + Sync + 'static {
    /// The place of the store, for messages: driver and bucket, without secrets.
    fn describe(&self) -> String;

    /// Whether `get` with a range costs less than `get` of the whole object. It does not if objects
    /// are compressed or encrypted, because only whole ones can be decoded.
    fn ranged(&self) -> bool;

    /// The bytes of `key`, or of `range` of it. A range that reaches past the end is an error, and
    /// so is the whole of an object of more than 64 MiB.
    fn get<'a>(
        &'a self,
        key: &'a str,
        range: Option<Range<u64>>,
    ) -> BoxFuture<'a, Result<Bytes, ObjectError>>;

    /// All bytes of `key`, of which there are about `size`: a bandwidth limit counts so many before
    /// they come, and what there are when they have come.
    fn get_whole<'a>(&'a self, key: &'a str, size: u64) -> BoxFuture<'a, Result<Bytes, ObjectError>> {
        let _ = size;
        self.get(key, None)
    }

    /// Stores `data` under `key`. When this returns the object is durable as the store defines it.
    fn put<'a>(&'a self, key: &'a str, data: Bytes) -> BoxFuture<'a, Result<(), ObjectError>>;

    /// Stores the content of `file` under `key`, as [`Self::put`] does. Stores that take an object
    /// in parts hold one part in memory. Others hold all of it, and so does encryption, which
    /// works on whole objects.
    fn put_file<'a>(&'a self, key: &'a str, file: &'a Path) -> BoxFuture<'a, Result<(), ObjectError>> {
        Box::pin(async move {
            let content = fs::read(file).map_err(|error| unreadable(file, &error))?;
            self.put(key, content.into()).await
        })
    }

    /// Makes everything that was put survive a power cut, if a put alone does not.
    fn sync(&self) -> BoxFuture<'_, Result<(), ObjectError>> {
        Box::pin(async { Ok(()) })
    }

    /// Removes `key`; a missing key is no error.
    fn delete<'a>(&'a self, key: &'a str) -> BoxFuture<'a, Result<(), ObjectError>>;

    /// Size and time of `key`.
    fn head<'a>(&'a self, key: &'a str) -> BoxFuture<'a, Result<ObjectMeta, ObjectError>>;

    /// All objects whose key starts with `prefix`, in no particular order.
    fn list<'a>(&'a self, prefix: &'a str) -> BoxStream<'a, Result<ObjectMeta, ObjectError>>;
}

/// The metadata of an object, without a read of its bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObjectMeta {
    /// Key relative to the volume's prefix.
    pub key: String,
    /// Stored bytes (after compression and encryption).
    pub size: u64,
    /// Last modification, if the store provides it.
    pub modified: Option<Time>,
}

/// Why an object could not be read or written. Each variant says what must be done.
#[derive(Clone, Debug, thiserror::Error)]
pub enum ObjectError {
    /// There is no such object.
    #[error("object {key} does not exist in {store}")]
    NotFound {
        /// The key.
        key: String,
        /// The store, as [`ObjectStore::describe`] returns it.
        store: String,
    },
    /// The object is there but its bytes cannot be right: truncated, or refused by the decoder.
    #[error("object {key} in {store} is damaged: {reason}")]
    Corrupt {
        /// The key.
        key: String,
        /// The store.
        store: String,
        /// What is wrong with it.
        reason: String,
    },
    /// The store could not do it now, and may do it later.
    #[error("{store} did not {action} {key}: {reason}")]
    Unavailable {
        /// What was tried: `read`, `write`, `delete`, `list`.
        action: &'static str,
        /// The key or prefix.
        key: String,
        /// The store.
        store: String,
        /// The store's message.
        reason: String,
    },
    /// The store has no room for more.
    #[error("{store} is full: {reason}")]
    Full {
        /// The store.
        store: String,
        /// Its message, and for which object.
        reason: String,
    },
    /// The store refuses access. It may not do so later, since keys are rotated.
    #[error("{store}: {reason}")]
    Denied {
        /// The store.
        store: String,
        /// Its message, for which object, and what to do about it.
        reason: String,
    },
    /// The store will never do it as configured: missing bucket, unknown driver.
    #[error("{store}: {reason}")]
    Config {
        /// The store.
        store: String,
        /// What is wrong and what to do about it.
        reason: String,
    },
}
