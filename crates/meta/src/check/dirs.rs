//! Compares the entries of directories with the counts in their records.

use sluice_types::{FsResult, Ino};

use super::{
    finding::{Counted, Finding},
    report::Candidates,
};
use crate::{
    batch::Interrupt,
    engine::Scan,
    meta::Meta,
    schema::{DirStat, Row},
    sort::{Fields, SortError, SortSpace, Sorter},
};

/// Records about directories, by number of the directory.
pub(super) struct Dirs {
    sorter: Sorter,
    /// The directory of the last entries, and their sum.
    last: Option<(Ino, Held, i64)>,
}

/// What an entry adds to its directory.
#[derive(Clone, Copy, Default)]
pub(super) struct Held {
    /// Directories.
    pub(super) subdirs: i64,
    /// Bytes of a regular file.
    pub(super) length: i64,
    /// Bytes of space.
    pub(super) space: i64,
}

impl Dirs {
    pub(super) fn new(space: &SortSpace) -> Self {
        Self { sorter: Sorter::new(space), last: None }
    }

    /// Adds a directory.
    pub(super) fn dir(&mut self, dir: Ino, nlink: u32, named: bool, in_trash: bool) -> Result<(), SortError> {
        let flags = [u8::from(named), u8::from(in_trash)];
        self.sorter.add(&[&dir.0.to_be_bytes()[..], &[0], &nlink.to_be_bytes(), &flags].concat())
    }

    /// Adds an entry of `dir`.
    pub(super) fn hold(&mut self, dir: Ino, held: Held) -> Result<(), SortError> {
        // Entries of one directory often come in a row.
        let add = |sum: Held| Held {
            subdirs: sum.subdirs + held.subdirs,
            length: sum.length.wrapping_add(held.length),
            space: sum.space.wrapping_add(held.space),
        };
        match &mut self.last {
            Some((last, sum, entries)) if *last == dir => {
                (*sum, *entries) = (add(*sum), *entries + 1);
                Ok(())
            }
            _ => {
                self.complete()?;
                self.last = Some((dir, held, 1));
                Ok(())
            }
        }
    }

    /// All entries have been added.
    pub(super) fn complete(&mut self) -> Result<(), SortError> {
        let Some((dir, held, entries)) = self.last.take() else { return Ok(()) };
        self.numbers(dir, 1, &[held.subdirs, held.length, held.space, entries])
    }

    fn numbers(&mut self, dir: Ino, tag: u8, numbers: &[i64]) -> Result<(), SortError> {
        let mut record = [&dir.0.to_be_bytes()[..], &[tag]].concat();
        record.extend(numbers.iter().flat_map(|number| number.to_be_bytes()));
        self.sorter.add(&record)
    }

    /// Compares all directories.
    pub(super) fn compare(
        mut self,
        meta: &Meta,
        candidates: &mut Candidates,
        interrupt: &Interrupt,
    ) -> FsResult<()> {
        let has_stats = meta.env().format().dir_stats;
        if has_stats {
            meta.each_readable_page(Scan::DirStats, interrupt, |page| {
                for damage in page.damaged {
                    candidates.add(&Finding::unreadable(damage))?;
                }
                for row in page.rows {
                    let Row::DirStat(dir, DirStat { length, space, inodes }) = row else { continue };
                    self.numbers(dir, 2, &[length, space, inodes])?;
                }
                Ok(())
            })?;
        }
        let pass = Pass { meta, has_stats, interrupt };
        let sorted = self.sorter.sorted()?;
        let mut records = sorted.records()?;
        let mut of = Seen::default();
        while let Some((record, times)) = records.next()? {
            let mut fields = Fields(record);
            let dir = Ino(fields.u64());
            if dir != of.dir {
                pass.end(&of, candidates)?;
                of = Seen { dir, ..Seen::default() };
            }
            of.see(fields, times as i64);
        }
        pass.end(&of, candidates)
    }
}

/// The records of one directory.
#[derive(Default)]
struct Seen {
    dir: Ino,
    /// Links, whether it has a name, and whether that is in the trash.
    node: Option<(u32, bool, bool)>,
    subdirs: i64,
    counted: DirStat,
    stored: Option<DirStat>,
}

impl Seen {
    fn see(&mut self, mut fields: Fields<'_>, times: i64) {
        let tag = fields.u8();
        if tag == 0 {
            self.node = Some((fields.u32(), fields.u8() == 1, fields.u8() == 1));
            return;
        }
        let mut number = || fields.u64() as i64;
        if tag == 1 {
            self.subdirs += times * number();
        }
        let stat = DirStat { length: number(), space: number(), inodes: number() };
        if tag == 2 {
            self.stored = Some(stat);
            return;
        }
        let sum = &mut self.counted;
        sum.length = sum.length.wrapping_add(times.wrapping_mul(stat.length));
        sum.space = sum.space.wrapping_add(times.wrapping_mul(stat.space));
        sum.inodes += times * stat.inodes;
    }
}

struct Pass<'a> {
    meta: &'a Meta,
    has_stats: bool,
    interrupt: &'a Interrupt,
}

impl Pass<'_> {
    /// All records of a directory have been read.
    fn end(&self, of: &Seen, candidates: &mut Candidates) -> FsResult<()> {
        let (dir, counted) = (of.dir, of.counted);
        let Some((nlink, named, in_trash)) = of.node else {
            // A missing root is a finding of its own.
            let reported = counted.inodes == 0 || dir == Ino::ROOT;
            return if reported { Ok(()) } else { self.without_dir(dir, candidates) };
        };
        let links = Counted { stored: i64::from(nlink), counted: 2 + of.subdirs };
        if links.stored != links.counted && (dir == Ino::ROOT || named && !dir.is_trash()) {
            candidates.add(&Finding::Links { ino: dir, links })?;
        }
        // A directory in the trash has no record: it is removed with its name.
        if self.has_stats
            && dir != Ino::TRASH
            && of.stored != Some(counted)
            && (of.stored.is_some() || !in_trash)
        {
            candidates.add(&Finding::Usage { dir, stored: of.stored, counted })?;
        }
        Ok(())
    }

    /// Reports the entries of a directory that does not exist.
    fn without_dir(&self, dir: Ino, candidates: &mut Candidates) -> FsResult<()> {
        if candidates.are_unreadable() {
            return Ok(());
        }
        self.meta.each_page(Scan::Entries { dir, nodes: false }, self.interrupt, |rows| {
            rows.into_iter().try_for_each(|row| match row {
                Row::Entry(dir, name, entry) => {
                    candidates.add(&Finding::EntryWithoutDir { dir, name, ino: entry.ino })
                }
                _ => Ok(()),
            })
        })
    }
}
