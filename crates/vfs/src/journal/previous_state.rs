//! The content of a journal when its process died.

use std::{fs::File, io, os::unix::fs::FileExt};

use rustc_hash::{FxHashMap, FxHashSet};
use sluice_meta::{Effect, EffectKind, LanePast, Resumed, TakenUp};
use sluice_types::Ino;

use super::{
    error::JournalError,
    slot::{EXTENT, Kind, MAGIC, NUMBERS, RING, RING_SLOTS, SESSION, SLOT, Slot, TABLE, VERSION},
};
use crate::handle_locks::Lock;

/// What a dead process had open and under way.
#[derive(Debug, Default)]
pub struct PreviousState {
    pub(super) session: Option<Resumed>,
    /// No handle had a higher number.
    pub(crate) last: u64,
    pub(crate) files: Vec<RecordedFile>,
    pub(crate) dirs: Vec<RecordedDir>,
    pub(crate) locks: Vec<(u64, Lock, i64)>,
    /// Files with data that was not stored.
    pub(crate) dirty: FxHashSet<Ino>,
    /// Handles that still had to report data lost before, and by which calls.
    pub(crate) unreported: FxHashMap<u64, u8>,
    pub(super) effects: FxHashMap<u64, Vec<Known>>,
    /// Requests under way. They are written only if the kernel cannot send them again.
    pub(crate) underway: Vec<u64>,
    /// Everything in the table, by place.
    pub(super) table: Vec<(u32, Slot)>,
    pub(super) extent: u32,
    /// Effects by their place in the ring.
    pub(super) ring: Vec<(u64, Slot)>,
    pub(super) next: u64,
    pub(super) bytes: u64,
}

/// An open file.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RecordedFile {
    pub(crate) fh: u64,
    pub(crate) ino: Ino,
    pub(crate) flags: i32,
    /// The request that opened it.
    pub(crate) by: u64,
}

/// An open directory, and where pages of its listing begin.
#[derive(Clone, Debug)]
pub(crate) struct RecordedDir {
    pub(crate) fh: u64,
    pub(crate) ino: Ino,
    pub(crate) by: u64,
    pub(crate) pages: Vec<(u64, Vec<u8>)>,
}

/// An effect of a request.
#[derive(Clone, Copy, Debug)]
pub(super) struct Known {
    pub(super) effect: Effect,
    /// Lane and number of the commit that did it; `None` if it certainly happened.
    pub(super) commit: Option<(u16, u64)>,
}

impl PreviousState {
    /// The session to take over; `None` if there was none.
    pub fn resumed(&self) -> Option<Resumed> {
        self.session.clone()
    }

    /// Open files and directories.
    pub fn handles(&self) -> usize {
        self.files.len() + self.dirs.len()
    }

    /// Reduces it to what is needed after the restore: the effects of requests, and the handles
    /// that they opened.
    pub(crate) fn restored(self) -> Self {
        let dirs = self.dirs.into_iter().map(|dir| RecordedDir { pages: Vec::new(), ..dir }).collect();
        Self { files: self.files, dirs, effects: self.effects, ..Self::default() }
    }

    /// The handle that a request opened.
    pub(crate) fn opened_by(&self, unique: u64) -> Option<u64> {
        let file = self.files.iter().find(|file| file.by == unique).map(|file| file.fh);
        file.or_else(|| self.dirs.iter().find(|dir| dir.by == unique).map(|dir| dir.fh))
    }

    /// The effect of a request, of this kind, if one is recorded.
    pub(crate) fn effect(&self, unique: u64, kind: EffectKind, taken: Option<&TakenUp>) -> Option<Found> {
        let all = self.effects.get(&unique)?;
        let known = all.iter().rev().find(|known| known.effect.kind == kind)?;
        let value = known.effect.value;
        let Some((lane, n)) = known.commit else { return Some(Found::Done(value)) };
        match taken.and_then(|taken| taken.happened(lane, n)) {
            Some(true) => Some(Found::Done(value)),
            Some(false) => None,
            None => Some(Found::Unknown(value)),
        }
    }

