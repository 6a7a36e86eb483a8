//! Stores a block: stages it, or puts it into the object store.

use std::{pin::pin, sync::Arc, time::Instant};

use bytes::Bytes;
use sluice_object::{Compression, ObjectError};

use super::{BlockStore, PAUSES};
use crate::{block_on::block_on, layout::BlockKey, request_limit::until};

impl BlockStore {
    /// Stores a new block: staged locally if the mount writes back, else in the object store.
    /// Blocks until `gone` returns that no caller waits any more. Must not be called from the
    /// runtime's own threads.
    pub(crate) fn write(
        &self,
        key: BlockKey,
        data: &Bytes,
        gone: &mut dyn FnMut() -> bool,
    ) -> Option<Result<(), ObjectError>> {
        match &self.staging {
            Some(staging) if staging.stage(key, data) => Some(Ok(())),
            _ => block_on(&self.runtime, until(pin!(self.put(key, data)), gone)),
        }
    }

    /// [`Self::write`] for the runtime's threads.
    pub(crate) async fn write_async(&self, key: BlockKey, data: &Bytes) -> Result<(), ObjectError> {
        if let Some(staging) = &self.staging {
            let (staging, data) = (Arc::clone(staging), data.clone());
            if matches!(tokio::task::spawn_blocking(move || staging.stage(key, &data)).await, Ok(true)) {
                return Ok(());
            }
        }
        self.put(key, data).await
    }

    /// Puts a block into the object store, and into the caches if that is useful.
    pub(crate) async fn put(&self, key: BlockKey, data: &Bytes) -> Result<(), ObjectError> {
        self.upload(key, data).await?;
        if let Some(peers) = &self.peers {
            peers.offer(key, data);
        }
        match &self.disk {
            // The kernel has what was written in its page cache.
            Some(_) if key.size < self.layout.block_size || self.large_writes => self.offer(key, data),
            Some(_) => {}
            None => self.remember(key, data, 0),
        }
        Ok(())
    }

    /// Puts a block into the object store, with retries.
    pub(crate) async fn upload(&self, key: BlockKey, data: &Bytes) -> Result<(), ObjectError> {
        let name = self.layout.name(key);
        let stored =
            self.compression.encode(data.clone()).map_err(|error| self.damaged(key, &error.to_string()))?;
        // A copy, unless blocks are stored as they are.
        let copied = if self.compression == Compression::None { 0 } else { stored.len() };
        let _held = self.budget.charge(copied as u64);
        let mut failing = None;
        let mut pause = PAUSES.start;
        let _uploading = self.stats.uploading.one();
        let result = loop {
            let permit = match self.permit(&self.uploads, "write", key).await {
                Ok(permit) => permit,
                Err(error) => break Err(error),
            };
            let started = Instant::now();
            let put = self.store.put(&name, stored.clone()).await;
            drop(permit);
            self.stats.puts.add(1);
            self.stats.times.put.observe(started.elapsed());
            match put {
                Ok(()) => {
                    self.uploads.served();
                    break Ok(());
                }
                Err(error) => {
                    self.stats.object_errors.add(1);
                    // The store may refuse access for a while, when keys are rotated.
                    let passing =
                        matches!(error, ObjectError::Unavailable { .. } | ObjectError::Denied { .. });
                    // The store may have retried itself, but not after it was denied access.
                    let late = matches!(error, ObjectError::Unavailable { .. })
                        && started.elapsed() > self.give_up / 2;
                    // Until the first failure, it waited for others, or for a limit of bandwidth.
                    let failing = *failing.get_or_insert_with(Instant::now);
                    if !passing || late || failing.elapsed() + pause > self.give_up {
                        break Err(error);
                    }
                    tracing::warn!(%error, "a block could not be uploaded and is tried again");
                }
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(PAUSES.end);
        };
        if result.is_ok() {
            self.stats.put_bytes.add(stored.len() as u64);
        }
        result
    }
}
