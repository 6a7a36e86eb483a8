//! An object store in memory whose network and disks fail on command.
//!
//! What must stay true: it forgets nothing that it acknowledged, and damages only what it is told
//! to.

use std::{
    ops::Range,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use bytes::Bytes;
use futures::{
    StreamExt, executor,
    future::{self, BoxFuture},
    stream::BoxStream,
};
use parking_lot::Mutex;
use sluice_object::{MemStore, ObjectError, ObjectMeta, ObjectStore};

/// What is wrong with the store.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Outage {
    /// Nothing.
    #[default]
    None,
    /// Every request is answered with an error, as by a 500.
    Errors,
    /// No request is answered.
    Silence,
    /// Writes and deletions are done and reported as failed; reads fail.
    LostAnswers,
    /// Errors until then; after that nothing is wrong.
    ErrorsUntil(Instant),
}

/// The store. Clones are the same one.
#[derive(Clone, Debug, Default)]
pub struct FaultyStore(Arc<Inner>);

#[derive(Debug, Default)]
struct Inner {
    objects: MemStore,
    outage: Mutex<Outage>,
    puts: AtomicU64,
    gets: AtomicU64,
    failed: AtomicU64,
}

impl FaultyStore {
    /// Breaks it, or heals it with [`Outage::None`].
    pub fn set(&self, outage: Outage) {
        *self.0.outage.lock() = outage;
    }

    /// Fails for that long from now on.
    pub fn fail_for(&self, time: Duration) {
        self.set(Outage::ErrorsUntil(Instant::now() + time));
    }

    /// Requests that failed on command.
    pub fn failed(&self) -> u64 {
        self.0.failed.load(Ordering::SeqCst)
    }

    /// Writes that arrived.
    pub fn puts(&self) -> u64 {
        self.0.puts.load(Ordering::SeqCst)
    }

    /// Reads that arrived.
    pub fn gets(&self) -> u64 {
        self.0.gets.load(Ordering::SeqCst)
    }

    /// Names of all objects.
    pub fn keys(&self) -> Vec<String> {
        executor::block_on(self.0.objects.list("").map(|meta| meta.unwrap().key).collect())
    }

    /// Changes the stored bytes of every object. Answers how many there are.
    pub fn damage(&self, change: impl Fn(&mut Vec<u8>)) -> usize {
        let keys = self.keys();
        for key in &keys {
            let mut stored = executor::block_on(self.0.objects.get(key, None)).unwrap().to_vec();
            change(&mut stored);
            executor::block_on(self.0.objects.put(key, stored.into())).unwrap();
        }
        keys.len()
    }

    fn outage(&self) -> Outage {
        let mut outage = self.0.outage.lock();
        match *outage {
            Outage::ErrorsUntil(until) if Instant::now() >= until => *outage = Outage::None,
            Outage::ErrorsUntil(_) => return Outage::Errors,
            _ => {}
        }
        *outage
    }

    fn broken(&self, action: &'static str, key: &str) -> ObjectError {
        self.0.failed.fetch_add(1, Ordering::SeqCst);
        ObjectError::Unavailable {
            action,
            key: key.into(),
            store: self.describe(),
            reason: "500 Internal Server Error".into(),
        }
    }

    /// A question: unless all is well it is not answered, or not well.
    async fn ask<T>(
        &self,
        action: &'static str,
        key: &str,
        answer: BoxFuture<'_, Result<T, ObjectError>>,
    ) -> Result<T, ObjectError> {
        match self.outage() {
            Outage::None => answer.await,
            Outage::Silence => future::pending().await,
            _ => Err(self.broken(action, key)),
        }
    }

    /// A change: it may be done and its answer lost.
    async fn change(
        &self,
        action: &'static str,
        key: &str,
        done: BoxFuture<'_, Result<(), ObjectError>>,
    ) -> Result<(), ObjectError> {
        if self.outage() == Outage::LostAnswers {
            done.await?;
            return Err(self.broken(action, key));
        }
        self.ask(action, key, done).await
    }
}

impl ObjectStore for FaultyStore {
    fn describe(&self) -> String {
        "faulty://".into()
    }

    fn ranged(&self) -> bool {
        true
    }

    fn get<'a>(
        &'a self,
        key: &'a str,
        range: Option<Range<u64>>,
    ) -> BoxFuture<'a, Result<Bytes, ObjectError>> {
        self.0.gets.fetch_add(1, Ordering::SeqCst);
        Box::pin(self.ask("read", key, self.0.objects.get(key, range)))
    }

    fn put<'a>(&'a self, key: &'a str, data: Bytes) -> BoxFuture<'a, Result<(), ObjectError>> {
        self.0.puts.fetch_add(1, Ordering::SeqCst);
        // The memory store acts when it is called, not when it is waited for.
        let done = Box::pin(async move { self.0.objects.put(key, data).await });
        Box::pin(self.change("write", key, done))
    }

    fn delete<'a>(&'a self, key: &'a str) -> BoxFuture<'a, Result<(), ObjectError>> {
        let done = Box::pin(async move { self.0.objects.delete(key).await });
        Box::pin(self.change("delete", key, done))
    }

    fn head<'a>(&'a self, key: &'a str) -> BoxFuture<'a, Result<ObjectMeta, ObjectError>> {
        Box::pin(self.ask("read", key, self.0.objects.head(key)))
    }

    fn list<'a>(&'a self, prefix: &'a str) -> BoxStream<'a, Result<ObjectMeta, ObjectError>> {
        self.0.objects.list(prefix)
    }
}