    pub(super) fn read(file: &File) -> Result<Self, JournalError> {
        let mut head = [0; 4 * SLOT];
        file.read_exact_at(&mut head, 0)?;
        if head[..8] != MAGIC {
            return Err(JournalError::Foreign);
        }
        let version = u32::from_le_bytes([head[8], head[9], head[10], head[11]]);
        if version != VERSION {
            return Err(JournalError::Version(version));
        }
        let one = |at: u64| Slot::decode(&head[at as usize..][..SLOT]);
        let (session, numbers, extent) = (one(SESSION), one(NUMBERS), one(EXTENT));
        let mut past = Self { last: numbers.words[0], extent: extent.words[0] as u32, ..Self::default() };
        if session.is(Kind::Session) && session.words[0] != 0 {
            let [sid, lanes, fences, _] = session.words;
            let lanes = vec![LanePast::default(); lanes as usize];
            past.session = Some(Resumed { sid, fences: fences as i64, lanes });
        }
        past.read_table(file)?;
        past.read_ring(file)?;
        Ok(past)
    }

    fn read_table(&mut self, file: &File) -> io::Result<()> {
        let mut names: FxHashMap<u64, Vec<(u64, u64, u64)>> = FxHashMap::default();
        let mut bytes = vec![0; self.extent as usize * SLOT];
        read_sparse(file, &mut bytes, TABLE)?;
        for (place, slot) in bytes.chunks_exact(SLOT).map(Slot::decode).enumerate() {
            if slot.kind == 0 {
                continue;
            }
            self.table.push((place as u32, slot));
            let [one, two, three, four] = slot.words;
            if slot.is(Kind::File) {
                self.files.push(RecordedFile { fh: one, ino: Ino(two), by: three, flags: slot.flags });
            } else if slot.is(Kind::Dir) {
                self.dirs.push(RecordedDir { fh: one, ino: Ino(two), by: three, pages: Vec::new() });
            } else if slot.is(Kind::Lock) {
                let lock = if slot.sub == 1 { Lock::Flock(two) } else { Lock::Plocks(two) };
                self.locks.push((one, lock, three as i64));
            } else if slot.is(Kind::Dirty) {
                self.dirty.insert(Ino(one));
            } else if slot.is(Kind::Lost) {
                self.unreported.insert(one, slot.sub);
            } else if slot.is(Kind::Names) {
                names.entry(one).or_default().push((two, three, four));
                self.bytes = self.bytes.max(three + four);
            } else if slot.is(Kind::Void)
                && let Some(lane) = self.lane(slot.lane)
            {
                lane.voids.push((one, two));
            } else if slot.is(Kind::Underway) {
                self.underway.push(one);
            }
        }
        for dir in &mut self.dirs {
            let mut pages = names.remove(&dir.fh).unwrap_or_default();
            pages.sort_unstable();
            for (number, at, length) in pages {
                let mut bytes = vec![0; length as usize];
                file.read_exact_at(&mut bytes, at)?;
                dir.pages.push((number, bytes));
            }
        }
        Ok(())
    }

    fn read_ring(&mut self, file: &File) -> io::Result<()> {
        let mut bytes = vec![0; RING_SLOTS as usize * SLOT];
        read_sparse(file, &mut bytes, RING)?;
        let slots = bytes.chunks_exact(SLOT).map(Slot::decode).enumerate();
        let mut ring: Vec<(u64, Slot)> =
            slots.filter(|(_, slot)| slot.kind != 0).map(|(place, slot)| (place as u64, slot)).collect();
        ring.sort_unstable_by_key(|(_, slot)| slot.words[3]);
        for (_, slot) in &ring {
            let [unique, value, n, seq] = slot.words;
            self.next = self.next.max(seq + 1);
            let Some(kind) = EffectKind::from_number(slot.sub) else { continue };
            let commit = slot.is(Kind::Effect).then_some((slot.lane, n));
            if commit.is_some()
                && let Some(lane) = self.lane(slot.lane)
            {
                lane.attempted = lane.attempted.max(n);
            }
            self.effects.entry(unique).or_default().push(Known { effect: Effect { kind, value }, commit });
        }
        self.ring = ring;
        Ok(())
    }

    fn lane(&mut self, lane: u16) -> Option<&mut LanePast> {
        self.session.as_mut()?.lanes.get_mut(usize::from(lane))
    }
}

/// Whether an effect happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Found {
    /// It was done.
    Done(u64),
    /// It may have been done.
    Unknown(u64),
}

/// Reads the bytes that the file has. The rest of the buffer stays as it is.
fn read_sparse(file: &File, mut bytes: &mut [u8], mut at: u64) -> io::Result<()> {
    while !bytes.is_empty() {
        match file.read_at(bytes, at)? {
            0 => break,
            read => (bytes, at) = (&mut bytes[read..], at + read as u64),
        }
    }
    Ok(())
}
