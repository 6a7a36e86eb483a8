//! What `format` asks of a bucket before it makes a volume there.
//!
//! What must stay true: nothing is left behind, and nothing that lies there already is touched.

use bytes::Bytes;
use futures::TryStreamExt;
use sluice_types::Rng;

use crate::store::{ObjectError, ObjectStore};

/// Where trial objects go; whatever lies there is nobody's data.
const TRIALS: &str = "testing/";
/// Size of the trial object.
const SIZE: usize = 100;

/// Puts, reads, lists and removes a trial object. A store that refuses the removal alone passes
/// with a warning, since some are meant to keep everything.
///
/// Fails with the store's own error, or with [`ObjectError::Corrupt`] if it does not give back what
/// it was given.
pub async fn probe(store: &dyn ObjectStore) -> Result<(), ObjectError> {
    let mut rng = Rng::from_os();
    let key =
        format!("{TRIALS}{}", (0..10).map(|_| char::from(b'a' + rng.below(26) as u8)).collect::<String>());
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
    let listed: Vec<_> = store.list(TRIALS).try_collect().await?;
    if !listed.iter().any(|meta| meta.key == key) {
        return Err(wrong("it does not list what it holds"));
    }
    if let Err(error) = store.delete(&key).await {
        tracing::warn!(%error, "the store lets nothing be deleted: space will not be given back");
    }
    Ok(())
}

/// Makes sure that no volume's data lies here yet.
///
/// Fails with [`ObjectError::Config`] naming the first object found that is not empty and no trial.
pub async fn ensure_empty(store: &dyn ObjectStore) -> Result<(), ObjectError> {
    let mut found = store.list("");
    while let Some(meta) = found.try_next().await? {
        if meta.size > 0 && !meta.key.starts_with(TRIALS) {
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
