//! Tests a bucket before `format` makes a volume there.
//!
//! What must stay true: the test leaves nothing behind, and changes no object that exists already.

use bytes::Bytes;
use futures::TryStreamExt;
use sluice_types::Rng;

use crate::store::{ObjectError, ObjectStore};

/// Prefix of test objects. Objects below it are no data.
const TEST_PREFIX: &str = "testing/";
/// Size of the test object.
const SIZE: usize = 100;

/// Puts, reads, lists and removes a test object. If only the removal is refused, it logs a warning,
/// because some stores are meant to keep everything.
///
/// Fails with the store's own error, or with [`ObjectError::Corrupt`] if it does not return the
/// bytes that were put.
pub async fn probe(store: &dyn ObjectStore) -> Result<(), ObjectError> {
    let mut rng = Rng::from_os();
    let key = format!(
        "{TEST_PREFIX}{}",
        (0..10).map(|_| char::from(b'a' + rng.below(26) as u8)).collect::<String>()
    );
    let mut body = vec![0; SIZE];
    rng.fill(&mut body);
    let wrong = |reason: &str| ObjectError::Corrupt {
        key: key.clone(),
        store: store.describe(),
        reason: format!("the store cannot hold a volume: {reason}"),
    };
    store.put(&key, Bytes::from(body.clone())).await?;
    if store.get(&key, None).await? != body {
        return Err(wrong("it gives back other bytes than it was given"));
    }
    if store.ranged() && store.get(&key, Some(10..20)).await? != body[10..20] {
        return Err(wrong("it gives back another range than was asked for"));
    }
    let listed: Vec<_> = store.list(TEST_PREFIX).try_collect().await?;
    if !listed.iter().any(|meta| meta.key == key) {
        return Err(wrong("it does not list what it holds"));
    }
    if let Err(error) = store.delete(&key).await {
        tracing::warn!(%error, "the store lets nothing be deleted: space will not be given back");
    }
    Ok(())
}

/// Checks that there is no data of another volume.
///
/// Fails with [`ObjectError::Config`] which names the first object that is neither empty nor a test
/// object.
pub async fn ensure_empty(store: &dyn ObjectStore) -> Result<(), ObjectError> {
    let mut found = store.list("");
    while let Some(meta) = found.try_next().await? {
        if meta.size > 0 && !meta.key.starts_with(TEST_PREFIX) {
            return Err(ObjectError::Config {
                store: store.describe(),
                reason: format!(
                    "{} is here already: choose another volume name or bucket, or empty it",
                    meta.key
                ),
            });
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use futures::executor::block_on;

    use super::*;
    use crate::mem::MemStore;

    #[test]
    fn leaves_nothing_behind_and_sees_what_is_there() {
        let store = MemStore::new();
        block_on(probe(&store)).unwrap();
        assert_eq!(block_on(store.list("").try_collect::<Vec<_>>()).unwrap(), []);
        block_on(ensure_empty(&store)).unwrap();
        block_on(store.put("testing/left", Bytes::from_static(b"x"))).unwrap();
        block_on(store.put("directory/", Bytes::new())).unwrap();
        block_on(ensure_empty(&store)).unwrap();
        block_on(store.put("chunks/0/0/1_0_1", Bytes::from_static(b"x"))).unwrap();
        let error = block_on(ensure_empty(&store)).unwrap_err().to_string();
        assert!(error.contains("chunks/0/0/1_0_1") && error.contains("choose another"), "{error}");
    }
}
