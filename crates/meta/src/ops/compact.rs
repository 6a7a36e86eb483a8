//! Compact: replaces many records of a chunk by one with the same bytes.

use sluice_types::{FsError, Ino, Slice};
use smallvec::smallvec;

use super::rules;
use crate::{
    change_log::Line,
    engine::{Hold, Write},
    op::{ConflictKey, ConflictKeys, Op},
    schema::{Key, Row},
    view::{Stop, View},
    want::Want,
};

/// Replaces the first records of a chunk, if they are still those that were read, by one. Records
/// appended meanwhile stay after it. Neither length nor times change. Two trips.
#[derive(Clone, Debug)]
pub struct Compact {
    /// The file.
    pub ino: Ino,
    /// The chunk.
    pub index: u32,
    /// The records that were read, oldest first.
    pub old: Vec<Slice>,
    /// How many of them stay as they are.
    pub keep: usize,
    /// The new record.
    pub new: Slice,
}

impl Op for Compact {
    /// Slices (id, size) that may be deleted at once because nothing refers to them any more.
    type Out = Vec<(u64, u32)>;
    const NAME: &'static str = "compact";

    fn conflict_keys(&self) -> ConflictKeys {
        smallvec![ConflictKey::Node(self.ino)]
    }

    fn run(&self, view: &mut View<'_>) -> Result<Self::Out, Stop> {
        let key = Key::Chunk(self.ino, self.index);
        let replaced: Vec<&Slice> = self.old[self.keep..].iter().filter(|slice| !slice.is_hole()).collect();
        let trash = view.known().format().trash_days > 0;
        let mut reads = vec![Want::get(key.clone(), Hold::Lock)];
        if !trash {
            let refs =
                replaced.iter().map(|slice| Want::get(Key::SliceRef(slice.id, slice.size), Hold::Lock));
            reads.extend(refs);
        }
        view.want(&reads)?;
        let records = match view.get(&key, Hold::Lock)? {
            Some(Row::Chunk(_, _, records)) => records,
            _ => Vec::new(),
        };
        rules::require(records.starts_with(&self.old), FsError::Again)?;
        let mut after = self.old[..self.keep].to_vec();
        after.push(self.new);
        after.extend_from_slice(&records[self.old.len()..]);
        view.put(Row::Chunk(self.ino, self.index, after));
        view.insert(Row::SliceRef(self.new.id, self.new.size, 1));
        let Self { ino, index, keep: kept, new, .. } = *self;
        view.log(|| Line::Compact { ino, index, kept, replaced: self.old.len() - kept, new });
        if trash {
            // Kept as long as the trash keeps files, so that what a restored clone shows is still
            // there.
            let slices: Vec<(u64, u32)> = replaced.iter().map(|slice| (slice.id, slice.size)).collect();
            if !slices.is_empty() {
                view.put(Row::DelSlices(self.new.id, view.now().sec, slices));
            }
            return Ok(Vec::new());
        }
        release(view, &replaced.iter().map(|slice| (slice.id, slice.size)).collect::<Vec<_>>())
    }
}

/// Takes one reference from each slice; those left without any are answered, and stay on record as
/// such until their blocks are deleted. The references must be read with [`Hold::Lock`] before.
pub fn release(view: &mut View<'_>, slices: &[(u64, u32)]) -> Result<Vec<(u64, u32)>, Stop> {
    let mut counts: Vec<((u64, u32), i64)> = Vec::new();
    for slice in slices {
        match counts.iter_mut().find(|(known, _)| known == slice) {
            Some((_, count)) => *count += 1,
            None => counts.push((*slice, 1)),
        }
    }
    let mut unused = Vec::new();
    for ((id, size), count) in counts {
        let refs = match view.get(&Key::SliceRef(id, size), Hold::Lock)? {
            Some(Row::SliceRef(_, _, refs)) => refs,
            _ => 1,
        };
        view.put(Row::SliceRef(id, size, refs - count));
        if refs - count <= 0 {
            unused.push((id, size));
        }
    }
    Ok(unused)
}

