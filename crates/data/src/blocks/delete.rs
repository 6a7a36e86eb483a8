//! Deletes blocks.
//!
//! What must stay true: a block leaves the caches and the staging before the object store, so that
//! nothing stores it again.

use std::time::Instant;

use sluice_object::ObjectError;

use super::BlockStore;
use crate::layout::BlockKey;

impl BlockStore {
    /// Deletes all blocks of a slice, from the caches too.
    pub(crate) async fn delete_slice(&self, id: u64, size: u32) -> Result<(), ObjectError> {
        for key in self.layout.blocks(id, size) {
            self.forget_async(key).await;
            if let Some(staging) = self.staging.clone() {
                let _ = tokio::task::spawn_blocking(move || staging.remove(key)).await;
            }
            self.delete_block(key).await?;
        }
        Ok(())
    }

    /// Deletes a block from the object store.
    pub(crate) async fn delete_block(&self, key: BlockKey) -> Result<(), ObjectError> {
        let _permit = self.permit(&self.deletes, "delete", key).await?;
        self.stats.deletes.add(1);
        let started = Instant::now();
        let deleted = self.store.delete(&self.layout.name(key)).await;
        self.stats.times.delete.observe(started.elapsed());
        match &deleted {
            Ok(()) => self.deletes.served(),
            Err(_) => self.stats.object_errors.add(1),
        }
        deleted
    }
}
