//! What a store of keys and values must do for a volume to live in it.
//!
//! Everything the format says (keys, values, drafts of commits, scans) is written once above this
//! trait; below it is how a store reads at one moment and commits what was decided by what was read
//! then. What must stay true: a commit happens only if no key that it names was changed since its
//! moment.

use std::{
    sync::{Arc, OnceLock},
    time::Duration,
};

use sluice_meta::{
    engine::{EngineError, Limits, Watch},
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

/// What becomes of a key. Whatever it is, the key has been looked at, unless it is to be new.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// It has this value.
    Put(Vec<u8>),
    /// As [`Self::Put`], and the commit is refused if the key exists.
    Insert(Vec<u8>),
    /// It is gone.
    Delete,
    /// It stays as it was read: with this value, or absent.
    Hold(Option<Vec<u8>>),
}

/// What one commit changes.
#[derive(Debug, Default)]
pub struct Changes {
    /// Each key once; the first is the one by which others find out whether the commit happened.
    pub keys: Vec<(Raw, Change)>,
    /// Ranges that are emptied, but for what `keys` says; only for a store that has [`Kv::CLEARS`].
    pub cleared: Vec<Span>,
    /// Ranges in which no key must have come up since they were read. Some key of `keys` says the
    /// same of what Sluice itself does; a store that can should look at these too.
    pub spans: Vec<Span>,
    /// What the others are told once it is committed, for a store that has messages.
    pub notice: Option<Notice>,
}

/// An ordered store of keys and values.
///
/// Each call ends by itself or is ended by the caller's deadline, but for [`Self::commit`], which
/// sees to its end.
pub trait Kv: Sized + Send + Sync + 'static {
    /// A moment that is read at, with what a commit must know of what was read.
    type Moment: Send + Sync;

    /// Scheme of its URLs.
    const NAME: &'static str;

    /// Most rows of one request.
    const PAGE: usize;

    /// Whether a commit empties ranges without a look at what is in them.
    const CLEARS: bool = false;

    /// What makes it give up a moment, and what to do about it.
    const KEEPS: &'static str;

    /// Whether an error says that it has given up a moment.
    fn is_given_up(reason: &str) -> bool;

    /// Where the volume lies.
    fn volume(&self) -> &Volume;

    /// What it can take.
    fn limits(&self) -> Limits;

    /// The present.
    fn begin(&self) -> impl Future<Output = Result<Self::Moment>>;

    /// The present, for any number of reads and no commit.
    fn begin_reading(&self) -> impl Future<Output = Result<Self::Moment>> {
        self.begin()
    }

    /// Values of the keys that have one.
    fn get(&self, at: &Self::Moment, keys: &[Raw]) -> impl Future<Output = Result<Vec<Pair>>>;

    /// The first rows of a range that is not empty, in order: `limit` of them, which is from 1 to
    /// [`Self::PAGE`], or all. Without values, these are empty.
    fn page(
        &self,
        at: &Self::Moment,
        span: &Span,
        limit: usize,
        values: bool,
    ) -> impl Future<Output = Result<Vec<Pair>>>;

    /// As [`Self::page`], of any range and without a limit of its own.
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
                let ask = (limit - all.len()).min(Self::PAGE);
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

    /// Commits all of it or nothing: whether it happened, or others were faster, or a key that was
    /// to be new exists. [`EngineError::Indeterminate`] if that cannot be told.
    fn commit(&self, at: Self::Moment, changes: Changes) -> impl Future<Output = Result<bool>>;

    /// Something was committed that tells something; for a store without messages.
    fn ring(self: &Arc<Self>) {}

    /// A listener for what others tell.
    fn watch(self: &Arc<Self>) -> Result<Box<dyn Watch>>;
}

/// Where a volume lies: how its keys are spelled, and what it is called.
#[derive(Clone, Debug)]
pub struct Volume {
    pub(crate) keys: Keys,
    /// Name and address for messages.
    pub(crate) label: Arc<str>,
}

impl Volume {
    pub(crate) fn unavailable(&self, reason: impl Into<String>) -> EngineError {
        EngineError::Unavailable { engine: self.label.to_string(), reason: reason.into() }
    }

    pub(crate) fn indeterminate(&self, reason: impl Into<String>) -> EngineError {
        EngineError::Indeterminate { engine: self.label.to_string(), reason: reason.into() }
    }

    pub(crate) fn refused(&self, reason: impl Into<String>) -> EngineError {
        EngineError::Refused { engine: self.label.to_string(), reason: reason.into() }
    }

    pub(crate) fn corrupt(&self, key: &[u8], reason: &str) -> EngineError {
        EngineError::Corrupt {
            engine: self.label.to_string(),
            record: self.keys.shown(key),
            reason: reason.into(),
        }
    }
}

/// The runtime of all stores of this process: their clients work on tasks of their own between
/// calls. Two threads: one keeps the other from waiting while it decodes.
fn runtime() -> Result<&'static Runtime> {
    static RUNTIME: OnceLock<Option<Runtime>> = OnceLock::new();
    let made = RUNTIME.get_or_init(|| {
        let mut builder = Builder::new_multi_thread();
        builder.worker_threads(2).thread_name("kv").enable_all().build().ok()
    });
    made.as_ref().ok_or_else(|| EngineError::Refused {
        engine: "key-value store".into(),
        reason: "the system gives no threads; raise its limit of processes".into(),
    })
}

/// Runs a call that sees to its end itself.
pub(crate) fn run<T>(call: impl Future<Output = Result<T>>) -> Result<T> {
    runtime()?.block_on(call)
}

/// A call that commits nothing, to its end or to the deadline.
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

/// Runs something in the background.
pub(crate) fn spawn(task: impl Future<Output = ()> + Send + 'static) {
    if let Ok(runtime) = runtime() {
        drop(runtime.spawn(task));
    }
}
