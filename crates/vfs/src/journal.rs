//! The journal: the state that a successor needs if this process dies. It lies in a `memfd` that
//! another process holds, too. All records have the same size. Each is written by one `pwrite`,
//! which a signal cannot interrupt half-way.
//!
//! What must stay true: a record is written before its effect is visible outside of the process (an
//! answer, a commit), and is freed only when it no longer holds.

mod error;
mod previous_state;
mod slot;

use std::{
    fmt,
    fs::File,
    io,
    os::unix::fs::FileExt,
    sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering},
};

use parking_lot::Mutex;
use rustc_hash::FxHashMap;
use rustix::fs::{FallocateFlags, MemfdFlags, fallocate, memfd_create};
use sluice_meta::{Effect, EffectLog, LogSpan, TakenUp};
use sluice_types::Ino;

pub(crate) use self::previous_state::Found;
use self::slot::{
    BYTES, EXTENT, Kind, MAGIC, NUMBERS, RING, RING_SLOTS, SESSION, SLOT, STEP, Slot, TABLE, VERSION,
};
pub use self::{error::JournalError, previous_state::PreviousState};
use crate::handle_locks::Lock;

/// Handle numbers that one record reserves.
const NUMBERS_AT_ONCE: u64 = 4096;

/// The key of a record of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum RecordKey {
    Handle(u64),
    Lock(u64, Lock),
    Dirty(Ino),
    Lost(u64),
    /// Where a page of a directory begins.
    Names(u64, u64),
    Void(u16, u64),
    Underway(u64),
}

/// The journal of a mount.
pub struct Journal {
    file: File,
    table: Mutex<Table>,
    /// Effects written so far.
    effects: AtomicU64,
    /// Handle numbers up to here are reserved.
    numbers: AtomicU64,
    /// The offset where the next bytes go.
    bytes: AtomicU64,
    session: Mutex<(u64, u16)>,
    fences: AtomicI64,
    broken: AtomicBool,
}

#[derive(Default)]
struct Table {
    places: FxHashMap<RecordKey, u32>,
    /// The byte ranges of the pages of open directories.
    pages: FxHashMap<u64, Vec<(u64, u64)>>,
    free: Vec<u32>,
    end: u32,
    extent: u32,
}

impl fmt::Debug for Journal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Journal").finish_non_exhaustive()
    }
}

impl Journal {
    /// An empty one.
    ///
    /// # Errors
    /// If no memory or no descriptor is available.
    pub fn create() -> io::Result<Self> {
        let file = File::from(memfd_create("sluice-journal", MemfdFlags::CLOEXEC)?);
        let mut head = [0; SLOT];
        head[..8].copy_from_slice(&MAGIC);
        head[8..12].copy_from_slice(&VERSION.to_le_bytes());
        file.write_all_at(&head, 0)?;
        // Room for the other heads, so that they can be read.
        file.write_all_at(&[0; SLOT], EXTENT)?;
        Ok(Self::over(file, &PreviousState::default()))
    }

    /// Opens the journal of another process, and reads it. This process continues it.
    ///
    /// # Errors
    /// If it is no journal, or has an unknown version.
    pub fn open(file: File) -> Result<(Self, PreviousState), JournalError> {
        let past = PreviousState::read(&file)?;
        Ok((Self::over(file, &past), past))
    }

    /// Whether [`Self::open`] would understand it.
    ///
    /// # Errors
    /// Why not.
    pub fn check(file: &File) -> Result<(), JournalError> {
        PreviousState::read(file).map(drop)
    }

    /// The file, to be passed to another process.
    pub fn file(&self) -> &File {
        &self.file
    }

    fn over(file: File, past: &PreviousState) -> Self {
        let mut table = Table { extent: past.extent, ..Table::default() };
        for (place, slot) in &past.table {
            while table.end < *place {
                table.free.push(table.end);
                table.end += 1;
            }
            table.end = place + 1;
            match key_of(slot) {
                Some(key) => drop(table.places.insert(key, *place)),
                None => table.free.push(*place),
            }
            if slot.is(Kind::Names) {
                table.pages.entry(slot.words[0]).or_default().push((slot.words[2], slot.words[3]));
            }
        }
        let session = past.session.as_ref().map_or((0, 0), |past| (past.sid, past.lanes.len() as u16));
        Self {
            file,
            table: Mutex::new(table),
            effects: past.next.into(),
            numbers: past.last.into(),
            bytes: past.bytes.max(BYTES).into(),
            session: Mutex::new(session),
            fences: past.session.as_ref().map_or(0, |past| past.fences).into(),
            broken: AtomicBool::new(false),
        }
    }

    fn write(&self, bytes: &[u8], at: u64) {
        if let Err(error) = self.file.write_all_at(bytes, at)
            && !self.broken.swap(true, Ordering::Relaxed)
        {
            tracing::error!(%error, "a successor of this process would not know all: the state of the mount cannot be written");
        }
    }

