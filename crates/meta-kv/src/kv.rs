//! The trait of a key-value store that can hold a volume.
//!
//! The code for the format (keys, values, drafts of commits, scans) is above this trait, once for
//! all stores. Below it is how a store reads a snapshot, and commits changes that depend on those
//! reads. What must stay true: a commit happens only if none of its keys was changed since its
//! snapshot.

use std::{iter::Peekable, ops::Deref, sync::Arc, time::Duration};

use futures::{StreamExt as _, stream};
use parking_lot::Mutex;
use sluice_meta::{
    engine::{ChangeLog, EngineError, Label, Limits, Watch},
    schema::Notice,
};
use tokio::{
    runtime::{Builder, Runtime},
    time::timeout,
};

use crate::{
    keys::{Keys, after},
    stored::{Pair, Raw, Result, Span},
};

/// Longest time that one call of the engine takes.
pub(crate) const DEADLINE: Duration = Duration::from_secs(15);

/// Most rows of one request. For each request, etcd copies its newest changes, so the pages are
/// large.
pub(crate) const PAGE: usize = 20_000;

/// Most bytes of one commit of a load, if it has several pairs. By default, etcd refuses requests
/// of more than 1.5 MiB.
const LOADED_BYTES: usize = 512 << 10;

/// The change of a key. The key was read before, unless it must be new.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// It has this value.
    Put(Vec<u8>),
    /// As [`Self::Put`], and the commit is refused if the key exists.
    Insert(Vec<u8>),
    /// It is deleted.
    Delete,
    /// It stays as it was read: with this value, or absent.
    Hold(Option<Vec<u8>>),
}

/// The changes of one commit.
#[derive(Debug, Default)]
pub struct Changes {
    /// The changed keys, each once. The first is the primary key: other clients use it to find out
    /// whether the commit happened.
    pub keys: Vec<(Raw, Change)>,
    /// Ranges that are deleted, except the keys in `keys`; only for a store with [`Kv::CLEARS`].
    pub cleared: Vec<Span>,
    /// Ranges in which no key may be new since they were read. Between Sluice clients, a key in
    /// `keys` guarantees this already. A store that can compare ranges should also check these.
    pub spans: Vec<Span>,
    /// The notice for other clients after the commit, for a store that has messages.
    pub notice: Option<Notice>,
    /// Lines for the change log, for a store that keeps one.
    pub lines: Vec<String>,
}

/// An ordered store of keys and values.
///
/// Each call ends by itself or at the caller's deadline, except [`Self::commit`], which limits its
/// own time.
pub trait Kv: Sized + Send + Sync + 'static {
    /// A snapshot, with the state of reads that a commit needs.
    type Moment: Send + Sync;

    /// Scheme of its URLs.
    const NAME: &'static str;

    /// Whether a commit can delete ranges without a read of their keys.
    const CLEARS: bool = false;

    /// Why the store drops old versions, and what to do about it.
    const KEEPS: &'static str;

    /// Whether an error says that the store has dropped the versions of a snapshot.
    fn is_given_up(reason: &str) -> bool;

    /// The place of the volume.
    fn volume(&self) -> &Volume;

    /// The limits of the store.
    fn limits(&self) -> Limits;

    /// A snapshot of the store as it is now.
    fn begin(&self) -> impl Future<Output = Result<Self::Moment>>;

    /// The same, for any number of reads without a commit.
    fn begin_reading(&self) -> impl Future<Output = Result<Self::Moment>> {
        self.begin()
    }

    /// Values of the keys that have one.
    fn get(&self, at: &Self::Moment, keys: &[Raw]) -> impl Future<Output = Result<Vec<Pair>>>;

    /// The first `limit` rows of a range, in order. The range must not be empty, and `limit` is
    /// from 1 to `PAGE`. Without `values`, the values need not be there.
    fn page(
        &self,
        at: &Self::Moment,
        span: &Span,
        limit: usize,
        values: bool,
    ) -> impl Future<Output = Result<Vec<Pair>>>;

    /// As [`Self::page`], for any range and any `limit`.
    fn range(
        &self,
        at: &Self::Moment,
        span: &Span,
        limit: usize,
        values: bool,
    ) -> impl Future<Output = Result<Vec<Pair>>> {
        async move {
            let mut rest = span.clone();
            let mut all = Vec::new();
            while rest.from < rest.to && all.len() < limit {
                let ask = (limit - all.len()).min(PAGE);
                let page = self.page(at, &rest, ask, values).await?;
                match page.last() {
                    Some((last, _)) if page.len() == ask => rest.from = after(last),
                    _ => rest.from.clone_from(&rest.to),
                }
                all.extend(page);
            }
            Ok(all)
        }
    }

    /// Commits all or nothing. Returns false if another client changed a key, or a key that must be
    /// new exists. [`EngineError::Indeterminate`] if the result is unknown.
    fn commit(&self, at: Self::Moment, changes: Changes) -> impl Future<Output = Result<bool>>;

    /// Stores pairs that are sorted by their keys, in any number of commits. No client uses the
    /// volume yet, so nothing is compared.
    fn load(&self, pairs: Vec<Pair>) -> impl Future<Output = Result<()>>;

    /// The change log, for a store that keeps one.
    fn change_log(&self) -> Option<&dyn ChangeLog> {
        None
    }

    /// Called after a commit with a notice; for a store without messages.
    fn notify(self: &Arc<Self>) {}

    /// A listener for the notices of other clients.
    fn watch(self: &Arc<Self>) -> Result<Box<dyn Watch>>;
}