/// Removes the record of a slice whose blocks are deleted. Two trips.
#[derive(Clone, Debug)]
pub struct ForgetSlice {
    /// Slice id.
    pub id: u64,
    /// Slice size.
    pub size: u32,
}

impl Op for ForgetSlice {
    type Out = ();
    const NAME: &'static str = "forget_slice";

    fn conflict_keys(&self) -> ConflictKeys {
        smallvec![]
    }

    fn run(&self, view: &mut View<'_>) -> Result<(), Stop> {
        let key = Key::SliceRef(self.id, self.size);
        if let Some(Row::SliceRef(_, _, refs)) = view.get(&key, Hold::Lock)?
            && refs <= 0
        {
            view.write(Write::Discard(key));
            view.log(|| Line::ForgetSlice { id: self.id, size: self.size });
        }
        Ok(())
    }
}

/// Removes one chunk of a deleted file. Two or three trips.
#[derive(Clone, Debug)]
pub struct DropChunk {
    /// The file.
    pub ino: Ino,
    /// The chunk.
    pub index: u32,
}

impl Op for DropChunk {
    /// Slices to which nothing refers any more.
    type Out = Vec<(u64, u32)>;
    const NAME: &'static str = "drop_chunk";

    fn conflict_keys(&self) -> ConflictKeys {
        smallvec![ConflictKey::Node(self.ino)]
    }

    fn run(&self, view: &mut View<'_>) -> Result<Self::Out, Stop> {
        let key = Key::Chunk(self.ino, self.index);
        let Some(Row::Chunk(_, _, records)) = view.get(&key, Hold::Lock)? else { return Ok(Vec::new()) };
        let shown: Vec<(u64, u32)> =
            records.iter().filter(|slice| !slice.is_hole()).map(|slice| (slice.id, slice.size)).collect();
        let refs: Vec<Want> =
            shown.iter().map(|(id, size)| Want::get(Key::SliceRef(*id, *size), Hold::Lock)).collect();
        view.want(&refs)?;
        view.delete(key);
        view.log(|| Line::DropChunk { ino: self.ino, index: self.index });
        release(view, &shown)
    }
}

/// Removes the record of a deleted file whose chunks are gone. One trip.
#[derive(Clone, Debug)]
pub struct ForgetFile {
    /// The file.
    pub ino: Ino,
    /// Its length.
    pub length: u64,
}

impl Op for ForgetFile {
    type Out = ();
    const NAME: &'static str = "forget_file";

    fn conflict_keys(&self) -> ConflictKeys {
        smallvec![ConflictKey::Node(self.ino)]
    }

    fn run(&self, view: &mut View<'_>) -> Result<(), Stop> {
        view.write(Write::Discard(Key::DelFile(self.ino, self.length)));
        Ok(())
    }
}

/// Takes the references of slices that a compaction replaced long ago. Two trips.
#[derive(Clone, Debug)]
pub struct DropDelayed {
    /// Id of the compaction's new slice.
    pub id: u64,
    /// When it was, Unix seconds.
    pub time: i64,
    /// What it replaced, as scanned.
    pub slices: Vec<(u64, u32)>,
}

impl Op for DropDelayed {
    /// Slices to which nothing refers any more.
    type Out = Vec<(u64, u32)>;
    const NAME: &'static str = "drop_delayed";

    fn conflict_keys(&self) -> ConflictKeys {
        smallvec![ConflictKey::Volume("delslices")]
    }

    fn run(&self, view: &mut View<'_>) -> Result<Self::Out, Stop> {
        let key = Key::DelSlices(self.id, self.time);
        let mut reads = vec![Want::get(key.clone(), Hold::Lock)];
        reads.extend(self.slices.iter().map(|(id, size)| Want::get(Key::SliceRef(*id, *size), Hold::Lock)));
        view.want(&reads)?;
        let Some(Row::DelSlices(_, _, slices)) = view.get(&key, Hold::Lock)? else { return Ok(Vec::new()) };
        view.delete(key);
        view.log(|| Line::DropDelayed { id: self.id, time: self.time });
        release(view, &slices)
    }
}