    /// Writes a record of the table, over an older one with the same key.
    fn put(&self, key: RecordKey, slot: Slot) {
        let mut table = self.table.lock();
        let place = if let Some(place) = table.places.get(&key) {
            *place
        } else {
            let place = table.free.pop().unwrap_or_else(|| {
                table.end += 1;
                table.end - 1
            });
            table.places.insert(key, place);
            if table.end > table.extent {
                table.extent += STEP;
                let extent = Slot::new(Kind::Extent, [u64::from(table.extent), 0, 0, 0]);
                self.write(&extent.encode(), EXTENT);
            }
            place
        };
        drop(table);
        self.write(&slot.encode(), TABLE + u64::from(place) * SLOT as u64);
    }

    /// Frees a record of the table, if there is one.
    fn remove(&self, key: RecordKey) {
        let Some(place) = self.table.lock().places.remove(&key) else { return };
        self.write(&[0; SLOT], TABLE + u64::from(place) * SLOT as u64);
        // Only after that may another record use the place.
        self.table.lock().free.push(place);
    }

    /// Handle number `fh` is about to be used.
    pub(crate) fn numbered(&self, fh: u64) {
        if fh <= self.numbers.load(Ordering::Relaxed) {
            return;
        }
        let _table = self.table.lock();
        if fh > self.numbers.load(Ordering::Relaxed) {
            let upto = fh + NUMBERS_AT_ONCE;
            self.write(&Slot::new(Kind::Numbers, [upto, 0, 0, 0]).encode(), NUMBERS);
            self.numbers.store(upto, Ordering::Relaxed);
        }
    }

    /// A file was opened, by request `by`.
    pub(crate) fn opened(&self, fh: u64, ino: Ino, flags: i32, by: u64) {
        self.put(RecordKey::Handle(fh), Slot { flags, ..Slot::new(Kind::File, [fh, ino.0, by, 0]) });
    }

    /// A directory was opened, by request `by`.
    pub(crate) fn opened_dir(&self, fh: u64, ino: Ino, by: u64) {
        self.put(RecordKey::Handle(fh), Slot::new(Kind::Dir, [fh, ino.0, by, 0]));
    }

    /// A handle was closed.
    pub(crate) fn closed(&self, fh: u64) {
        self.remove(RecordKey::Handle(fh));
        self.forget_names(fh);
    }

    /// A lock was taken through a handle.
    pub(crate) fn locked(&self, fh: u64, lock: Lock, fences: i64) {
        let (sub, owner) = match lock {
            Lock::Flock(owner) => (1, owner),
            Lock::Plocks(owner) => (2, owner),
        };
        let slot = Slot { sub, ..Slot::new(Kind::Lock, [fh, owner, fences as u64, 0]) };
        self.put(RecordKey::Lock(fh, lock), slot);
    }

    /// A lock was released.
    pub(crate) fn unlocked(&self, fh: u64, lock: Lock) {
        self.remove(RecordKey::Lock(fh, lock));
    }

    /// Notes whether a file has data that is not stored.
    pub(crate) fn dirty(&self, ino: Ino, dirty: bool) {
        if dirty {
            self.put(RecordKey::Dirty(ino), Slot::new(Kind::Dirty, [ino.0, 0, 0, 0]));
        } else {
            self.remove(RecordKey::Dirty(ino));
        }
    }

    /// Notes which calls on a handle still have to report lost data; 0 for none.
    pub(crate) fn unreported(&self, fh: u64, calls: u8) {
        if calls == 0 {
            self.remove(RecordKey::Lost(fh));
        } else {
            self.put(RecordKey::Lost(fh), Slot { sub: calls, ..Slot::new(Kind::Lost, [fh, 0, 0, 0]) });
        }
    }

    /// Where page `number` of the listing of an open directory begins.
    pub(crate) fn page(&self, fh: u64, number: u64, bytes: &[u8]) {
        let length = bytes.len() as u64;
        // Whole memory pages, so that they can be freed.
        let at = self.bytes.fetch_add(length.next_multiple_of(4096), Ordering::Relaxed);
        self.write(bytes, at);
        self.table.lock().pages.entry(fh).or_default().push((at, length));
        self.put(RecordKey::Names(fh, number), Slot::new(Kind::Names, [fh, number, at, length]));
    }

    /// The listing of an open directory begins again, or the directory is closed.
    pub(crate) fn forget_names(&self, fh: u64) {
        let mut table = self.table.lock();
        let Some(pages) = table.pages.remove(&fh) else { return };
        let key = |key: &&RecordKey| matches!(key, RecordKey::Names(of, _) if *of == fh);
        let gone: Vec<RecordKey> = table.places.keys().filter(key).copied().collect();
        drop(table);
        for key in gone {
            self.remove(key);
        }
        for (at, length) in pages {
            let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
            let _ = fallocate(&self.file, flags, at, length.next_multiple_of(4096));
        }
    }

