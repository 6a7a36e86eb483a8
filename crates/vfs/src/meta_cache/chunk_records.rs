//! The records of chunks that this client read, kept until it learns that the file changed.
//!
//! What must stay true: a list that was asked for before a change made here is never kept after it,
//! and every list of a file goes when the file's times turn out to be others than those known when
//! the list was asked for. Its mtime alone is not enough: whoever rewrites a file may set that
//! back.

use std::sync::Arc;

use parking_lot::Mutex;
use rustc_hash::FxHashMap;
use sluice_types::{Attr, Ino, Slice, Time};

/// Records kept at most; 24 bytes each.
const MOST_RECORDS: usize = 1 << 20;
/// Files kept at most.
const MOST_FILES: usize = 1 << 14;

/// Chunk lists of many files.
#[derive(Default)]
pub(super) struct ChunkRecords(Mutex<Kept>);

#[derive(Default)]
struct Kept {
    files: FxHashMap<Ino, Lists>,
    records: usize,
    /// Rises with every change, so that a list that was asked for before it is recognized.
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

impl ChunkRecords {
    /// A kept list.
    pub(super) fn get(&self, ino: Ino, index: u32) -> Option<Arc<[Slice]>> {
        self.0.lock().files.get(&ino)?.chunks.get(&index).map(|list| Arc::clone(&list.records))
    }

    /// To be called before a list is asked for; what it answers goes to [`Self::keep`].
    pub(super) fn asking(&self, ino: Ino) -> u64 {
        let mut kept = self.0.lock();
        if kept.files.len() >= MOST_FILES {
            kept.files.clear();
            kept.records = 0;
        }
        let changed = kept.generation;
        kept.files.entry(ino).or_insert_with(|| Lists { changed, ..Lists::default() });
        kept.next()
    }

    /// Keeps a list unless the file changed since it was asked for. Answers the list to use, the
    /// one that was kept before if it says the same, or was asked for later.
    pub(super) fn keep(&self, ino: Ino, index: u32, asked: u64, list: Vec<Slice>) -> Arc<[Slice]> {
        let mut kept = self.0.lock();
        if kept.records + list.len() > MOST_RECORDS {
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
        let (gone, come) = (old.map_or(0, |old| old.records.len()), list.len());
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
            kept.records -= list.records.len();
        }
    }

    /// This client changed a file anywhere, or it is no more.
    pub(super) fn forget(&self, ino: Ino) {
        let mut kept = self.0.lock();
        kept.next();
        if let Some(lists) = kept.files.remove(&ino) {
            kept.records -= lists.count();
        }
    }

    /// The file's attributes were seen: if its times are not those known so far, all lists go.
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
        self.chunks.values().map(|list| list.records.len()).sum()
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
        let asked = records.asking(INO);
        records.changed(INO, 0);
        records.keep(INO, 0, asked, list(1));
        assert!(records.get(INO, 0).is_none());
        let asked = records.asking(INO);
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
        let (one, other) = (records.asking(INO), records.asking(INO));
        records.keep(INO, 0, other, list(2));
        assert_eq!(records.keep(INO, 0, one, list(1))[..], list(2)[..], "it came last");
        assert_eq!(records.get(INO, 0).unwrap()[..], list(2)[..]);
    }

    #[test]
    fn other_times_drop_all_lists() {
        let records = ChunkRecords::default();
        let time = Time::from_nanos(5);
        let mut attr = Attr::new(FileType::File, 0o644, 0, 0, Ino::ROOT, time);
        let asked = records.asking(INO);
        records.seen(INO, &attr);
        records.keep(INO, 3, asked, list(1));
        assert!(records.get(INO, 3).is_none(), "asked for before the times were known");
        let keep = || {
            let asked = records.asking(INO);
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
