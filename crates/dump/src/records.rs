//! Writes a volume as a binary dump.

use std::{
    io::Write,
    sync::mpsc::{SyncSender, sync_channel},
    thread,
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
    head::{counters, setting},
    source::Source,
};

/// Segments that wait to be written.
const WAITING: usize = 4;

/// Collections that are read one after the other, on one thread. Entries come after nodes: these
/// say which files have several names.
const LANES: [&[Scan]; 3] = [
    &[Scan::Nodes, Scan::AllEntries],
    &[Scan::Chunks, Scan::SliceRefs],
    &[
        Scan::Symlinks,
        Scan::Xattrs,
        Scan::DirStats,
        Scan::Acls,
        Scan::DelFiles,
        Scan::Sustained,
        Scan::Quotas,
    ],
];

/// Writes the volume of `engine` to `out`, and gives `out` back. `progress` hears of records. All
/// of the volume is written; of the options only `keep_secrets` counts.
///
/// # Errors
/// If the database cannot be read, or `out` cannot be written.
pub fn dump_binary<W: Write>(
    engine: &dyn Engine,
    out: W,
    options: &DumpOptions,
    progress: &(dyn Fn(u64) + Sync),
) -> Result<W, DumpError> {
    let source = &Source::now(engine, LANES.len())?;
    let mut writer = Writer::new(out);
    writer.write(Row::Setting(setting(source, options.keep_secrets)?))?;
    for (counter, value) in counters(source)? {
        writer.write(Row::Counter(counter, value))?;
    }
    thread::scope(|scope| {
        let (sender, segments) = sync_channel(WAITING);
        let lanes = LANES.map(|scans| {
            let sender = sender.clone();
            scope.spawn(move || Lane { source, sender, progress, several: RoaringTreemap::new() }.run(scans))
        });
        drop(sender);
        let written = segments.iter().try_for_each(|segment| writer.append(&segment));
        // Nobody waits for room once nobody takes any more.
        drop(segments);
        let read = lanes.map(|lane| lane.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
        written.and_then(|()| read.into_iter().collect::<Result<(), _>>())
    })?;
    writer.finish()
}

/// Reads collections.
struct Lane<'a> {
    source: &'a Source<'a>,
    sender: SyncSender<Segment>,
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
                for row in &page.rows {
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
                self.send(page.rows)?;
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

    fn send(&self, rows: Vec<Row>) -> Result<(), DumpError> {
        let count = rows.len() as u64;
        if let Some(segment) = Segment::of(rows) {
            // Who writes says itself why it does no more.
            self.sender.send(segment).map_err(|_| std::io::Error::from(std::io::ErrorKind::BrokenPipe))?;
        }
        (self.progress)(count);
        Ok(())
    }
}
