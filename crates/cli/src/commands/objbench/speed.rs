//! Measures the speed of an object store: sends each request many times.
//!
//! What must stay true: what is read is compared with what was stored.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use anyhow::{Result, ensure};
use bytes::{Bytes, BytesMut};
use futures::{StreamExt, TryStreamExt, future::BoxFuture, stream};
use sluice_object::ObjectStore;
use sluice_types::{Interrupt, Rng};

use crate::{progress::Progress, sizes, table};

const MIB: f64 = (1 << 20) as f64;
/// Bytes of an object that hold its number, so that no two objects are alike.
const NUMBER: usize = 8;
/// What stands in a row instead of figures.
const FAILED: &str = "failed";

/// What is measured.
pub(super) struct Speed {
    pub(super) block_size: u64,
    pub(super) blocks: u64,
    pub(super) small_size: u64,
    pub(super) smalls: u64,
    /// Requests at once.
    pub(super) threads: usize,
}

/// Objects of one size.
#[derive(Clone)]
struct Objects {
    kind: &'static str,
    count: u64,
    body: Bytes,
}

/// What requests took: all of them together, and each.
struct Taken {
    time: Duration,
    each: Vec<Duration>,
}

impl Objects {
    fn new(kind: &'static str, count: u64, size: u64) -> Self {
        let mut body = vec![0; size as usize];
        Rng::from_os().fill(&mut body);
        Self { kind, count, body: body.into() }
    }

    fn key(&self, number: u64) -> String {
        format!("{}_{number}", self.kind)
    }

    fn body(&self, number: u64) -> Bytes {
        let mut body = BytesMut::from(&self.body[..]);
        let head = NUMBER.min(body.len());
        body[..head].copy_from_slice(&number.to_le_bytes()[..head]);
        body.freeze()
    }

    fn check(&self, number: u64, got: &[u8]) -> Result<()> {
        let head = NUMBER.min(self.body.len());
        let same = got.len() == self.body.len()
            && got[..head] == number.to_le_bytes()[..head]
            && got[head..] == self.body[head..];
        ensure!(same, "{} does not have the bytes that were stored", self.key(number));
        Ok(())
    }
}

impl Speed {
    /// Measures. Returns the rows of the table.
    pub(super) async fn run(
        &self,
        store: &Arc<dyn ObjectStore>,
        interrupt: &Interrupt,
    ) -> Result<Vec<Vec<String>>> {
        let large = Objects::new("large", self.blocks, self.block_size);
        let small = Objects::new("small", self.smalls, self.small_size);
        let all = [&large, &small].map(Clone::clone);
        let count = self.blocks + self.smalls;
        let name = move |number: u64| {
            let [large, small] = &all;
            if number < large.count { large.key(number) } else { small.key(number - large.count) }
        };
        let measure = Measure { store, interrupt, threads: self.threads };
        let mib =
            |taken: &Taken| self.blocks as f64 * self.block_size as f64 / MIB / taken.time.as_secs_f64();
        let objects = |taken: &Taken| taken.each.len() as f64 / taken.time.as_secs_f64();

        let mut rows = vec![["ITEM", "VALUE", "MEAN", "MEDIAN", "99 %"].map(str::to_owned).to_vec()];
        let mut add = |what: &'static str, taken: Result<Taken>, value: &dyn Fn(&Taken) -> f64, unit| {
            if let Err(error) = &taken
                && !interrupt.is_set()
            {
                errln!("sluice: {what}: {error:#}");
            }
            rows.push(row(what, taken.ok(), value, unit));
        };
        let (of, key) = (large.clone(), name.clone());
        add("upload objects", measure.puts("upload objects", of).await, &mib, "MiB/s");
        let of = large.clone();
        add("download objects", measure.gets("download objects", of).await, &mib, "MiB/s");
        let of = small.clone();
        add("put small objects", measure.puts("put small objects", of).await, &objects, "objects/s");
        let of = small.clone();
        add("get small objects", measure.gets("get small objects", of).await, &objects, "objects/s");
        let listed = |taken: &Taken| objects(taken) * count as f64;
        let lists = self.threads as u64;
        let list = move |store: Arc<dyn ObjectStore>, _| -> BoxFuture<'static, Result<()>> {
            Box::pin(async move {
                let found = store.list("").try_fold(0, |found, _| async move { Ok(found + 1) }).await?;
                ensure!(found >= count, "{found} objects are listed, of {count}");
                Ok(())
            })
        };
        add("list objects", measure.each("list objects", lists, list).await, &listed, "objects/s");
        let head = move |store: Arc<dyn ObjectStore>, number| -> BoxFuture<'static, Result<()>> {
            let key = key(number);
            Box::pin(async move { Ok(store.head(&key).await.map(drop)?) })
        };
        add("head objects", measure.each("head objects", count, head).await, &objects, "objects/s");
        let delete = move |store: Arc<dyn ObjectStore>, number| -> BoxFuture<'static, Result<()>> {
            let key = name(number);
            Box::pin(async move { Ok(store.delete(&key).await?) })
        };
        add("delete objects", measure.each("delete objects", count, delete).await, &objects, "objects/s");

        ensure!(!interrupt.is_set(), "interrupted");
        Ok(rows)
    }

    /// Prints what was measured. Returns whether everything worked.
    pub(super) fn print(&self, rows: &[Vec<String>]) -> bool {
        outln!(
            "{} large objects of {}, {} small ones of {}, {} requests at once; times of one request",
            self.blocks,
            sizes::human(self.block_size),
            self.smalls,
            sizes::human(self.small_size),
            self.threads
        );
        table::print(rows, &[0]);
        rows.iter().all(|row| row.last().is_some_and(|cell| cell != FAILED))
    }
}

