//! One volume over several buckets.
//!
//! What must stay true: a key is always in the bucket that its FNV-1a hash chooses; the number of
//! buckets is fixed for the life of the volume.

use std::{ops::Range, path::Path, sync::Arc};

use bytes::Bytes;
use futures::{
    future::{BoxFuture, try_join_all},
    stream::{BoxStream, StreamExt, select_all},
};

use crate::{
    file::unfinished,
    store::{ObjectError, ObjectMeta, ObjectStore},
};

/// Stores among which the keys are spread. It has to see the full keys, with the volume's prefix.
#[derive(Debug)]
pub struct Sharded(Vec<Arc<dyn ObjectStore>>);

impl Sharded {
    /// Spreads keys over `stores`, in their order; `None` if there are none.
    pub fn new(stores: Vec<Arc<dyn ObjectStore>>) -> Option<Self> {
        (!stores.is_empty()).then_some(Self(stores))
    }

    /// Unfinished files are where their object would be.
    fn of(&self, key: &str) -> &dyn ObjectStore {
        let finished = unfinished(key);
        let key = finished.as_deref().unwrap_or(key);
        self.0[shard(key, self.0.len() as u32) as usize].as_ref()
    }
}

/// Which of `shards` holds `key`: its 32-bit FNV-1a hash modulo their number.
fn shard(key: &str, shards: u32) -> u32 {
    key.bytes().fold(0x811c_9dc5_u32, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193))
        % shards
}

impl ObjectStore for Sharded {
    fn describe(&self) -> String {
        format!("{} and {} more, sharded: ", self.0[0].describe(), self.0.len() - 1)
    }

    fn ranged(&self) -> bool {
        self.0.iter().all(|store| store.ranged())
    }

    fn get<'a>(
        &'a self,
        key: &'a str,
        range: Option<Range<u64>>,
    ) -> BoxFuture<'a, Result<Bytes, ObjectError>> {
        self.of(key).get(key, range)
    }

    fn put<'a>(&'a self, key: &'a str, data: Bytes) -> BoxFuture<'a, Result<(), ObjectError>> {
        self.of(key).put(key, data)
    }

    fn put_file<'a>(&'a self, key: &'a str, file: &'a Path) -> BoxFuture<'a, Result<(), ObjectError>> {
        self.of(key).put_file(key, file)
    }

    /// A directory, whose name ends in `/`, may be in each of the buckets.
    fn sync(&self) -> BoxFuture<'_, Result<(), ObjectError>> {
        Box::pin(async move { try_join_all(self.0.iter().map(|store| store.sync())).await.map(drop) })
    }

    fn delete<'a>(&'a self, key: &'a str) -> BoxFuture<'a, Result<(), ObjectError>> {
        if !key.ends_with('/') {
            return self.of(key).delete(key);
        }
        Box::pin(async move { try_join_all(self.0.iter().map(|store| store.delete(key))).await.map(drop) })
    }

    fn head<'a>(&'a self, key: &'a str) -> BoxFuture<'a, Result<ObjectMeta, ObjectError>> {
        self.of(key).head(key)
    }

    fn list<'a>(&'a self, prefix: &'a str) -> BoxStream<'a, Result<ObjectMeta, ObjectError>> {
        select_all(self.0.iter().map(|store| store.list(prefix))).boxed()
    }
}

#[cfg(test)]
mod tests {
    use futures::{TryStreamExt, executor::block_on};

    use super::*;
    use crate::mem::MemStore;

    #[test]
    fn chooses_as_other_clients_do() {
        let vectors: serde_json::Value =
            serde_json::from_str(include_str!("../../tests/data/vectors.json")).unwrap();
        let shards = vectors["shards"].as_array().unwrap();
        assert_eq!(shards.len(), 4);
        for vector in shards {
            let key = vector["key"].as_str().unwrap();
            assert_eq!(u64::from(shard(key, 3)), vector["shard_of_3"].as_u64().unwrap(), "{key}");
        }
    }

    #[test]
    fn each_key_has_one_place_and_all_are_listed() {
        let stores = [MemStore::new(), MemStore::new(), MemStore::new()];
        let sharded =
            Sharded::new(stores.iter().map(|s| Arc::new(s.clone()) as Arc<dyn ObjectStore>).collect())
                .unwrap();
        let keys: Vec<String> = (0..30).map(|n| format!("vol/{n}")).collect();
        for key in &keys {
            block_on(sharded.put(key, Bytes::from(key.clone()))).unwrap();
            assert_eq!(block_on(sharded.get(key, None)).unwrap(), key.as_bytes());
        }
        let count =
            |store: &dyn ObjectStore| block_on(store.list("vol/").try_collect::<Vec<_>>()).unwrap().len();
        let counts: Vec<_> = stores.iter().map(|store| count(store)).collect();
        assert!(counts.iter().all(|n| *n > 0), "{counts:?}");
        assert_eq!(counts.iter().sum::<usize>(), 30);
        assert_eq!(count(&sharded), 30);
        block_on(sharded.delete(&keys[7])).unwrap();
        assert_eq!(count(&sharded), 29);
        // What a dead writer left is in the bucket of its object.
        for number in 0..30 {
            let store = &stores[shard(&format!("vol/{number}"), 3) as usize];
            let left = format!("vol/.jfs.{number}.tmp.5");
            block_on(store.put(&left, Bytes::from("half"))).unwrap();
            block_on(sharded.delete(&left)).unwrap();
        }
        assert_eq!(count(&sharded), 29);
    }
}
