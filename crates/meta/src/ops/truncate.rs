//! Truncate: sets the length of a file, and the two allocations of `fallocate(2)` that the format
//! knows.
//!
//! Bytes after the end of a file must read as zeros if it grows again, whichever program grows it.
//! So a truncation writes holes over the bytes that it cuts off (JuiceFS volume format, "Truncate,
//! punch, extend").

use sluice_types::{
    Access, Attr, AttrFlags, CHUNK_SIZE, Caller, FsError, Ino, MAX_FILE_SIZE, Slice, Time, align4k,
};
use smallvec::smallvec;

use super::{compact::release, rules, setattr::without_suid};
use crate::{
    change_log::Line,
    effect_log::{Effect, EffectKind},
    engine::{Hold, List, Write},
    op::{ConflictKey, ConflictKeys, Op},
    schema::{DirStat, Key, Row},
    view::{Stop, View},
    want::Want,
};

/// Sets the length of a file. Two trips to grow it, three to shrink it, four if that empties whole
/// chunks.
#[derive(Clone, Debug)]
pub struct Truncate {
    /// The file.
    pub ino: Ino,
    /// New length in bytes.
    pub length: u64,
    /// Whether the file is open for writing, so that permission was given when it was opened.
    pub opened: bool,
    /// Whether setuid and setgid go.
    pub kill_suid: bool,
    /// Who asks.
    pub caller: Caller,
}

impl Op for Truncate {
    type Out = Attr;
    const NAME: &'static str = "truncate";

    fn conflict_keys(&self) -> ConflictKeys {
        smallvec![ConflictKey::Node(self.ino)]
    }

    fn effect(&self, _attr: &Attr) -> Option<Effect> {
        Some(Effect { kind: EffectKind::Truncate, value: 0 })
    }

    fn run(&self, view: &mut View<'_>) -> Result<Attr, Stop> {
        let mut attr = changing_file(view, self.ino, self.opened)?;
        rules::require(!attr.flags.has(AttrFlags::APPEND), FsError::Perm)?;
        rules::require(self.length <= MAX_FILE_SIZE, FsError::FileTooBig)?;
        if !self.opened {
            rules::check(view, &self.caller, &attr, Access::WRITE)?;
        }
        let from = attr.length;
        if self.length < from {
            zero(view, self.ino, self.length, attr.length, attr.length)?;
        }
        resize(view, self.ino, &mut attr, self.length)?;
        changed_content(&mut attr, view.now(), view.now());
        if self.kill_suid {
            attr.mode = without_suid(&attr);
        }
        view.put(Row::Node(self.ino, attr));
        let Self { ino, length: to, opened, .. } = *self;
        view.log(|| Line::Truncate { ino, from, to, opened });
        Ok(attr)
    }
}

/// What `fallocate(2)` does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Allocation {
    /// Makes room; the file grows to cover the range.
    Extend,
    /// Makes room; the length stays.
    KeepSize,
    /// Makes a hole; the length stays.
    PunchHole,
    /// Makes zeros; the file grows to cover the range unless told to keep its size.
    ZeroRange {
        /// Whether the length stays.
        keep_size: bool,
    },
}

impl Allocation {
    /// Its bits in the mode of `fallocate(2)`.
    const fn mode(self) -> u8 {
        match self {
            Self::Extend => 0,
            Self::KeepSize => 1,
            Self::PunchHole => 3,
            Self::ZeroRange { keep_size: false } => 0x10,
            Self::ZeroRange { keep_size: true } => 0x11,
        }
    }
}

/// Allocates, punches or zeroes a range. Two trips.
#[derive(Clone, Debug)]
pub struct Fallocate {
    /// The file.
    pub ino: Ino,
    /// What to do.
    pub what: Allocation,
    /// First byte.
    pub offset: u64,
    /// Bytes, at least one.
    pub length: u64,
}

impl Op for Fallocate {
    type Out = Attr;
    const NAME: &'static str = "fallocate";

    fn conflict_keys(&self) -> ConflictKeys {
        smallvec![ConflictKey::Node(self.ino)]
    }

    fn effect(&self, _attr: &Attr) -> Option<Effect> {
        Some(Effect { kind: EffectKind::Allocate, value: 0 })
    }

    fn run(&self, view: &mut View<'_>) -> Result<Attr, Stop> {
        let mut attr = changing_file(view, self.ino, true)?;
        rules::require(self.length > 0, FsError::Invalid)?;
        let end = self.offset.checked_add(self.length).filter(|end| *end <= MAX_FILE_SIZE);
        let end = end.ok_or(FsError::FileTooBig)?;
        let append = attr.flags.has(AttrFlags::APPEND);
        let (zeroes, grows) = match self.what {
            Allocation::Extend => (false, true),
            Allocation::KeepSize => (false, false),
            Allocation::PunchHole => (true, false),
            Allocation::ZeroRange { keep_size } => (true, !keep_size),
        };
        rules::require(!(zeroes && append), FsError::Perm)?;
        if zeroes && self.offset < attr.length {
            zero(view, self.ino, self.offset, end.min(attr.length), attr.length)?;
        }
        let length = if grows { attr.length.max(end) } else { attr.length };
        if length != attr.length || zeroes {
            resize(view, self.ino, &mut attr, length)?;
            changed_content(&mut attr, view.now(), view.now());
            view.put(Row::Node(self.ino, attr));
            let Self { ino, offset, length, .. } = *self;
            view.log(|| Line::Fallocate { ino, offset, length, mode: self.what.mode() });
        }
        Ok(attr)
    }
}

