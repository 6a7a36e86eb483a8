//! A JSON dump in two steps. First the records are read in the order of the tables, at full speed,
//! into temporary files. Then the files are sorted into the order of the tree.
//!
//! What must stay true: the copy is of one moment, and the snapshot of that moment is gone before
//! anything else is done with the copy. While a database keeps a snapshot, it keeps old versions of
//! records, which slow down whoever changes them.

mod dirs;
mod pieces;

use std::{
    cell::RefCell,
    fs::File,
    io::{self, BufReader, BufWriter, Seek, Write},
    path::{Path, PathBuf},
};

use rustc_hash::FxHashMap;
use sluice_meta::{
    engine::{Engine, Found, Read, Scan},
    schema::{AclRule, Counter, Key, Row},
    sort::{SortSpace, Sorter},
};
use sluice_types::Ino;

use self::{
    dirs::Dirs,
    pieces::{encode, get, put},
};
use crate::{
    DumpError, DumpOptions,
    head::{acls, head},
    json::{Head, Writer},
    log::LogEnd,
    records::read_all,
    retry::retry,
    source::Source,
    throttle::WorkThrottle,
    tree::{no_trash, write_trees},
};

/// Bytes written to a file at once.
const BUFFER: usize = 1 << 20;

/// Inodes from which on a volume is large.
const LARGE: i64 = 1_000_000;

/// Collections that are read one after the other, on one thread and one connection.
const LANES: [&[Scan]; 3] =
    [&[Scan::Nodes], &[Scan::AllEntries], &[Scan::Chunks, Scan::Symlinks, Scan::Xattrs]];

/// All of a volume that a JSON dump holds, at one moment, in files without names.
pub struct LocalCopy {
    dir: PathBuf,
    head: Head,
    acls: FxHashMap<u32, AclRule>,
    /// What belongs to inodes, in any order.
    pieces: File,
}

impl LocalCopy {
    /// Copies the volume of `engine` to `dir`, some 200 bytes for each file. `keep_secrets` says
    /// whether keys and tokens for the object store stay in the settings. It is of one moment if
    /// the engine has snapshots ([`has_snapshots`]).
    ///
    /// # Errors
    /// If the database cannot be read, any record is damaged, or `dir` cannot be written.
    pub fn take(engine: &dyn Engine, dir: &Path, keep_secrets: bool) -> Result<Self, DumpError> {
        let log = LogEnd::read(engine)?;
        let mut pieces = BufWriter::with_capacity(BUFFER, tempfile::tempfile_in(dir)?);
        let source = &Source::now(engine, LANES.len(), false)?;
        let mut head = head(source, keep_secrets)?;
        (head.last_logged, head.lines) = (log.last, log.lines);
        let acls = acls(source)?;
        let mut piece = Vec::new();
        let lanes: &[&[Scan]] = if source.is_mixed { &[] } else { &LANES };
        read_all(
            source,
            lanes,
            || (),
            &|_| {},
            |rows| {
                for row in &rows {
                    if encode(row, &mut piece) {
                        put(&mut pieces, &piece)?;
                    }
                }
                Ok(())
            },
        )?;
        let pieces = pieces.into_inner().map_err(io::IntoInnerError::into_error)?;
        Ok(Self { dir: dir.to_owned(), head, acls, pieces })
    }

    /// Writes what [`dump_json`](crate::dump_json) would have written at that moment, and gives
    /// `out` back. `progress` hears of entries. Takes as much room again in the folder as the copy.
    /// If the options say `throttled`, it pauses for most of the time, up to some minutes.
    ///
    /// # Errors
    /// If the folder of the copy or `out` cannot be written.
    pub fn dump_json<W: Write>(
        self,
        out: W,
        options: &DumpOptions,
        progress: &dyn Fn(u64),
    ) -> Result<W, DumpError> {
        let Self { dir, head, acls, mut pieces } = self;
        let mut sorter = Sorter::new(&SortSpace { dir: dir.clone(), ..SortSpace::default() });
        pieces.rewind()?;
        let mut input = BufReader::with_capacity(BUFFER, pieces);
        let (mut piece, mut throttle) = (Vec::new(), WorkThrottle::new(options.throttled));
        while get(&mut input, &mut piece)? {
            sorter.add(&piece)?;
            throttle.step();
        }
        // Its room is needed.
        drop(input);
        let (dirs, found) =
            Dirs::new(&sorter.sorted()?, &dir, acls, &[Ino::ROOT, Ino::TRASH], &mut throttle)?;
        let of = |ino| found.iter().find(|node| node.ino == ino).cloned();
        let mut roots = vec![of(Ino::ROOT).ok_or(DumpError::NoDirectory(Ino::ROOT))?];
        if !options.skip_trash {
            roots.push(of(Ino::TRASH).unwrap_or_else(no_trash));
        }
        let mut writer = Writer::new(out, &head);
        let throttle = RefCell::new(throttle);
        write_trees(&dirs, roots, &mut writer, &|count| {
            progress(count);
            throttle.borrow_mut().step();
        })?;
        writer.finish()
    }
}

/// Whether a JSON dump of all of the volume is faster by way of a copy, and as exact. The records
/// of a large volume do not fit into the caches of its database, and to read them in the order of
/// the tree takes several times as long as in the order of the tables.
///
/// # Errors
/// If the database cannot be asked.
pub fn is_faster_by_copy(engine: &dyn Engine) -> Result<bool, DumpError> {
    let inodes = retry(|| engine.read(&[Read::Get(Key::Counter(Counter::TotalInodes))]))?;
    let is_large = matches!(inodes[..], [Found::Row(Some(Row::Counter(_, inodes)))] if inodes >= LARGE);
    Ok(is_large && has_snapshots(engine)?)
}

/// Whether `engine` can show one moment of its volume, whatever others change meanwhile.
///
/// # Errors
/// If the database cannot be asked.
pub fn has_snapshots(engine: &dyn Engine) -> Result<bool, DumpError> {
    Ok(retry(|| engine.snapshot(1))?.is_some())
}
