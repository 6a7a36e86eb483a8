//! Writes a volume as a binary dump.

use std::{
    io::Write,
    iter::once,
    sync::{
        Arc, Mutex, PoisonError,
        mpsc::{Receiver, SyncSender, TrySendError, sync_channel},
    },
    thread::{self, ScopedJoinHandle},
};

use roaring::RoaringTreemap;
use rustc_hash::FxHashMap;
use sluice_meta::{
    engine::{Cursor, Engine, Page, Scan},
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

/// Threads that read parts of a scan that can be divided. One more finds them, and reads those that
/// the others do not take at once.
const PART_READERS: usize = 3;

/// Records of a page of several kinds. Many, because etcd copies its newest changes for each
/// request.
const MIXED_ROWS: usize = 20_000;

/// What is not about one inode.
const OTHERS: [Scan; 5] = [Scan::DirStats, Scan::Acls, Scan::DelFiles, Scan::Quotas, Scan::SliceRefs];

/// Collections that are read one after the other, on one thread. Entries come after nodes: these
/// say which files have several names.
const APART: [&[Scan]; 3] = [
    &[Scan::Nodes, Scan::AllEntries],
    &[Scan::Chunks, Scan::SliceRefs],
    &[Scan::Symlinks, Scan::Xattrs, Scan::DirStats, Scan::Acls, Scan::DelFiles, Scan::Quotas],
];

/// As [`APART`], where a scan of one kind would look at all: what is not in [`Scan::Inodes`]. The
/// thread then reads parts.
const MIXED: [&[Scan]; 1] = [&OTHERS];

/// Writes the volume of `engine` to `out`, and gives `out` back. `progress` hears of records. All
/// of the volume is written; of the options only `keep_secrets` and `throttled` count.
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
    let source = &Source::now(engine, APART.len(), options.throttled)?;
    let lanes: &[&[Scan]] = if source.is_mixed { &MIXED } else { &APART };
    let mut writer = Writer::new(out);
    // The head is read beside the rest, and written first.
    let (sender, head_read) = sync_channel(1);
    let read_head = move || {
        // Who does not take it any more says why.
        let _ = sender.send(head(source, options.keep_secrets));
    };
    let mut head_read = Some(head_read);
    let mut write_head = |writer: &mut Writer<W>| {
        let Some(head) = head_read.take() else { return Ok(()) };
        head.recv().map_err(|_| given_up())??.into_iter().try_for_each(|row| writer.write(row))?;
        Segment::of_log(log.last, &log.lines).iter().try_for_each(|segment| writer.append(segment))
    };
    // Records are encoded here, so that a lane asks for its next page at once.
    let mut is_warned = false;
    read_all(source, lanes, read_head, progress, |rows| {
        write_head(&mut writer)?;
        is_warned = is_warned || warns_of_name(&rows);
        Segment::of(rows).iter().try_for_each(|segment| writer.append(segment))
    })?;
    write_head(&mut writer)?;
    writer.finish()
}

/// Warns of a name that this program loads and JuiceFS does not, if there is one.
fn warns_of_name(rows: &[Row]) -> bool {
    let strange = rows.iter().find_map(|row| match row {
        Row::Xattr(ino, name, _) if std::str::from_utf8(name).is_err() => Some((ino, name)),
        _ => None,
    });
    if let Some((ino, name)) = strange {
        tracing::warn!(
            "node {ino} has the extended attribute `{}`, whose name is not UTF-8: JuiceFS refuses to load this binary \
             dump, Sluice loads it. JuiceFS loads a JSON dump",
            name.escape_ascii()
        );
    }
    strange.is_some()
}

/// The setting, the counters, and files without links that are open.
fn head(source: &Source<'_>, keep_secrets: bool) -> Result<Vec<Row>, DumpError> {
    let setting = Row::Setting(setting(source, keep_secrets)?);
    let counters = counters(source)?.into_iter().map(|(counter, value)| Row::Counter(counter, value));
    let sustained = sustained(source)?.into_iter().map(|(sid, ino)| Row::Sustained(sid, ino));
    Ok(once(setting).chain(counters).chain(sustained).collect())
}

