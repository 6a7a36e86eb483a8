//! The records of chunks that this client read. They are kept until it learns that the file
//! changed.
//!
//! What must stay true: a list that was requested before a change by this client is never kept
//! after it. All lists of a file are dropped if the file's times differ from those known when the
//! list was requested. The mtime alone is not enough, because a program that rewrites a file may
//! set it back.

use std::sync::Arc;

use parking_lot::Mutex;
use rustc_hash::FxHashMap;
use sluice_types::{Attr, Ino, Slice, Time};

/// Records kept at most; 24 bytes each. An empty list counts as one.
const MAX_RECORDS: usize = 1 << 20;
/// Files kept at most.
const MAX_FILES: usize = 1 << 14;

/// Chunk lists of many files.
#[derive(Default)]
pub(super) struct ChunkRecords(Mutex<Kept>);

#[derive(Default)]
struct Kept {
    files: FxHashMap<Ino, Lists>,
    records: usize,
    /// Rises with every change, to recognize a list that was requested before the change.
    generation: u64,
}

#[derive(Default)]
struct Lists {
    /// The file's mtime and ctime.
    times: Option<(Time, Time)>,
    changed: u64,
    chunks: FxHashMap<u32, List>,
}

/// The records of one chunk.
struct List {
    asked: u64,
    records: Arc<[Slice]>,
}

/// As how many records a list counts.
fn counted(records: &[Slice]) -> usize {
    records.len().max(1)
}

impl ChunkRecords {
    /// A kept list.
    pub(super) fn get(&self, ino: Ino, index: u32) -> Option<Arc<[Slice]>> {
        self.0.lock().files.get(&ino)?.chunks.get(&index).map(|list| Arc::clone(&list.records))
    }

    /// Call this before a list is requested. The result goes to [`Self::keep`].
    pub(super) fn begin_read(&self, ino: Ino) -> u64 {
        let mut kept = self.0.lock();
        if kept.files.len() >= MAX_FILES {
            kept.files.clear();
            kept.records = 0;
        }
        let changed = kept.generation;
        kept.files.entry(ino).or_insert_with(|| Lists { changed, ..Lists::default() });
        kept.next()
    }

    /// Keeps a list unless the file changed since it was requested. Returns the list to use: the
    /// older one if it is equal, or was requested later.
    pub(super) fn keep(&self, ino: Ino, index: u32, asked: u64, list: Vec<Slice>) -> Arc<[Slice]> {
        let mut kept = self.0.lock();
        if kept.records + counted(&list) > MAX_RECORDS {
            kept.files.values_mut().for_each(|lists| lists.chunks.clear());
            kept.records = 0;
        }
        let Some(lists) = kept.files.get_mut(&ino).filter(|lists| lists.changed <= asked) else {
            return list.into();
        };
        let old = lists.chunks.get(&index);
        if let Some(old) = old.filter(|old| old.asked > asked || old.records[..] == list[..]) {
            return Arc::clone(&old.records);
        }
        let (gone, come) = (old.map_or(0, |old| counted(&old.records)), counted(&list));
        let records: Arc<[Slice]> = list.into();
        lists.chunks.insert(index, List { asked, records: Arc::clone(&records) });
        kept.records = kept.records + come - gone;
        records
    }

    /// This client changed one chunk, or may have.
    pub(super) fn changed(&self, ino: Ino, index: u32) {
        let mut kept = self.0.lock();
        let generation = kept.next();
        let Some(lists) = kept.files.get_mut(&ino) else { return };
        lists.changed = generation;
        if let Some(list) = lists.chunks.remove(&index) {
            kept.records -= counted(&list.records);
        }
    }

    /// This client changed a file at any place, or the file was deleted.
    pub(super) fn forget(&self, ino: Ino) {
        let mut kept = self.0.lock();
        kept.next();
        if let Some(lists) = kept.files.remove(&ino) {
            kept.records -= lists.count();
        }
    }

    /// The file's attributes were read. If its times differ from the known ones, all lists are
    /// dropped.
    pub(super) fn seen(&self, ino: Ino, attr: &Attr) {
        let times = Some((attr.mtime, attr.ctime));
        let mut kept = self.0.lock();
        let Some(lists) = kept.files.get_mut(&ino) else { return };
        if lists.times == times {
            return;
        }
        lists.times = times;
        let gone = lists.count();
        lists.chunks.clear();
        let generation = kept.next();
        kept.records -= gone;
        if let Some(lists) = kept.files.get_mut(&ino) {
            lists.changed = generation;
        }
    }
}

impl Kept {
    fn next(&mut self) -> u64 {
        self.generation += 1;
        self.generation
    }
}

impl Lists {
    fn count(&self) -> usize {
        self.chunks.values().map(|list| counted(&list.records)).sum()
    }
}

#[cfg(test)]
mod tests {
    use sluice_types::FileType;

    use super::*;

    const INO: Ino = Ino(7);

    fn list(id: u64) -> Vec<Slice> {
        vec![Slice::whole(0, id, 10)]
    }

    #[test]
    fn a_list_asked_for_before_a_change_is_not_kept() {
        let records = ChunkRecords::default();
        let asked = records.begin_read(INO);
        records.changed(INO, 0);
        records.keep(INO, 0, asked, list(1));
        assert!(records.get(INO, 0).is_none());
        let asked = records.begin_read(INO);
        let kept = records.keep(INO, 0, asked, list(2));
        assert!(Arc::ptr_eq(&kept, &records.keep(INO, 0, asked, list(2))), "equal lists are one");
        assert!(Arc::ptr_eq(&kept, &records.get(INO, 0).unwrap()));
        records.forget(INO);
        records.keep(INO, 0, asked, list(2));
        assert!(records.get(INO, 0).is_none());
    }

    #[test]
    fn of_two_answers_the_one_that_was_asked_for_later_counts() {
        let records = ChunkRecords::default();
        let (one, other) = (records.begin_read(INO), records.begin_read(INO));
        records.keep(INO, 0, other, list(2));
        assert_eq!(records.keep(INO, 0, one, list(1))[..], list(2)[..], "it came last");
        assert_eq!(records.get(INO, 0).unwrap()[..], list(2)[..]);
    }

    #[test]
    fn other_times_drop_all_lists() {
        let records = ChunkRecords::default();
        let time = Time::from_nanos(5);
        let mut attr = Attr::new(FileType::File, 0o644, 0, 0, Ino::ROOT, time);
        let asked = records.begin_read(INO);
        records.seen(INO, &attr);
        records.keep(INO, 3, asked, list(1));
        assert!(records.get(INO, 3).is_none(), "asked for before the times were known");
        let keep = || {
            let asked = records.begin_read(INO);
            records.keep(INO, 3, asked, list(1));
        };
        keep();
        records.seen(INO, &attr);
        assert!(records.get(INO, 3).is_some());
        attr.mtime = time.next();
        records.seen(INO, &attr);
        assert!(records.get(INO, 3).is_none());
        keep();
        attr.ctime = time.next();
        records.seen(INO, &attr);
        assert!(records.get(INO, 3).is_none(), "its mtime was set back");
        assert_eq!(records.0.lock().records, 0);
    }
}
