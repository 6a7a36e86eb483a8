//! The files that this client has open, with their known attributes. If opens may be answered
//! without the engine, attributes of other files are kept, too.
//!
//! What must stay true: attributes that were requested before a change by this client never replace
//! those that the change produced. Otherwise a file would look shorter than it is, and reads would
//! lose bytes.

use std::{
    cell::Cell,
    sync::{
        Arc, Weak,
        atomic::{AtomicBool, AtomicI64, AtomicU32, Ordering},
    },
    time::{Duration, Instant},
};

use parking_lot::{Mutex, MutexGuard, RwLockReadGuard, RwLockWriteGuard};
use rustc_hash::FxHashMap;
use sluice_meta::Interrupt;
use sluice_types::{Attr, FsError, FsResult, Ino, SharedLock, Time, wait};

use crate::{handle_locks::HandleLocks, next_commit::NextCommit};

/// Files that are not open whose attributes are kept.
const MAX_CLOSED: usize = 1 << 16;
/// How often a caller that waits for the content of a file checks whether it was interrupted.
const INTERRUPT_CHECK: Duration = Duration::from_millis(50);
/// How long after an interrupt one that changes the content only in the metadata waits, at most.
const INTERRUPT_DELAY: Duration = Duration::from_secs(3);

/// All open files.
#[derive(Default)]
pub(super) struct OpenFiles {
    files: Mutex<Files>,
    /// Whether attributes of files that are not open are kept.
    keeps_closed: AtomicBool,
}

#[derive(Default)]
struct Files {
    open: FxHashMap<Ino, Slot>,
    /// Attributes of files that are not open, and when they were learned.
    closed: FxHashMap<Ino, (Attr, Instant)>,
}

impl Files {
    fn keep_closed(&mut self, ino: Ino, attr: Attr, at: Instant) {
        if self.closed.len() >= MAX_CLOSED {
            self.closed.clear();
        }
        self.closed.insert(ino, (attr, at));
    }
}

struct Slot {
    file: Arc<OpenFile>,
    handles: u32,
    unlinked: bool,
}

/// A file that this client has open, with any number of handles.
pub(crate) struct OpenFile {
    pub(crate) ino: Ino,
    /// Taken shared by writes, and exclusively by operations that change the content only in the
    /// metadata.
    content_lock: SharedLock,
    /// Held while data is appended by [`Vfs::append`](crate::Vfs::append).
    pub(crate) append_lock: Mutex<()>,
    /// Held while an operation changes the attributes, so that results are cached in the order of
    /// the changes.
    change_lock: Mutex<()>,
    state: Mutex<State>,
    /// A change of its attributes that the last commit of its data takes along.
    pub(crate) next_commit: NextCommit,
    /// Owners of POSIX locks, each with the handles through which it locked.
    pub(crate) plocks: Mutex<FxHashMap<u64, Vec<u64>>>,
    /// Locks of each handle that ever held one.
    locked: Mutex<Vec<Weak<HandleLocks>>>,
    /// Data written under lost locks is discarded, for losses up to this fence count.
    discarded: AtomicI64,
    /// Handles through which the kernel executes the file.
    pub(crate) running: AtomicU32,
}

struct State {
    attr: Option<(Attr, Instant)>,
    /// Without `attr`: what the last change here left, which may not be the newest.
    own: Option<Attr>,
    /// The number of the last change here, but for changes of names, or of the last request of the
    /// attributes, whichever is later.
    since: u64,
    /// What was requested before this is older than what is known; between this and `since` nobody
    /// knows. The number at which that change began, or that of the request.
    newer_than: u64,
    /// What the last change of names here left, and its number.
    names: Option<(Names, u64)>,
    /// When another client's change was announced last.
    changed_elsewhere: u64,
    /// When the application wrote last.
    written: Time,
}

/// What a change of names changes of a file.
#[derive(Clone, Copy)]
struct Names {
    nlink: u32,
    parent: Ino,
    ctime: Time,
}

impl Names {
    fn of(attr: &Attr) -> Self {
        Self { nlink: attr.nlink, parent: attr.parent, ctime: attr.ctime }
    }