/// How requests are sent.
struct Measure<'a> {
    store: &'a Arc<dyn ObjectStore>,
    interrupt: &'a Interrupt,
    threads: usize,
}

impl Measure<'_> {
    async fn puts(&self, what: &'static str, objects: Objects) -> Result<Taken> {
        self.each(what, objects.count, move |store, number| {
            let (key, body) = (objects.key(number), objects.body(number));
            Box::pin(async move { Ok(store.put(&key, body).await?) })
        })
        .await
    }

    async fn gets(&self, what: &'static str, objects: Objects) -> Result<Taken> {
        self.each(what, objects.count, move |store, number| {
            let objects = objects.clone();
            Box::pin(async move {
                let got = store.get(&objects.key(number), None).await?;
                objects.check(number, &got)
            })
        })
        .await
    }

    /// Sends `count` requests, some at once. Ends with the first error.
    async fn each(
        &self,
        what: &'static str,
        count: u64,
        request: impl Fn(Arc<dyn ObjectStore>, u64) -> BoxFuture<'static, Result<()>>,
    ) -> Result<Taken> {
        ensure!(!self.interrupt.is_set(), "interrupted");
        let request = &request;
        let progress = Progress::new(what, Some(count));
        let (begin, failed) = (Instant::now(), AtomicBool::new(false));
        let one = |number| {
            let (failed, progress) = (&failed, &progress);
            async move {
                let request = request(Arc::clone(self.store), number);
                // On a thread of its own, if one is free.
                let timed = tokio::spawn(async move {
                    let begin = Instant::now();
                    request.await.map(|()| begin.elapsed())
                });
                let taken = timed.await?;
                failed.fetch_or(taken.is_err(), Ordering::Relaxed);
                progress.add(1);
                taken
            }
        };
        let go_on = |_: &u64| !failed.load(Ordering::Relaxed) && !self.interrupt.is_set();
        let requests = stream::iter((0..count).take_while(go_on)).map(one);
        // None is dropped before its end: what it stores would appear after all was removed.
        let all: Vec<_> = requests.buffer_unordered(self.threads).collect().await;
        let time = begin.elapsed();
        progress.finish();
        ensure!(!self.interrupt.is_set(), "interrupted");
        Ok(Taken { time, each: all.into_iter().collect::<Result<_>>()? })
    }
}

/// A line of the table.
fn row(what: &str, taken: Option<Taken>, value: &dyn Fn(&Taken) -> f64, unit: &str) -> Vec<String> {
    let Some(mut taken) = taken else {
        return [what, FAILED, FAILED, FAILED, FAILED].map(str::to_owned).to_vec();
    };
    taken.each.sort_unstable();
    let ms = |time: Duration| format!("{:.3} ms", time.as_secs_f64() * 1000.0);
    let at = |share: usize| taken.each[(taken.each.len() * share / 100).min(taken.each.len() - 1)];
    let mean = taken.each.iter().sum::<Duration>() / taken.each.len() as u32;
    vec![what.to_owned(), format!("{:.2} {unit}", value(&taken)), ms(mean), ms(at(50)), ms(at(99))]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_of_another_object_are_noticed() {
        for size in [1, 8, 100] {
            let objects = Objects::new("large", 3, size);
            let body = objects.body(1);
            objects.check(1, &body).unwrap();
            assert!(objects.check(2, &body).is_err());
            assert!(objects.check(1, &body[1..]).is_err());
        }
    }

    #[test]
    fn a_row_tells_the_rate_and_the_times() {
        let each = (1..=100).map(Duration::from_millis).collect();
        let taken = Taken { time: Duration::from_secs(2), each };
        let value = |taken: &Taken| taken.each.len() as f64 / taken.time.as_secs_f64();
        assert_eq!(
            row("put", Some(taken), &value, "objects/s"),
            ["put", "50.00 objects/s", "50.500 ms", "51.000 ms", "100.000 ms"]
        );
        assert_eq!(row("put", None, &value, "objects/s")[1], FAILED);
    }
}
