//! A key prefix for one volume, in a bucket that holds other data, too.
//!
//! What must stay true: nothing outside the prefix is read, written or listed.

use std::{ops::Range, path::Path, sync::Arc};

use bytes::Bytes;
use futures::{
    future::BoxFuture,
    stream::{BoxStream, StreamExt},
};

use crate::store::{ObjectError, ObjectMeta, ObjectStore};

/// A store whose keys all start with a prefix that its callers do not see.
#[derive(Debug)]
pub struct Prefixed {
    inner: Arc<dyn ObjectStore>,
    prefix: String,
}

impl Prefixed {
    /// `inner` below `prefix`, which should end in `/`.
    pub fn new(inner: Arc<dyn ObjectStore>, prefix: impl Into<String>) -> Self {
        Self { inner, prefix: prefix.into() }
    }

    fn full(&self, key: &str) -> String {
        format!("{}{key}", self.prefix)
    }

    fn stripped(&self, mut meta: ObjectMeta) -> ObjectMeta {
        if meta.key.starts_with(&self.prefix) {
            meta.key.drain(..self.prefix.len());
        }
        meta
    }
}

impl ObjectStore for Prefixed {
    fn describe(&self) -> String {
        format!("{}{}", self.inner.describe(), self.prefix)
    }

    fn ranged(&self) -> bool {
        self.inner.ranged()
    }

    fn get<'a>(
        &'a self,
        key: &'a str,
        range: Option<Range<u64>>,
    ) -> BoxFuture<'a, Result<Bytes, ObjectError>> {
        Box::pin(async move { self.inner.get(&self.full(key), range).await })
    }

    fn put<'a>(&'a self, key: &'a str, data: Bytes) -> BoxFuture<'a, Result<(), ObjectError>> {
        Box::pin(async move { self.inner.put(&self.full(key), data).await })
    }

    fn put_file<'a>(&'a self, key: &'a str, file: &'a Path) -> BoxFuture<'a, Result<(), ObjectError>> {
        Box::pin(async move { self.inner.put_file(&self.full(key), file).await })
    }

    fn sync(&self) -> BoxFuture<'_, Result<(), ObjectError>> {
        self.inner.sync()
    }

    fn delete<'a>(&'a self, key: &'a str) -> BoxFuture<'a, Result<(), ObjectError>> {
        Box::pin(async move { self.inner.delete(&self.full(key)).await })
    }

    fn head<'a>(&'a self, key: &'a str) -> BoxFuture<'a, Result<ObjectMeta, ObjectError>> {
        Box::pin(async move { Ok(self.stripped(self.inner.head(&self.full(key)).await?)) })
    }

    fn list<'a>(&'a self, prefix: &'a str) -> BoxStream<'a, Result<ObjectMeta, ObjectError>> {
        let full = self.full(prefix);
        async_stream::stream! {
            let mut found = self.inner.list(&full);
            while let Some(meta) = found.next().await {
                yield meta.map(|meta| self.stripped(meta));
            }
        }
        .boxed()
    }
}
