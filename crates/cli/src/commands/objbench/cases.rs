//! Runs each request that a volume needs once, and checks the result.
//!
//! What must stay true: a case does not rely on what another one left.

use std::io::Write;

use anyhow::{Context, Result, bail, ensure};
use bytes::Bytes;
use futures::{TryStreamExt, future::BoxFuture};
use sluice_object::{ObjectError, ObjectStore};
use sluice_types::{Clock, Interrupt, Rng, SystemClock};

/// Bytes of a large object: the largest block.
const LARGE: usize = 16 << 20;
/// Bytes of a file that stores with parts take in three.
const IN_PARTS: usize = 33 << 20;
/// Objects that are listed: more than some stores answer at once.
const LISTED: usize = 1100;
/// How far the times of a store may be from those of this machine, in seconds. Mounts leave objects
/// alone that are younger than an hour.
const MAX_SKEW: i64 = 600;

/// Tries one thing. The error says what was wrong.
type Case = for<'a> fn(&'a dyn ObjectStore) -> BoxFuture<'a, Result<()>>;

const CASES: [(&str, Case); 12] = [
    ("put an object", |store| Box::pin(put(store))),
    ("put an object again", |store| Box::pin(put_again(store))),
    ("get an object", |store| Box::pin(get(store))),
    ("get a part of an object", |store| Box::pin(get_part(store))),
    ("get a missing object", |store| Box::pin(get_missing(store))),
    ("head an object", |store| Box::pin(head(store))),
    ("delete an object", |store| Box::pin(delete(store))),
    ("delete a missing object", |store| Box::pin(delete_missing(store))),
    ("list objects", |store| Box::pin(list(store))),
    ("put an empty object", |store| Box::pin(put_empty(store))),
    ("put a large object", |store| Box::pin(put_large(store))),
    ("put a file in parts", |store| Box::pin(put_file(store))),
];

/// Tries everything. Returns the rows of the table, and whether all works.
pub(super) async fn run(store: &dyn ObjectStore, interrupt: &Interrupt) -> Result<(Vec<Vec<String>>, bool)> {
    let mut rows = vec![["TEST", "RESULT"].map(str::to_owned).to_vec()];
    let mut all = true;
    for (name, case) in CASES {
        ensure!(!interrupt.is_set(), "interrupted");
        let result = match case(store).await {
            Ok(()) => "pass".to_owned(),
            Err(error) => {
                all = false;
                format!("{error:#}")
            }
        };
        rows.push(vec![name.to_owned(), result]);
    }
    Ok((rows, all))
}

const HELLO: &[u8] = b"hello";

async fn put(store: &dyn ObjectStore) -> Result<()> {
    Ok(store.put("put", Bytes::from_static(HELLO)).await?)
}

/// As a retry does whose first answer was lost.
async fn put_again(store: &dyn ObjectStore) -> Result<()> {
    for _ in 0..2 {
        store.put("again", Bytes::from_static(HELLO)).await?;
    }
    Ok(())
}

async fn get(store: &dyn ObjectStore) -> Result<()> {
    store.put("get", Bytes::from_static(HELLO)).await?;
    same(&store.get("get", None).await?, HELLO)
}

async fn get_part(store: &dyn ObjectStore) -> Result<()> {
    store.put("part", Bytes::from_static(HELLO)).await?;
    for range in [0..1, 4..5, 2..5, 2..4, 0..5] {
        let wanted = &HELLO[range.start as usize..range.end as usize];
        let got = store.get("part", Some(range.clone())).await?;
        same(&got, wanted).with_context(|| format!("bytes {range:?}"))?;
    }
    Ok(())
}

async fn get_missing(store: &dyn ObjectStore) -> Result<()> {
    is_missing(store.get("missing", None).await)
}

async fn head(store: &dyn ObjectStore) -> Result<()> {
    store.put("head", Bytes::from_static(HELLO)).await?;
    let meta = store.head("head").await?;
    ensure!(meta.size == HELLO.len() as u64, "it is said to have {} bytes, not {}", meta.size, HELLO.len());
    let modified = meta.modified.context("its time is not told")?;
    let skew = (modified.nanos() - SystemClock.now().nanos()) / 1_000_000_000;
    ensure!(skew.abs() <= MAX_SKEW, "its time is {skew} s off the clock of this machine");
    Ok(())
}

async fn delete(store: &dyn ObjectStore) -> Result<()> {
    store.put("delete", Bytes::from_static(HELLO)).await?;
    store.delete("delete").await?;
    is_missing(store.head("delete").await)
}

async fn delete_missing(store: &dyn ObjectStore) -> Result<()> {
    Ok(store.delete("missing").await?)
}

async fn list(store: &dyn ObjectStore) -> Result<()> {
    let mut wanted: Vec<String> = (0..LISTED).map(|number| format!("list_{number}")).collect();
    for some in wanted.chunks(50) {
        let put = |key| store.put(key, Bytes::from_static(HELLO));
        let put = futures::future::join_all(some.iter().map(|key| put(key))).await;
        put.into_iter().collect::<Result<Vec<_>, _>>()?;
    }
    store.put("other", Bytes::from_static(HELLO)).await?;
    let found: Vec<_> = store.list("list_").try_collect().await?;
    ensure!(found.iter().all(|meta| meta.size == HELLO.len() as u64), "sizes are wrong");
    let mut found: Vec<String> = found.into_iter().map(|meta| meta.key).collect();
    found.sort_unstable();
    wanted.sort_unstable();
    ensure!(found == wanted, "{} objects are listed, of {}", found.len(), wanted.len());
    Ok(())
}

async fn put_empty(store: &dyn ObjectStore) -> Result<()> {
    store.put("empty", Bytes::new()).await?;
    same(&store.get("empty", None).await?, b"")
}

async fn put_large(store: &dyn ObjectStore) -> Result<()> {
    let body = random(LARGE);
    store.put("large", body.clone()).await?;
    same(&store.get("large", None).await?, &body)
}

async fn put_file(store: &dyn ObjectStore) -> Result<()> {
    let body = random(IN_PARTS);
    let mut file = tempfile::NamedTempFile::new().context("no temporary file")?;
    file.write_all(&body).context("the temporary file cannot be written")?;
    store.put_file("file", file.path()).await?;
    same(&store.get("file", None).await?, &body)
}

fn random(len: usize) -> Bytes {
    let mut body = vec![0; len];
    Rng::from_os().fill(&mut body);
    body.into()
}

fn same(got: &[u8], wanted: &[u8]) -> Result<()> {
    ensure!(got.len() == wanted.len(), "{} bytes came back, of {}", got.len(), wanted.len());
    ensure!(got == wanted, "other bytes came back");
    Ok(())
}

fn is_missing<T>(result: Result<T, ObjectError>) -> Result<()> {
    match result {
        Err(ObjectError::NotFound { .. }) => Ok(()),
        Err(error) => bail!("another error than that it does not exist: {error}"),
        Ok(_) => bail!("it is said to exist"),
    }
}
