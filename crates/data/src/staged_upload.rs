//! Uploads staged blocks to the object store.

use std::{
    fs, io,
    sync::{Arc, Weak},
    time::{Duration, Instant},
};

use tokio::sync::Semaphore;

use crate::{
    blocks::BlockStore,
    cache::file::Damaged,
    layout::BlockKey,
    staging::{DAMAGED, REST, Staging},
};

/// How often it is looked whether the hours of uploads have begun.
const CLOCK: Duration = Duration::from_secs(30);

impl Staging {
    /// Starts to upload in the background.
    pub(crate) fn start(self: &Arc<Self>, blocks: &Arc<BlockStore>) {
        let (staging, store) = (Arc::clone(self), Arc::downgrade(blocks));
        blocks.runtime().spawn(async move { staging.dispatch(store).await });
    }

    /// Uploads one block after the other, several at once.
    async fn dispatch(self: Arc<Self>, store: Weak<BlockStore>) {
        let gate = Arc::new(Semaphore::new(self.parallel));
        loop {
            let next = {
                let mut state = self.state.lock();
                if state.stopped {
                    return;
                }
                match state.queue.front() {
                    // Whoever wants it all uploaded does not ask for the hour.
                    Some(_) if !state.hurry && !self.may_upload() => Err(Instant::now() + CLOCK),
                    Some((due, _)) if state.hurry || *due <= Instant::now() => Ok(state.queue.pop_front()),
                    Some((due, _)) => Err(*due),
                    None => Err(Instant::now() + REST),
                }
            };
            let key = match next {
                Ok(Some((_, key))) => key,
                Ok(None) => continue,
                Err(due) => {
                    let _ = tokio::time::timeout_at(due.into(), self.queued.notified()).await;
                    continue;
                }
            };
            let Ok(permit) = Arc::clone(&gate).acquire_owned().await else { return };
            let Some(blocks) = store.upgrade() else { return };
            let staging = Arc::clone(&self);
            tokio::spawn(async move {
                staging.upload(&blocks, key).await;
                drop(permit);
            });
        }
    }

    async fn upload(self: &Arc<Self>, blocks: &BlockStore, key: BlockKey) {
        let number = {
            let mut state = self.state.lock();
            let Some(staged) = state.staged.get(&key).copied() else { return };
            // A block whose sync failed is in the queue twice.
            if state.uploading.contains_key(&key) {
                return;
            }
            state.uploading.insert(key, false);
            staged.number
        };
        let done = self.upload_from(number, blocks, key).await;
        let mut state = self.state.lock();
        state.uploading.remove(&key);
        // Only now, because a thread that takes a block from the queue skips one that is being
        // uploaded.
        if !done {
            state.queue.push_back((Instant::now() + REST, key));
        }
    }

    /// Returns whether nothing is left to do.
    async fn upload_from(self: &Arc<Self>, number: usize, blocks: &BlockStore, key: BlockKey) -> bool {
        let staging = Arc::clone(self);
        let loaded = tokio::task::spawn_blocking(move || staging.load(number, key, &(0..key.size))).await;
        let data = match loaded {
            Ok(Ok(data)) => data,
            Ok(Err(Damaged::Io(error))) if error.kind() == io::ErrorKind::NotFound => {
                return blocks.account_for(self, key, false).await.is_ok();
            }
            Ok(Err(error)) => return self.give_up_on(number, key, &error),
            Err(_) => return true,
        };
        if let Err(error) = blocks.upload(key, &data).await {
            tracing::warn!(slice = key.id, block = key.index, %error, "a staged block waits for the next try");
            self.stats.staged_errors.add(1);
            return false;
        }
        self.state.lock().uploading.insert(key, true);
        // On a thread that may wait for the disk.
        let staging = Arc::clone(self);
        let _ = tokio::task::spawn_blocking(move || staging.put_away(number, key)).await;
        let left = self.leave(&mut self.state.lock(), key);
        if let Some(staged) = &left {
            self.stats.staged_delay.add_time(staged.since.elapsed());
        }
        let removed_meanwhile = left.is_none();
        if removed_meanwhile {
            blocks.forget_async(key).await;
            if let Err(error) = blocks.delete_block(key).await {
                tracing::warn!(%error, "a block deleted during its upload stays behind for gc");
            }
        }
        true
    }

    /// After the upload, the file becomes a cache file, or is removed.
    fn put_away(&self, number: usize, key: BlockKey) {
        let path = self.path(number, key);
        let kept = match &self.disk {
            Some(disk) if self.contains(key) => disk.adopt(number, key, &path),
            _ => fs::remove_file(&path),
        };
        if let Err(error) = kept
            && error.kind() != io::ErrorKind::NotFound
        {
            tracing::warn!(path = %path.display(), %error, "an uploaded staged block could not be put away");
        }
        // The close may free its space, for which no other thread is to wait.
        drop(self.open.remove(&key));
    }

    /// A staged file that cannot be uploaded is renamed, never deleted, because it may be the only
    /// copy. Returns whether nothing is left to do.
    fn give_up_on(&self, number: usize, key: BlockKey, error: &Damaged) -> bool {
        let path = self.path(number, key);
        if let Damaged::Io(error) = error {
            tracing::warn!(path = %path.display(), %error, "a staged block cannot be read and is tried again");
            return false;
        }
        let mut aside = path.clone().into_os_string();
        aside.push(DAMAGED);
        let _ = fs::rename(&path, aside);
        self.lose(key, &format!("it is damaged and set aside: {error}"));
        true
    }
}