/// The place of a volume: its keys, and its name for messages.
#[derive(Clone, Debug)]
pub struct Volume {
    pub(crate) keys: Keys,
    /// Name and address for messages.
    pub(crate) label: Label,
}

impl Deref for Volume {
    type Target = Label;

    fn deref(&self) -> &Label {
        &self.label
    }
}

impl Volume {
    pub(crate) fn damaged(&self, key: &[u8], reason: &str) -> EngineError {
        self.corrupt(self.keys.shown(key), reason)
    }
}

/// The runtime of all stores of this process, because their clients run tasks between calls. It has
/// two threads, so that one can work while the other decodes. A forked child has none of them, and
/// gets a runtime of its own.
fn runtime() -> Result<&'static Runtime> {
    static CURRENT: Mutex<Option<(u32, &'static Runtime)>> = Mutex::new(None);
    let mut current = CURRENT.lock();
    let process = std::process::id();
    if let Some((owner, runtime)) = *current
        && owner == process
    {
        return Ok(runtime);
    }
    let made = Builder::new_multi_thread().worker_threads(2).thread_name("kv").enable_all().build();
    let refused = "the system gives no threads; raise its limit of processes";
    let runtime: &'static Runtime =
        Box::leak(Box::new(made.map_err(|_| Label("key-value store".into()).refused(refused))?));
    *current = Some((process, runtime));
    Ok(runtime)
}

/// Runs a call that limits its own time.
pub(crate) fn run<T>(call: impl Future<Output = Result<T>>) -> Result<T> {
    runtime()?.block_on(call)
}

/// A call that commits nothing, until its end or the deadline.
pub(crate) async fn within<T>(volume: &Volume, call: impl Future<Output = Result<T>>) -> Result<T> {
    match timeout(DEADLINE, call).await {
        Ok(ended) => ended,
        Err(_) => Err(volume.unavailable(format!("no answer within {} s", DEADLINE.as_secs()))),
    }
}

/// Runs a call that commits nothing.
pub(crate) fn look<T>(volume: &Volume, call: impl Future<Output = Result<T>>) -> Result<T> {
    run(within(volume, call))
}

/// Removes the first keys of a range, `most` at most, and takes them off the range. Answers whether
/// nobody changed them meanwhile; `None` if there were none.
pub(crate) async fn remove_some<K: Kv>(kv: &K, span: &mut Span, most: usize) -> Result<Option<bool>> {
    let at = kv.begin().await?;
    let found = within(kv.volume(), kv.range(&at, span, most, false)).await?;
    let Some((last, _)) = found.last() else { return Ok(None) };
    span.from = after(last);
    let keys = found.into_iter().map(|(key, _)| (key, Change::Delete)).collect();
    kv.commit(at, Changes { keys, ..Changes::default() }).await.map(Some)
}

/// Stores pairs by commits of `most` pairs or fewer, `at_once` of them at a time.
pub(crate) async fn load_in_parts<K: Kv>(
    kv: &K,
    pairs: Vec<Pair>,
    most: usize,
    at_once: usize,
) -> Result<()> {
    let mut rest = pairs.into_iter().peekable();
    let commits = std::iter::from_fn(|| rest.peek().is_some().then(|| next_part(&mut rest, most)));
    let commit = async |keys| kv.commit(kv.begin().await?, Changes { keys, ..Changes::default() }).await;
    // All end before an error is returned: what is repeated then would conflict with them.
    let ended: Vec<Result<bool>> =
        stream::iter(commits.map(commit)).buffer_unordered(at_once).collect().await;
    let done: Vec<bool> = ended.into_iter().collect::<Result<_>>()?;
    if done.contains(&false) { Err(EngineError::Conflict(Vec::new())) } else { Ok(()) }
}

/// Takes the pairs of one commit of a load, at least one.
fn next_part(rest: &mut Peekable<impl Iterator<Item = Pair>>, most: usize) -> Vec<(Raw, Change)> {
    let (mut part, mut bytes) = (Vec::new(), 0);
    while part.len() < most
        && let Some((key, value)) = rest.next_if(|(key, value)| {
            bytes += key.len() + value.len();
            part.is_empty() || bytes <= LOADED_BYTES
        })
    {
        part.push((key, Change::Put(value)));
    }
    part
}

/// Runs something in the background.
pub(crate) fn spawn(task: impl Future<Output = ()> + Send + 'static) {
    if let Ok(runtime) = runtime() {
        drop(runtime.spawn(task));
    }
}