    /// A request is under way, and the kernel is too old to send it again.
    pub fn began(&self, unique: u64) {
        self.put(RecordKey::Underway(unique), Slot::new(Kind::Underway, [unique, 0, 0, 0]));
    }

    /// That request was answered.
    pub fn answered(&self, unique: u64) {
        self.remove(RecordKey::Underway(unique));
    }

    /// The effect of a request is known before its commit.
    pub(crate) fn decided(&self, unique: u64, effect: Effect) {
        self.effects(Kind::Done, 0, 0, &[(unique, effect)]);
    }

    fn effects(&self, kind: Kind, lane: u16, n: u64, effects: &[(u64, Effect)]) -> LogSpan {
        let count = effects.len() as u64;
        let first = self.effects.fetch_add(count, Ordering::Relaxed);
        let mut bytes = Vec::with_capacity(effects.len() * SLOT);
        for (seq, (unique, effect)) in (first..).zip(effects) {
            let words = [*unique, effect.value, n, seq];
            let slot = Slot { sub: effect.kind as u8, lane, ..Slot::new(kind, words) };
            bytes.extend_from_slice(&slot.encode());
        }
        self.write_ring(first, &bytes);
        LogSpan { first, count }
    }

    /// Writes to the ring, in two parts if the ring ends in between.
    fn write_ring(&self, first: u64, bytes: &[u8]) {
        let place = first % RING_SLOTS;
        let room = (RING_SLOTS - place) as usize * SLOT;
        let (one, two) = bytes.split_at(room.min(bytes.len()));
        self.write(one, RING + place * SLOT as u64);
        if !two.is_empty() {
            self.write(two, RING);
        }
    }

    /// Writes down which effects of the dead process were committed, so that the next successor
    /// need not find out again.
    pub(crate) fn settle(&self, past: &PreviousState, taken: &TakenUp) {
        for (place, slot) in past.ring.iter().filter(|(_, slot)| slot.is(Kind::Effect)) {
            let settled = match taken.happened(slot.lane, slot.words[2]) {
                Some(true) => Slot { kind: Kind::Done as u8, ..*slot },
                // If the session is gone, this can no longer be found out, and commit numbers begin
                // again.
                Some(false) | None => Slot::default(),
            };
            self.write(&settled.encode(), RING + place * SLOT as u64);
        }
        for lane in 0..past.session.as_ref().map_or(0, |session| session.lanes.len()) {
            let table = self.table.lock();
            let key = |key: &&RecordKey| matches!(key, RecordKey::Void(of, _) if usize::from(*of) == lane);
            let gone: Vec<RecordKey> = table.places.keys().filter(key).copied().collect();
            drop(table);
            for key in gone {
                self.remove(key);
            }
        }
    }

    fn write_session(&self) {
        let (sid, lanes) = *self.session.lock();
        let words = [sid, u64::from(lanes), self.fences.load(Ordering::Relaxed) as u64, 0];
        self.write(&Slot::new(Kind::Session, words).encode(), SESSION);
    }
}

/// The key of a record of the table.
fn key_of(slot: &Slot) -> Option<RecordKey> {
    let [one, two, ..] = slot.words;
    let kinds = [
        (Kind::File, RecordKey::Handle(one)),
        (Kind::Dir, RecordKey::Handle(one)),
        (Kind::Lock, RecordKey::Lock(one, if slot.sub == 1 { Lock::Flock(two) } else { Lock::Plocks(two) })),
        (Kind::Dirty, RecordKey::Dirty(Ino(one))),
        (Kind::Lost, RecordKey::Lost(one)),
        (Kind::Names, RecordKey::Names(one, two)),
        (Kind::Void, RecordKey::Void(slot.lane, two)),
        (Kind::Underway, RecordKey::Underway(one)),
    ];
    kinds.into_iter().find(|(kind, _)| slot.is(*kind)).map(|(_, key)| key)
}

impl EffectLog for Journal {
    fn session(&self, sid: u64, lanes: u16, fences: i64) {
        *self.session.lock() = (sid, lanes);
        self.fenced(fences);
    }

    fn fenced(&self, fences: i64) {
        self.fences.store(fences, Ordering::Relaxed);
        self.write_session();
    }

    fn sending(&self, lane: u16, n: u64, effects: &[(u64, Effect)]) -> LogSpan {
        self.effects(Kind::Effect, lane, n, effects)
    }

    fn refused(&self, logged: LogSpan) {
        self.write_ring(logged.first, &vec![0; logged.count as usize * SLOT]);
    }

    fn voids(&self, lane: u16, from: u64, to: u64) {
        self.put(RecordKey::Void(lane, to), Slot { lane, ..Slot::new(Kind::Void, [from, to, 0, 0]) });
    }

    fn resolved(&self, lane: u16, to: u64) {
        self.remove(RecordKey::Void(lane, to));
    }
}