    /// Attributes from before the change, as it left them.
    fn put_on(self, attr: Attr) -> Attr {
        Attr { nlink: self.nlink, parent: self.parent, ctime: attr.ctime.max(self.ctime), ..attr }
    }
}

impl State {
    /// What the last change of names here left, if it came after number `then`.
    fn names_since(&self, then: u64) -> Option<Names> {
        self.names.filter(|(_, at)| *at > then).map(|(names, _)| names)
    }

    /// Sets what a change or a request from `begun` to `at` left.
    fn set(&mut self, attr: Option<Attr>, begun: u64, at: u64) {
        self.attr = attr.map(|attr| (attr, wait::now()));
        self.own = None;
        self.since = self.since.max(at);
        self.newer_than = begun;
    }
}

/// The state of a file after one of its handles was closed.
pub(crate) struct AfterClose {
    pub(crate) last: bool,
    pub(crate) unlinked: bool,
}

impl OpenFiles {
    /// One more handle of a file. `now` is the number of the change that was marked for it.
    pub(super) fn enter(&self, ino: Ino, now: u64) -> Arc<OpenFile> {
        let mut guard = self.files.lock();
        let files = &mut *guard;
        let known = files.closed.remove(&ino);
        let slot = files.open.entry(ino).or_insert_with(|| Slot {
            file: OpenFile::new(ino, now, known),
            handles: 0,
            unlinked: false,
        });
        slot.handles += 1;
        Arc::clone(&slot.file)
    }

    /// One handle less.
    pub(super) fn leave(&self, ino: Ino) -> AfterClose {
        let mut files = self.files.lock();
        let Some(slot) = files.open.get_mut(&ino) else {
            return AfterClose { last: false, unlinked: false };
        };
        slot.handles -= 1;
        let left = AfterClose { last: slot.handles == 0, unlinked: slot.unlinked };
        if left.last
            && let Some(slot) = files.open.remove(&ino)
            && !slot.unlinked
            && self.keeps_closed.load(Ordering::Relaxed)
            && let Some((attr, at)) = slot.file.state().attr
        {
            files.keep_closed(ino, attr, at);
        }
        left
    }

    /// Attributes of files that are not open are kept from now on.
    pub(super) fn keep_closed_files(&self) {
        self.keeps_closed.store(true, Ordering::Relaxed);
    }

    /// Keeps attributes, and when they were learned, of a file that is not open. Those that are not
    /// the newest (not `good`) make what is kept doubtful, too.
    pub(super) fn learn_closed(&self, ino: Ino, (attr, at): (Attr, Instant), good: impl FnOnce() -> bool) {
        if !self.keeps_closed.load(Ordering::Relaxed) {
            return;
        }
        let mut files = self.files.lock();
        if good() && !files.open.contains_key(&ino) {
            files.keep_closed(ino, attr, at);
        } else {
            files.closed.remove(&ino);
        }
    }

    /// A file that is not open changed, or may have.
    pub(super) fn forget_closed(&self, ino: Ino) {
        self.files.lock().closed.remove(&ino);
    }

    /// Any file may have changed.
    pub(super) fn forget_all_closed(&self) {
        self.files.lock().closed.clear();
    }

    /// A file lost its last name. Returns whether it is still open.
    pub(super) fn unlinked(&self, ino: Ino) -> bool {
        let mut files = self.files.lock();
        files.open.get_mut(&ino).map(|slot| slot.unlinked = true).is_some()
    }

    /// A file that is open here.
    pub(super) fn get(&self, ino: Ino) -> Option<Arc<OpenFile>> {
        self.files.lock().open.get(&ino).map(|slot| Arc::clone(&slot.file))
    }

    /// All that are open.
    pub(super) fn inos(&self) -> Vec<Ino> {
        self.files.lock().open.keys().copied().collect()
    }

    /// How many are open.
    pub(super) fn count(&self) -> usize {
        self.files.lock().open.len()
    }
}

impl OpenFile {
    fn new(ino: Ino, since: u64, attr: Option<(Attr, Instant)>) -> Arc<Self> {
        let state = State {
            attr,
            own: None,
            since,
            newer_than: since,
            names: None,
            changed_elsewhere: 0,
            written: Time::default(),
        };
        Arc::new(Self {
            ino,
            content_lock: SharedLock::default(),
            append_lock: Mutex::default(),
            change_lock: Mutex::default(),
            state: Mutex::new(state),
            next_commit: NextCommit::default(),
            plocks: Mutex::default(),
            locked: Mutex::default(),
            discarded: AtomicI64::new(0),
            running: AtomicU32::new(0),
        })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }

