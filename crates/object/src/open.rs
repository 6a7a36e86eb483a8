//! From a volume's settings to its store, with every layer in its place.
//!
//! What must stay true: the order of the layers. Encryption is outermost, so that a retry sends the same bytes; a
//! wait for bandwidth does not count against the time of a try; shards are chosen by the key with its prefix.

use std::sync::Arc;

use crate::{
    config::StoreConfig,
    file::FileStore,
    layers::Prefixed,
    mem::MemStore,
    store::{ObjectError, ObjectStore},
};

/// The store that `config` describes. Talks to nobody: a wrong bucket or key shows at the first call.
///
/// Fails with [`ObjectError::Config`] if no such driver exists or the configuration cannot be right.
pub fn open(config: &StoreConfig) -> Result<Arc<dyn ObjectStore>, ObjectError> {
    let mut store: Arc<dyn ObjectStore> = match config.storage.as_str() {
        "file" => Arc::new(FileStore::new(config.bucket.clone(), config.sync)?),
        "mem" => Arc::new(MemStore::new()),
        other => {
            return Err(ObjectError::Config { store: other.to_owned(), reason: "unknown storage".into() });
        }
    };
    if !config.name.is_empty() {
        store = Arc::new(Prefixed::new(store, format!("{}/", config.name)));
    }
    Ok(store)
}
