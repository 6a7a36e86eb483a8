//! The data that waits for deletion: the trash, deleted files and replaced slices.

use serde::Serialize;
use sluice_meta::{
    Interrupt, Meta,
    engine::{Engine, Found, Read, Scan},
    schema::{Key, Row},
};
use sluice_types::{FsError, FsResult, Ino, align4k};

/// Most records of a kind that are counted.
const MOST: u64 = 100_000;

/// Records asked for at once.
const BATCH: usize = 1024;

/// What lies in the trash.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub(crate) struct Trash {
    /// Days that removed files are kept; 0 if they are not.
    pub(crate) days: i64,
    /// Hours of which something is there.
    pub(crate) hours: u64,
    /// Those that should be gone.
    pub(crate) overdue_hours: u64,
    /// Age of the oldest in seconds.
    pub(crate) oldest_seconds: u64,
    /// Entries, as statistics of directories tell; `None` if they do not.
    pub(crate) entries: Option<i64>,
    /// Bytes, likewise.
    pub(crate) bytes: Option<i64>,
}

/// Reads what lies in the trash: two records for each hour of it.
pub(crate) fn trash(engine: &dyn Engine, meta: &Meta, interrupt: &Interrupt) -> FsResult<Trash> {
    let backlog = meta.trash_backlog(interrupt)?;
    let mut trash = Trash {
        days: meta.env().format().trash_days,
        hours: backlog.hours,
        overdue_hours: backlog.overdue,
        oldest_seconds: backlog.oldest,
        entries: None,
        bytes: None,
    };
    if backlog.hours == 0 {
        (trash.entries, trash.bytes) = (Some(0), Some(0));
        return Ok(trash);
    }
    let mut reads = Vec::new();
    meta.each_page(Scan::Entries { dir: Ino::TRASH, nodes: false }, interrupt, |rows| {
        reads.extend(rows.into_iter().filter_map(|row| match row {
            Row::Entry(_, _, entry) => Some(Read::Get(Key::DirStat(entry.ino))),
            _ => None,
        }));
        Ok(())
    })?;
    let (mut entries, mut bytes) = (0, 0);
    for some in reads.chunks(BATCH) {
        for found in engine.read(some).map_err(FsError::io)? {
            if let Found::Row(Some(Row::DirStat(_, stat))) = found {
                entries += stat.inodes;
                bytes += stat.space;
            }
        }
    }
    // Programs that keep none leave it at nothing.
    if entries > 0 {
        (trash.entries, trash.bytes) = (Some(entries), Some(bytes.max(0)));
    }
    Ok(trash)
}

/// Records of one kind, with the bytes that they stand for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub(crate) struct Tally {
    pub(crate) count: u64,
    pub(crate) bytes: u64,
    /// Whether there are more, which were not counted.
    pub(crate) more: bool,
}

impl Tally {
    fn add(&mut self, bytes: u64) {
        self.count += 1;
        self.bytes += bytes;
    }
}

/// What waits to be deleted from the object store.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub(crate) struct Deletions {
    /// Removed files whose objects are there.
    pub(crate) files: Tally,
    /// Slices that compactions replaced, and that are kept as long as the trash keeps files.
    pub(crate) replaced_slices: Tally,
}

/// Counts what waits to be deleted, as far as it is not too much.
pub(crate) fn deletions(meta: &Meta, interrupt: &Interrupt) -> FsResult<Deletions> {
    let files = counted(meta, Scan::DelFiles, interrupt, |row, files| {
        if let Row::DelFile(_, length, _) = row {
            files.add(align4k(*length) as u64);
        }
    })?;
    let replaced_slices = counted(meta, Scan::DelSlices, interrupt, |row, slices| {
        if let Row::DelSlices(_, _, replaced) = row {
            for (_, size) in replaced {
                slices.add(u64::from(*size));
            }
        }
    })?;
    Ok(Deletions { files, replaced_slices })
}

fn counted(
    meta: &Meta,
    scan: Scan,
    interrupt: &Interrupt,
    add: impl Fn(&Row, &mut Tally),
) -> FsResult<Tally> {
    let mut tally = Tally::default();
    let counted = meta.each_page(scan, interrupt, |rows| {
        for row in &rows {
            add(row, &mut tally);
        }
        tally.more = tally.count >= MOST;
        // Ends the scan.
        if tally.more { Err(FsError::Interrupted) } else { Ok(()) }
    });
    if tally.more { Ok(tally) } else { counted.map(|()| tally) }
}
