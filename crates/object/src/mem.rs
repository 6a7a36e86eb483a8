//! `mem`: objects in the memory of this process, for tests and experiments.
//!
//! What must stay true: it is as strict as a real store about ranges and missing keys, so that code
//! that passes here does not fail there.

use std::{collections::BTreeMap, ops::Range, sync::Arc};

use bytes::Bytes;
use futures::{
    future::{self, BoxFuture},
    stream::{self, BoxStream, StreamExt},
};
use parking_lot::RwLock;
use sluice_types::{Clock, SystemClock, Time};

use crate::store::{ObjectError, ObjectMeta, ObjectStore};

/// Objects in memory. Cloning is cheap; all clones are the same store.
#[derive(Clone, Debug, Default)]
pub struct MemStore(Arc<RwLock<BTreeMap<String, (Bytes, Time)>>>);

impl MemStore {
    /// An empty store.
    pub fn new() -> Self {
        Self::default()
    }

    fn missing(&self, key: &str) -> ObjectError {
        ObjectError::NotFound { key: key.to_owned(), store: self.describe() }
    }

    fn read(&self, key: &str, range: Option<Range<u64>>) -> Result<Bytes, ObjectError> {
        let objects = self.0.read();
        let (data, _) = objects.get(key).ok_or_else(|| self.missing(key))?;
        let Some(range) = range else { return Ok(data.clone()) };
        if range.start > range.end || range.end > data.len() as u64 {
            return Err(ObjectError::Corrupt {
                key: key.to_owned(),
                store: self.describe(),
                reason: format!("it has {} bytes, {} to {} were wanted", data.len(), range.start, range.end),
            });
        }
        Ok(data.slice(range.start as usize..range.end as usize))
    }
}

impl ObjectStore for MemStore {
    fn describe(&self) -> String {
        "mem://".to_owned()
    }

    fn ranged(&self) -> bool {
        true
    }

    fn get<'a>(
        &'a self,
        key: &'a str,
        range: Option<Range<u64>>,
    ) -> BoxFuture<'a, Result<Bytes, ObjectError>> {
        Box::pin(future::ready(self.read(key, range)))
    }

    fn put<'a>(&'a self, key: &'a str, data: Bytes) -> BoxFuture<'a, Result<(), ObjectError>> {
        self.0.write().insert(key.to_owned(), (data, SystemClock.now()));
        Box::pin(future::ready(Ok(())))
    }

    fn delete<'a>(&'a self, key: &'a str) -> BoxFuture<'a, Result<(), ObjectError>> {
        self.0.write().remove(key);
        Box::pin(future::ready(Ok(())))
    }

    fn head<'a>(&'a self, key: &'a str) -> BoxFuture<'a, Result<ObjectMeta, ObjectError>> {
        let found = self.0.read().get(key).map(|(data, modified)| ObjectMeta {
            key: key.to_owned(),
            size: data.len() as u64,
            modified: Some(*modified),
        });
        Box::pin(future::ready(found.ok_or_else(|| self.missing(key))))
    }

    fn list<'a>(&'a self, prefix: &'a str) -> BoxStream<'a, Result<ObjectMeta, ObjectError>> {
        let objects = self.0.read();
        let found: Vec<_> = objects
            .range(prefix.to_owned()..)
            .take_while(|(key, _)| key.starts_with(prefix))
            .map(|(key, (data, modified))| {
                Ok(ObjectMeta { key: key.clone(), size: data.len() as u64, modified: Some(*modified) })
            })
            .collect();
        stream::iter(found).boxed()
    }
}

#[cfg(test)]
mod tests {
    use futures::{TryStreamExt, executor::block_on};

    use super::*;

    #[test]
    fn keeps_lists_and_forgets() {
        let store = MemStore::new();
        for key in ["a/1", "a/2", "b/1"] {
            block_on(store.put(key, Bytes::from_static(b"0123"))).unwrap();
        }
        assert_eq!(block_on(store.get("a/1", Some(1..3))).unwrap(), "12");
        assert!(matches!(block_on(store.get("a/1", Some(1..5))), Err(ObjectError::Corrupt { .. })));
        assert!(matches!(block_on(store.get("c", None)), Err(ObjectError::NotFound { .. })));
        assert_eq!(block_on(store.head("b/1")).unwrap().size, 4);
        block_on(store.delete("a/1")).unwrap();
        block_on(store.delete("a/1")).unwrap();
        let left: Vec<_> = block_on(store.list("a").map_ok(|meta| meta.key).try_collect()).unwrap();
        assert_eq!(left, ["a/2"]);
    }
}
