//! Writes a volume as a binary dump.

use std::{
    io::Write,
    mem::{Discriminant, discriminant},
    sync::mpsc::{SyncSender, sync_channel},
    thread::{self, ScopedJoinHandle},
};

use roaring::RoaringTreemap;
use rustc_hash::FxHashMap;
use sluice_meta::{
    engine::{Engine, Scan},
    schema::Row,
};
use sluice_types::Ino;

use crate::{
    DumpError, DumpOptions,
    binary::{ROWS, Segment, Writer},
    head::{counters, setting, sustained},
    log::LogEnd,
    source::Source,
};

/// Pages that wait to be written.
const WAITING: usize = 4;

/// What is not about one inode.
const OTHERS: [Scan; 5] = [Scan::DirStats, Scan::Acls, Scan::DelFiles, Scan::Quotas, Scan::SliceRefs];

/// Collections that are read one after the other, on one thread. Entries come after nodes: these
/// say which files have several names.
const APART: [&[Scan]; 3] = [
    &[Scan::Nodes, Scan::AllEntries],
    &[Scan::Chunks, Scan::SliceRefs],
    &[Scan::Symlinks, Scan::Xattrs, Scan::DirStats, Scan::Acls, Scan::DelFiles, Scan::Quotas],
];

/// As [`APART`], where a scan of one kind would look at all.
const MIXED: [&[Scan]; 2] = [&[Scan::Inodes], &OTHERS];

/// Writes the volume of `engine` to `out`, and gives `out` back. `progress` hears of records. All
/// of the volume is written; of the options only `keep_secrets` and
/// `gentle` count.
///
/// # Errors
/// If the database cannot be read, or `out` cannot be written.
pub fn dump_binary<W: Write>(
    engine: &dyn Engine,
    out: W,
    options: &DumpOptions,
    progress: &(dyn Fn(u64) + Sync),
) -> Result<W, DumpError> {
    let log = LogEnd::read(engine)?;
    let source = &Source::now(engine, APART.len(), options.gentle)?;
    let lanes: &[&[Scan]] = if source.is_mixed { &MIXED } else { &APART };
    let mut writer = Writer::new(out);
    writer.write(Row::Setting(setting(source, options.keep_secrets)?))?;
    for (counter, value) in counters(source)? {
        writer.write(Row::Counter(counter, value))?;
    }
    for (sid, ino) in sustained(source)? {
        writer.write(Row::Sustained(sid, ino))?;
    }
    for segment in Segment::of_log(log.last, &log.lines) {
        writer.append(&segment)?;
    }
    thread::scope(|scope| {
        let (sender, pages) = sync_channel(WAITING);
        let start = |scans: &&'static [Scan]| {
            let (sender, scans) = (sender.clone(), *scans);
            scope.spawn(move || Lane { source, sender, progress, several: RoaringTreemap::new() }.run(scans))
        };
        let lanes: Vec<_> = lanes.iter().map(start).collect();
        drop(sender);
        // Records are encoded here, so that a lane asks for its next page at once.
        let written = pages.iter().try_for_each(|rows| match Segment::of(rows) {
            Some(segment) => writer.append(&segment),
            None => Ok(()),
        });
        // Nobody waits for room once nobody takes any more.
        drop(pages);
        let join = |lane: ScopedJoinHandle<'_, _>| {
            lane.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        };
        let read: Vec<Result<(), DumpError>> = lanes.into_iter().map(join).collect();
        written.and_then(|()| read.into_iter().collect::<Result<(), _>>())
    })?;
    writer.finish()
}

/// Reads collections.
struct Lane<'a> {
    source: &'a Source<'a>,
    sender: SyncSender<Vec<Row>>,
    progress: &'a (dyn Fn(u64) + Sync),
    /// Files with several names.
    several: RoaringTreemap,
}

impl Lane<'_> {
    fn run(mut self, scans: &[Scan]) -> Result<(), DumpError> {
        let mut names: FxHashMap<(Ino, Ino), i64> = FxHashMap::default();
        for scan in scans {
            let mut from = None;
            loop {
                let page = self.source.scan(*scan, from.as_ref(), ROWS)?.sound()?;
                // Where all comes together, parents do, too.
                let alone = if *scan == Scan::Inodes { &[][..] } else { &page.rows };
                for row in alone {
                    match row {
                        Row::Node(ino, attr) if attr.parent == Ino::NONE => {
                            self.several.insert(ino.0);
                        }
                        Row::Entry(dir, _, to) if self.several.contains(to.ino.0) => {
                            *names.entry((to.ino, *dir)).or_default() += 1;
                        }
                        _ => {}
                    }
                }
                if *scan == Scan::Inodes {
                    self.send_mixed(page.rows)?;
                } else {
                    self.send(page.rows)?;
                }
                from = page.next;
                if from.is_none() {
                    break;
                }
            }
        }
        // Some engines keep no record of it.
        let mut parents: Vec<Row> =
            names.into_iter().map(|((ino, dir), count)| Row::Parents(ino, dir, count)).collect();
        while !parents.is_empty() {
            let rest = parents.split_off(parents.len().min(ROWS));
            self.send(std::mem::replace(&mut parents, rest))?;
        }
        Ok(())
    }

    /// Sends records of several kinds.
    fn send_mixed(&self, rows: Vec<Row>) -> Result<(), DumpError> {
        let mut kinds: FxHashMap<Discriminant<Row>, Vec<Row>> = FxHashMap::default();
        for row in rows {
            kinds.entry(discriminant(&row)).or_default().push(row);
        }
        kinds.into_values().try_for_each(|rows| self.send(rows))
    }

    fn send(&self, rows: Vec<Row>) -> Result<(), DumpError> {
        let count = rows.len() as u64;
        // Who writes says itself why it does no more.
        self.sender.send(rows).map_err(|_| std::io::Error::from(std::io::ErrorKind::BrokenPipe))?;
        (self.progress)(count);
        Ok(())
    }
}