fn join<T>(thread: ScopedJoinHandle<'_, T>) -> T {
    thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

/// Reads the collections of each of `lanes` on a thread of its own, and all records about inodes if
/// a scan of one kind would look at all. Hands the pages to `take`, on the calling thread. The last
/// thread calls `first` before it reads.
pub(crate) fn read_all(
    source: &Source<'_>,
    lanes: &[&'static [Scan]],
    first: impl FnOnce() + Send,
    progress: &(dyn Fn(u64) + Sync),
    take: impl FnMut(Vec<Row>) -> Result<(), DumpError>,
) -> Result<(), DumpError> {
    thread::scope(|scope| {
        let (sender, pages) = sync_channel(WAITING);
        let lane = || Lane { source, sender: sender.clone(), progress, several: RoaringTreemap::new() };
        let (parts, queue) = sync_channel(PART_READERS);
        let queue = Arc::new(Mutex::new(queue));
        let threads = if source.is_mixed { PART_READERS } else { lanes.len() };
        let mut first = Some(first);
        let start = |at| {
            let (mut lane, scans, queue) = (lane(), lanes.get(at).copied(), queue.clone());
            let first = if at + 1 == threads { first.take() } else { None };
            scope.spawn(move || {
                if let Some(first) = first {
                    first();
                }
                lane.run(scans.unwrap_or_default())?;
                lane.read_parts(&queue)
            })
        };
        let mut lanes: Vec<_> = (0..threads).map(start).collect();
        if source.is_mixed {
            let lane = lane();
            lanes.push(scope.spawn(move || lane.divide(&parts)));
        } else {
            drop(parts);
        }
        // The threads have their own.
        drop((sender, queue));
        let taken = pages.iter().try_for_each(take);
        // Nobody waits for room once nobody takes any more.
        drop(pages);
        let read: Vec<Result<(), DumpError>> = lanes.into_iter().map(join).collect();
        taken.and_then(|()| read.into_iter().collect::<Result<(), _>>())
    })
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
    fn run(&mut self, scans: &[Scan]) -> Result<(), DumpError> {
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

    /// Reads everything about inodes; what can be read beside the rest goes to `parts`.
    fn divide(self, parts: &SyncSender<Cursor>) -> Result<(), DumpError> {
        let mut from = None;
        while let Some(next) = self.mixed_page(from.as_ref())? {
            let (divided, rest) = self.source.divide(next);
            for part in divided {
                // A part may be long, so only a page of it is read here before the next try.
                let mut left = Some(part);
                while let Some(part) = left.take() {
                    left = match parts.try_send(part) {
                        Ok(()) => None,
                        Err(TrySendError::Full(part)) => self.mixed_page(Some(&part))?,
                        Err(TrySendError::Disconnected(_)) => return Err(given_up().into()),
                    };
                }
            }
            if rest.is_none() {
                break;
            }
            from = rest;
        }
        Ok(())
    }

    /// Reads parts to their ends until no more come.
    fn read_parts(self, parts: &Mutex<Receiver<Cursor>>) -> Result<(), DumpError> {
        loop {
            let part = parts.lock().unwrap_or_else(PoisonError::into_inner).recv();
            let Ok(part) = part else { return Ok(()) };
            let mut from = Some(part);
            while from.is_some() {
                from = self.mixed_page(from.as_ref())?;
            }
        }
    }

    /// Reads and sends a page of records of several kinds. Returns where the next one begins.
    fn mixed_page(&self, from: Option<&Cursor>) -> Result<Option<Cursor>, DumpError> {
        let Page { rows, next, .. } = self.source.scan(Scan::Inodes, from, MIXED_ROWS)?.sound()?;
        self.send(rows)?;
        Ok(next)
    }

    fn send(&self, rows: Vec<Row>) -> Result<(), DumpError> {
        let count = rows.len() as u64;
        // Who writes says itself why it does no more.
        self.sender.send(rows).map_err(|_| given_up())?;
        (self.progress)(count);
        Ok(())
    }
}

/// Whoever takes what a thread reads has ended.
fn given_up() -> std::io::Error {
    std::io::ErrorKind::BrokenPipe.into()
}
