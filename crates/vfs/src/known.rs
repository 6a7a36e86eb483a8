//! What this client knows of inodes by its own doing: which files are open here, their attributes,
//! what it changed.
//!
//! What must stay true: attributes that were asked for before a change made here never replace
//! those that the change produced; else a file would look shorter than it is, and reads would lose
//! bytes.

use std::{
    sync::{
        Arc, Weak,
        atomic::{AtomicI64, AtomicU32, AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use parking_lot::{Mutex, MutexGuard, RwLock};
use rustc_hash::FxHashMap;
use sluice_types::{Attr, Ino, Time};

use crate::{held::Held, records::Records};

/// Inodes whose last change here is remembered.
const MOST_CHANGES: usize = 1 << 16;

/// This client's knowledge of inodes.
#[derive(Default)]
pub(crate) struct Known {
    files: Mutex<FxHashMap<Ino, Slot>>,
    epoch: AtomicU64,
    changes: Mutex<Changes>,
    /// How files were at their last open.
    opened: Mutex<FxHashMap<Ino, (Time, Time, u64)>>,
    pub(crate) records: Records,
}

struct Slot {
    file: Arc<File>,
    handles: u32,
    unlinked: bool,
}

#[derive(Default)]
struct Changes {
    last: FxHashMap<Ino, u64>,
    /// Inodes that are not in `last` may have changed up to here.
    floor: u64,
}

/// A file that this client has open, with any number of handles.
pub(crate) struct File {
    pub(crate) ino: Ino,
    /// Shared by who writes, exclusive to who cuts or fills what was written.
    pub(crate) gate: RwLock<()>,
    /// Held while an operation changes the attributes, so that answers are learned in the order of
    /// the changes.
    order: Mutex<()>,
    state: Mutex<State>,
    /// Owners of POSIX locks, each with the handles through which it locked.
    pub(crate) plocks: Mutex<FxHashMap<u64, Vec<u64>>>,
    /// Locks of each handle that ever held one.
    locked: Mutex<Vec<Weak<Held>>>,
    /// What was written under locks that were lost is given up, as far as this client had been
    /// taken for dead so often.
    given_up: AtomicI64,
    /// Handles by which programs run.
    pub(crate) running: AtomicU32,
}

struct State {
    attr: Option<(Attr, Instant)>,
    /// The moment of the last change here, or when the attributes were asked for if that was later.
    since: u64,
    /// When another client's change was heard of last.
    heard: u64,
    /// When the application wrote last.
    written: Time,
}

impl State {
    fn set(&mut self, attr: Option<Attr>, moment: u64) {
        self.attr = attr.map(|attr| (attr, Instant::now()));
        self.since = self.since.max(moment);
    }
}

/// How the last handle left.
pub(crate) struct Left {
    pub(crate) last: bool,
    pub(crate) unlinked: bool,
}

impl Known {
    /// One more handle of a file. Called before the trip that opens.
    pub(crate) fn enter(&self, ino: Ino) -> Arc<File> {
        let now = self.note(ino);
        let mut files = self.files.lock();
        let slot = files.entry(ino).or_insert_with(|| Slot {
            file: File::new(ino, now),
            handles: 0,
            unlinked: false,
        });
        slot.handles += 1;
        Arc::clone(&slot.file)
    }

    /// One handle less.
    pub(crate) fn leave(&self, ino: Ino) -> Left {
        let mut files = self.files.lock();
        let Some(slot) = files.get_mut(&ino) else { return Left { last: false, unlinked: false } };
        slot.handles -= 1;
        let left = Left { last: slot.handles == 0, unlinked: slot.unlinked };
        if left.last {
            files.remove(&ino);
        }
        left
    }

    /// An open file lost its last name; whether it is still open.
    pub(crate) fn unlinked(&self, ino: Ino) -> bool {
        let mut files = self.files.lock();
        files.get_mut(&ino).map(|slot| slot.unlinked = true).is_some()
    }

    /// A file that is open here.
    pub(crate) fn file(&self, ino: Ino) -> Option<Arc<File>> {
        self.files.lock().get(&ino).map(|slot| Arc::clone(&slot.file))
    }

    /// Takes note of how a file is as it is opened; whether it was so at its last open. Its mtime
    /// may have been set back after a change, its ctime not.
    pub(crate) fn opened_as(&self, ino: Ino, attr: &Attr) -> bool {
        let mut opened = self.opened.lock();
        if opened.len() >= MOST_CHANGES {
            opened.clear();
        }
        let now = (attr.mtime, attr.ctime, attr.length);
        opened.insert(ino, now) == Some(now)
    }

    /// Forgets how a file was at its last open.
    pub(crate) fn forget_open(&self, ino: Ino) {
        self.opened.lock().remove(&ino);
    }

    /// All files that are open.
    pub(crate) fn open_inos(&self) -> Vec<Ino> {
        self.files.lock().keys().copied().collect()
    }

    /// Anything may have changed.
    pub(crate) fn forget_names(&self) {
        let mut changes = self.changes.lock();
        changes.floor = self.epoch.fetch_add(1, Ordering::SeqCst) + 1;
        changes.last.clear();
    }

    /// How many files are open.
    pub(crate) fn open_files(&self) -> usize {
        self.files.lock().len()
    }

    /// Taken before the engine is asked for attributes; no two are alike.
    pub(crate) fn moment(&self) -> u64 {
        self.epoch.fetch_add(1, Ordering::SeqCst) + 1
    }

    /// Whether this client changed `ino` after `moment`, or may have.
    pub(crate) fn changed_since(&self, ino: Ino, moment: u64) -> bool {
        let changes = self.changes.lock();
        changes.last.get(&ino).copied().unwrap_or(changes.floor) > moment
    }

    /// This client changed `ino`, or showed what the engine said of it: attributes from before are
    /// not to be shown again. Answers the moment of that.
    pub(crate) fn note(&self, ino: Ino) -> u64 {
        let mut changes = self.changes.lock();
        let now = self.moment();
        if changes.last.len() >= MOST_CHANGES {
            changes.last.clear();
            changes.floor = now;
        }
        changes.last.insert(ino, now);
        now
    }

    /// Another client changed `ino`: what is known of it is asked for again. Waits for no change
    /// that is under way here.
    pub(crate) fn changed_elsewhere(&self, ino: Ino) {
        let now = self.note(ino);
        if let Some(file) = self.file(ino) {
            let mut state = file.state();
            state.heard = now;
            state.set(None, now);
        }
    }

    /// Runs an operation that changes attributes of `ino`, and learns what they are now.
    pub(crate) fn change<T, E>(
        &self,
        ino: Ino,
        run: impl FnOnce() -> Result<T, E>,
        attr: impl FnOnce(&T) -> Attr,
    ) -> Result<T, E> {
        let file = self.file(ino);
        let _order = file.as_ref().map(|file| file.order.lock());
        let asked = self.moment();
        let done = run()?;
        let now = self.note(ino);
        if let Some(file) = &file {
            let mut state = file.state();
            // What another client did may have come after it.
            let attr = (state.heard < asked).then(|| attr(&done));
            state.set(attr, now);
        } else if let Some(file) = self.file(ino) {
            // Opened meanwhile: who knows what else changed it since.
            file.state().set(None, now);
        }
        Ok(done)
    }

    /// A change of names touched a file's own record: links and times, never its length.
    pub(crate) fn renamed(&self, ino: Ino, attr: &Attr) {
        let now = self.note(ino);
        let Some(file) = self.file(ino) else { return };
        let mut state = file.state();
        state.since = state.since.max(now);
        if let Some((known, _)) = &mut state.attr {
            (known.nlink, known.parent) = (attr.nlink, attr.parent);
            known.ctime = known.ctime.max(attr.ctime);
        }
    }

    /// Takes note of attributes that were asked for at `moment`. Answers those to show, which are
    /// others if this client changed them meanwhile, or has an answer that was asked for later: two
    /// may ask at once, and only the later one is sure to know what others did before it asked.
    pub(crate) fn learn(&self, ino: Ino, attr: Attr, moment: u64) -> Attr {
        if !attr.is_file() {
            return attr;
        }
        self.records.seen(ino, &attr);
        let Some(file) = self.file(ino) else { return attr };
        let mut state = file.state();
        if state.since > moment {
            return state.attr.map_or(attr, |(known, _)| known);
        }
        state.set(Some(attr), moment);
        attr
    }
}

impl File {
    fn new(ino: Ino, since: u64) -> Arc<Self> {
        let state = State { attr: None, since, heard: 0, written: Time::default() };
        Arc::new(Self {
            ino,
            gate: RwLock::default(),
            order: Mutex::default(),
            state: Mutex::new(state),
            plocks: Mutex::default(),
            locked: Mutex::default(),
            given_up: AtomicI64::new(0),
            running: AtomicU32::new(0),
        })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }

    /// A handle is about to hold a lock.
    pub(crate) fn locked_through(&self, held: &Arc<Held>) {
        let mut locked = self.locked.lock();
        locked.retain(|other| other.strong_count() > 0);
        if !locked.iter().any(|other| std::ptr::eq(other.as_ptr(), Arc::as_ptr(held))) {
            locked.push(Arc::downgrade(held));
        }
    }

    /// [`Held::since`] over all handles that may have written what has not gone to the file yet:
    /// who wrote what is not known any more when it does.
    pub(crate) fn locked_since(&self) -> Option<i64> {
        let locked = self.locked.lock();
        let given_up = self.given_up.load(Ordering::Acquire);
        let since = locked.iter().filter_map(|held| held.upgrade()?.since());
        since.filter(|since| *since >= given_up).min()
    }

    /// Nothing is left of what was written under locks that were lost when this client had been
    /// taken for dead `fences` times, and who lost them writes no more.
    pub(crate) fn gave_up(&self, fences: i64) {
        self.given_up.fetch_max(fences, Ordering::AcqRel);
    }

    /// Attributes as committed, as far as this client knows.
    pub(crate) fn attr(&self) -> Option<Attr> {
        self.state().attr.map(|(attr, _)| attr)
    }

    /// Attributes no older than `ttl`, and how long they still hold.
    pub(crate) fn recent(&self, ttl: Duration) -> Option<(Attr, Duration)> {
        let (attr, at) = self.state().attr?;
        let left = ttl.checked_sub(at.elapsed()).filter(|left| !left.is_zero())?;
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
    use sluice_types::FileType;

    use super::*;

    fn attr(length: u64) -> Attr {
        Attr { length, ..Attr::new(FileType::File, 0o644, 0, 0, Ino::ROOT, Time::default()) }
    }

    #[test]
    fn another_clients_change_waits_for_none_that_is_under_way() {
        let known = Arc::new(Known::default());
        let ino = Ino(5);
        let attr = Attr::new(sluice_types::FileType::File, 0o644, 0, 0, Ino(1), Time::default());
        let file = known.enter(ino);
        let during = Arc::clone(&known);
        let (send, receive) = std::sync::mpsc::channel();
        let commit = move || {
            std::thread::spawn(move || {
                during.changed_elsewhere(ino);
                send.send(())
            });
            // The commit lasts until the other change was heard of.
            receive.recv_timeout(Duration::from_mins(1))
        };
        known.change(ino, commit, |()| attr).unwrap();
        assert_eq!(file.attr(), None, "which of both came last nobody knows");
        known.change(ino, || Ok::<_, ()>(()), |()| attr).unwrap();
        assert_eq!(file.attr(), Some(attr));
    }

    #[test]
    fn answers_from_before_a_change_do_not_count() {
        let known = Known::default();
        let file = known.enter(Ino(5));
        let moment = known.moment();
        known.change(Ino(5), || Ok::<_, ()>(attr(100)), |attr| *attr).unwrap();
        assert_eq!(known.learn(Ino(5), attr(0), moment).length, 100);
        assert_eq!(file.attr().unwrap().length, 100);
        assert_eq!(known.learn(Ino(5), attr(7), known.moment()).length, 7, "another client cut it since");
    }

    #[test]
    fn of_two_answers_the_one_that_was_asked_for_later_counts() {
        let known = Known::default();
        let file = known.enter(Ino(5));
        let (one, other) = (known.moment(), known.moment());
        // It came first, and says what was so before others went on.
        assert_eq!(known.learn(Ino(5), attr(10), one).length, 10);
        known.note(Ino(5));
        assert_eq!(known.learn(Ino(5), attr(20), other).length, 20);
        assert_eq!(known.learn(Ino(5), attr(10), one).length, 20, "it came last");
        assert_eq!(file.attr().unwrap().length, 20);
    }

    #[test]
    fn answers_from_before_the_file_was_open_do_not_count() {
        let known = Known::default();
        let moment = known.moment();
        known.change(Ino(5), || Ok::<_, ()>(attr(100)), |attr| *attr).unwrap();
        let file = known.enter(Ino(5));
        known.learn(Ino(5), attr(0), moment);
        assert!(file.attr().is_none());
    }

    #[test]
    fn forgotten_changes_count_as_changes() {
        let known = Known::default();
        let moment = known.moment();
        (0..=MOST_CHANGES as u64).for_each(|ino| {
            known.note(Ino(ino));
        });
        assert!(known.changed_since(Ino(1), moment));
        assert!(!known.changed_since(Ino(1), known.moment()));
    }

    #[test]
    fn the_last_handle_learns_that_the_file_has_no_name() {
        let known = Known::default();
        known.enter(Ino(5));
        known.enter(Ino(5));
        assert!(known.unlinked(Ino(5)));
        assert!(!known.leave(Ino(5)).last);
        let left = known.leave(Ino(5));
        assert!(left.last && left.unlinked);
        assert!(!known.unlinked(Ino(5)));
    }
}