/// A regular file whose content is about to change. Who has it open may go on when it becomes
/// immutable or goes to the trash.
pub fn changing_file(view: &mut View<'_>, ino: Ino, opened: bool) -> Result<Attr, Stop> {
    let attr = rules::existing(view, ino, Hold::Lock)?;
    match attr.kind {
        sluice_types::FileType::File => {}
        sluice_types::FileType::Dir => return Err(FsError::IsDir.into()),
        _ => return Err(FsError::Invalid.into()),
    }
    let protected = attr.flags.has(AttrFlags::IMMUTABLE) || attr.parent.is_trash_hour();
    rules::require(opened || !protected, FsError::Perm)?;
    Ok(attr)
}

/// Sets the length, and accounts for the difference everywhere.
pub fn resize(view: &mut View<'_>, ino: Ino, attr: &mut Attr, length: u64) -> Result<(), Stop> {
    let usage = DirStat {
        length: length as i64 - attr.length as i64,
        space: align4k(length) - align4k(attr.length),
        inodes: 0,
    };
    if usage.is_zero() {
        return Ok(());
    }
    attr.length = length;
    let parents = parents(view, ino, attr)?;
    rules::admit(view, Ino::NONE, (attr.uid, attr.gid), usage.space, 0)?;
    rules::admit_names(view, &parents, usage.space)?;
    rules::charge_volume(view, attr, usage.space, 0);
    for (parent, links) in parents {
        // A long file of many names is more than a directory can count.
        let times = |bytes: i64| bytes.checked_mul(links).ok_or(FsError::FileTooBig);
        let (length, space) = (times(usage.length)?, times(usage.space)?);
        rules::use_dir(view, parent, DirStat { length, space, inodes: 0 });
        rules::charge_tree(view, parent, space, 0)?;
    }
    Ok(())
}

/// Directories a node is in, and how often: in none if it has no name left, although it may still
/// say in which it was.
fn parents(view: &mut View<'_>, ino: Ino, attr: &Attr) -> Result<Vec<(Ino, i64)>, Stop> {
    if attr.nlink == 0 {
        return Ok(Vec::new());
    }
    if attr.parent != Ino::NONE {
        return Ok(vec![(attr.parent, 1)]);
    }
    let rows = view.all(List::Parents(ino), Hold::None)?;
    Ok(rows
        .into_iter()
        .filter_map(|row| match row {
            Row::Parents(_, parent, links) if links > 0 => Some((parent, links)),
            _ => None,
        })
        .collect())
}

/// Notes that the content changed at `mtime`. Readers elsewhere drop their cached chunk lists only
/// if the time is another one than before.
pub fn changed_content(attr: &mut Attr, mtime: Time, now: Time) {
    attr.mtime = if mtime == attr.mtime { mtime.next() } else { mtime };
    rules::advance_ctime(attr, now);
}

/// Hides what the file shows in `from .. to`. Chunks that lie in it whole are dropped, so that no
/// chunk is left after the end of a file: the records of a deleted file are only looked for up to
/// its length. The rest gets holes.
fn zero(view: &mut View<'_>, ino: Ino, from: u64, to: u64, file_end: u64) -> Result<(), Stop> {
    let (first, last) = ((from / CHUNK_SIZE) as u32, ((to - 1) / CHUNK_SIZE) as u32);
    let list = List::Chunks(ino, first, last + 1);
    view.want(&[Want::node(ino, Hold::Lock), Want::all(list, Hold::None)])?;
    let mut dropped = Vec::new();
    for row in view.all(list, Hold::None)? {
        let Row::Chunk(_, index, records) = row else { continue };
        let start = u64::from(index) * CHUNK_SIZE;
        let begin = from.max(start) - start;
        let end = to.min(start + CHUNK_SIZE) - start;
        if begin == 0 && (end == CHUNK_SIZE || start + end >= file_end) {
            dropped.push((index, records));
        } else if records.iter().any(|record| u64::from(record.end()) > begin) {
            view.write(Write::Append(ino, index, vec![Slice::hole(begin as u32, (end - begin) as u32)]));
        }
    }
    drop_chunks(view, ino, &dropped)
}

/// Drops whole chunks. Slices to which nothing refers any more stay recorded until the next
/// cleaning deletes their blocks.
fn drop_chunks(view: &mut View<'_>, ino: Ino, chunks: &[(u32, Vec<Slice>)]) -> Result<(), Stop> {
    let mut reads = refs(chunks.iter().flat_map(|(_, records)| records));
    reads.extend(chunks.iter().map(|(index, _)| Want::get(Key::Chunk(ino, *index), Hold::Lock)));
    view.want(&reads)?;
    // What counts is what the locked records say: a compaction may have come between the two looks.
    let mut shown = Vec::new();
    for (index, _) in chunks {
        let key = Key::Chunk(ino, *index);
        if let Some(Row::Chunk(_, _, records)) = view.get(&key, Hold::Lock)? {
            shown.extend(records);
            view.delete(key);
        }
    }
    view.want(&refs(shown.iter()))?;
    let shown: Vec<(u64, u32)> =
        shown.iter().filter(|slice| !slice.is_hole()).map(|slice| (slice.id, slice.size)).collect();
    release(view, &shown)?;
    Ok(())
}

/// The references of the slices to which records refer.
fn refs<'s>(records: impl Iterator<Item = &'s Slice>) -> Vec<Want> {
    let shown = records.filter(|slice| !slice.is_hole());
    shown.map(|slice| Want::get(Key::SliceRef(slice.id, slice.size), Hold::Lock)).collect()
}