    /// Waits to change the content together with others, unless they change it only in the
    /// metadata. Those hold it for as long as the store does not answer.
    pub(crate) fn hold_content(&self, interrupt: &Interrupt) -> FsResult<RwLockReadGuard<'_, ()>> {
        loop {
            match self.content_lock.try_read_for(INTERRUPT_CHECK) {
                Some(guard) => return Ok(guard),
                None if interrupt.is_set() => return Err(FsError::Interrupted),
                None => {}
            }
        }
    }

    /// Waits to change the content only in the metadata. Not every signal kills the program, so an
    /// interrupt ends that some time later.
    pub(crate) fn hold_content_alone(&self, interrupt: &Interrupt) -> FsResult<RwLockWriteGuard<'_, ()>> {
        let set_since = Cell::new(None);
        let gives_up = || {
            let since = set_since.get().or_else(|| interrupt.is_set().then(wait::now));
            set_since.set(since);
            since.is_some_and(|since| wait::now().duration_since(since) >= INTERRUPT_DELAY)
        };
        self.content_lock.write_unless(INTERRUPT_CHECK, gives_up).ok_or(FsError::Interrupted)
    }

    /// The lock to hold while an operation changes the attributes.
    pub(super) fn begin_change(&self) -> MutexGuard<'_, ()> {
        wait::lock(&self.change_lock)
    }

    /// An operation of this client, from `begun` to `now`, returned these attributes.
    pub(super) fn changed(&self, attr: Attr, begun: u64, now: u64) {
        let mut state = self.state();
        let names = state.names_since(begun);
        // A change by another client may have come after it, and an answer that was requested since
        // may show that.
        let last = state.changed_elsewhere < begun && state.since <= begun;
        // A change of names may have come before it or after it.
        state.set((last && names.is_none()).then_some(attr), begun, now);
        // Whoever requested the attributes before gets at least this.
        state.own = last.then(|| names.map_or(attr, |names| names.put_on(attr)));
    }

    /// Another client changed it, or may have. Its attributes must be requested again.
    pub(super) fn changed_elsewhere(&self, now: u64) {
        let mut state = self.state();
        state.changed_elsewhere = now;
        state.names = None;
        state.set(None, now, now);
    }

    /// This client changed it, and the operation returned no attributes.
    pub(super) fn forget(&self, now: u64) {
        self.state().set(None, now, now);
    }

    /// A change of names changed its links and times, but not its length. So an answer that was
    /// requested before says how long it is, and what is known may be older than that.
    pub(super) fn renamed(&self, attr: &Attr, now: u64) {
        let names = Names::of(attr);
        let mut state = self.state();
        state.names = Some((names, now));
        if let Some((known, _)) = &mut state.attr {
            *known = names.put_on(*known);
        }
        state.own = state.own.map(|own| names.put_on(own));
    }

    /// Caches attributes that were requested at `asked`. Returns those to show; `None` if nobody
    /// knows whether these are the newest.
    pub(super) fn learn(&self, attr: Attr, asked: u64) -> Option<Attr> {
        let mut state = self.state();
        let attr = state.names_since(asked).map_or(attr, |names| names.put_on(attr));
        if state.since > asked {
            let known = state.attr.map(|(known, _)| known).or(state.own);
            return known.filter(|_| asked <= state.newer_than);
        }
        state.set(Some(attr), asked, asked);
        Some(attr)
    }

    /// A handle is about to acquire a lock.
    pub(crate) fn locked_through(&self, locks: &Arc<HandleLocks>) {
        let mut locked = self.locked.lock();
        locked.retain(|other| other.strong_count() > 0);
        if !locked.iter().any(|other| std::ptr::eq(other.as_ptr(), Arc::as_ptr(locks))) {
            locked.push(Arc::downgrade(locks));
        }
    }

    /// The oldest [`HandleLocks::since`] of all handles that may have written data which is not
    /// committed yet. When data is committed, it is no longer known which handle wrote it.
    pub(crate) fn locked_since(&self) -> Option<i64> {
        let locked = self.locked.lock();
        let discarded = self.discarded.load(Ordering::Acquire);
        let since = locked.iter().filter_map(|locks| locks.upgrade()?.since());
        since.filter(|since| *since >= discarded).min()
    }

    /// Data written under locks that were lost up to fence count `fences` is discarded, and the
    /// handles that lost them cannot write any more.
    pub(crate) fn discarded(&self, fences: i64) {
        self.discarded.fetch_max(fences, Ordering::AcqRel);
    }

    /// The last committed attributes that this client knows.
    pub(crate) fn attr(&self) -> Option<Attr> {
        self.state().attr.map(|(attr, _)| attr)
    }

    /// Attributes no older than `ttl`, and for how long they are still valid.
    pub(crate) fn recent(&self, ttl: Duration) -> Option<(Attr, Duration)> {
        let (attr, at) = self.state().attr?;
        let left = ttl.checked_sub(wait::now().duration_since(at)).filter(|left| !left.is_zero())?;
        Some((attr, left))
    }

    /// The application wrote at `time`.
    pub(crate) fn wrote(&self, time: Time) {
        let mut state = self.state();
        state.written = state.written.max(time);
    }

    /// When the application wrote last.
    pub(crate) fn written(&self) -> Time {
        self.state().written
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_own_change_that_is_processed_late_hides_no_later_answer() {
        let file = OpenFile::new(Ino(5), 1, None);
        let long = |length| Attr {
            length,
            ..Attr::new(sluice_types::FileType::File, 0o644, 0, 0, Ino::ROOT, Time::default())
        };
        // Begun at 2 and committed; then another client wrote more, and an open asked at 4.
        file.learn(long(20), 4);
        file.changed(long(10), 2, 5);
        assert_eq!(file.attr(), None, "nobody knows which came last");
        assert_eq!(file.learn(long(0), 3), None, "asked before the change was over");
        assert_eq!(file.learn(long(20), 6), Some(long(20)));
        file.changed(long(30), 8, 10);
        assert_eq!(file.attr().map(|attr| attr.length), Some(30));
        assert_eq!(file.learn(long(20), 7), Some(long(30)), "asked before the change began");
        assert_eq!(file.learn(long(40), 9), None, "another client may have changed it after that");
    }

    #[test]
    fn a_change_of_names_hides_nothing_of_what_others_wrote() {
        let file = OpenFile::new(Ino(5), 1, None);
        let attr = |length, nlink, sec| Attr {
            length,
            nlink,
            ctime: Time { sec, nsec: 0 },
            ..Attr::new(sluice_types::FileType::File, 0o644, 0, 0, Ino::ROOT, Time::default())
        };
        file.learn(attr(10, 1, 1), 2);
        // Asked at 3, after another client wrote; meanwhile this client removes a name.
        file.renamed(&attr(20, 0, 5), 4);
        assert_eq!(file.attr(), Some(attr(10, 0, 5)), "which of both is longer nobody knows");
        assert_eq!(file.learn(attr(20, 1, 3), 3), Some(attr(20, 0, 5)));
        assert_eq!(file.attr(), Some(attr(20, 0, 5)));
        // A change of the content that was committed before the next change of names, or after.
        file.renamed(&attr(20, 2, 7), 6);
        file.changed(attr(30, 0, 6), 5, 7);
        assert_eq!(file.attr(), None, "nobody knows which came last");
        assert_eq!(file.learn(attr(20, 0, 5), 4), Some(attr(30, 2, 7)), "asked before both");
        assert_eq!(file.learn(attr(30, 2, 7), 8), Some(attr(30, 2, 7)));
    }

    #[test]
    fn the_last_handle_learns_that_the_file_has_no_name() {
        let files = OpenFiles::default();
        files.enter(Ino(5), 1);
        files.enter(Ino(5), 2);
        assert!(files.unlinked(Ino(5)));
        assert!(!files.leave(Ino(5)).last);
        let left = files.leave(Ino(5));
        assert!(left.last && left.unlinked);
        assert!(!files.unlinked(Ino(5)));
    }
}
