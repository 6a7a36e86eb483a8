//! Copy range: refers to the slices of one file in another, without a copy of data.

use sluice_types::{Attr, AttrFlags, CHUNK_SIZE, FsError, Ino, MAX_FILE_SIZE, Slice};
use smallvec::smallvec;

use super::{
    rules,
    truncate::{changed_content, changing_file, resize},
};
use crate::{
    change_log::Line,
    effect_log::{Effect, EffectKind},
    engine::{Hold, Write},
    op::{ConflictKey, ConflictKeys, Op},
    schema::{Key, Row},
    view::{Stop, View},
    want::Want,
};

/// Copies `length` bytes, as far as the source has them. Both files must have been flushed. Who may
/// was found out when they were opened. Two trips.
#[derive(Clone, Debug)]
pub struct CopyRange {
    /// Source.
    pub from: Ino,
    /// First byte in the source.
    pub from_offset: u64,
    /// Target.
    pub to: Ino,
    /// First byte in the target.
    pub to_offset: u64,
    /// Bytes.
    pub length: u64,
}

/// What was copied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Copied {
    /// Bytes.
    pub length: u64,
    /// The target after it.
    pub attr: Attr,
}

impl Op for CopyRange {
    type Out = Copied;
    const NAME: &'static str = "copy_file_range";

    fn conflict_keys(&self) -> ConflictKeys {
        smallvec![ConflictKey::Node(self.from), ConflictKey::Node(self.to)]
    }

    fn effect(&self, copied: &Copied) -> Option<Effect> {
        Some(Effect { kind: EffectKind::Copy, value: copied.length })
    }

    fn run(&self, view: &mut View<'_>) -> Result<Copied, Stop> {
        let to_end = self.to_offset.checked_add(self.length).filter(|end| *end <= MAX_FILE_SIZE);
        let to_end = to_end.ok_or(FsError::FileTooBig)?;
        let from_end = self.from_offset.checked_add(self.length).ok_or(FsError::Invalid)?;
        let overlap = self.from == self.to && self.from_offset < to_end && self.to_offset < from_end;
        rules::require(!overlap, FsError::Invalid)?;
        let first = (self.from_offset / CHUNK_SIZE) as u32;
        let last = (from_end.saturating_sub(1).min(MAX_FILE_SIZE) / CHUNK_SIZE) as u32;
        let mut reads = vec![Want::node(self.from, Hold::Lock), Want::node(self.to, Hold::Lock)];
        // The source's records are held: a compaction that replaces them would drop the slices
        // shown here.
        reads.extend((first..=last).map(|index| Want::get(Key::Chunk(self.from, index), Hold::Lock)));
        view.want(&reads)?;

        let source = rules::existing(view, self.from, Hold::Lock)?;
        let mut attr = changing_file(view, self.to, true)?;
        rules::require(source.is_file(), FsError::Invalid)?;
        rules::require(!attr.flags.any(AttrFlags::APPEND | AttrFlags::IMMUTABLE), FsError::Perm)?;
        let length = self.length.min(source.length.saturating_sub(self.from_offset));
        if length == 0 {
            return Ok(Copied { length: 0, attr });
        }
        for index in first..=((self.from_offset + length - 1) / CHUNK_SIZE) as u32 {
            self.copy_chunk(view, index, length)?;
        }
        let end = attr.length.max(self.to_offset + length);
        resize(view, self.to, &mut attr, end)?;
        changed_content(&mut attr, view.now(), view.now());
        view.put(Row::Node(self.to, attr));
        view.log(|| Line::CopyRange {
            from: (self.from, self.from_offset),
            to: (self.to, self.to_offset),
            length,
            end,
        });
        Ok(Copied { length, attr })
    }
}

impl CopyRange {
    /// Copies the part of the range that lies in one chunk of the source.
    fn copy_chunk(&self, view: &mut View<'_>, index: u32, length: u64) -> Result<(), Stop> {
        let start = u64::from(index) * CHUNK_SIZE;
        let begin = self.from_offset.max(start);
        let end = (self.from_offset + length).min(start + CHUNK_SIZE);
        // Whatever the target shows in the range is hidden first: the source may have holes.
        self.show(view, Slice::hole(0, (end - begin) as u32), begin);
        let records = match view.get(&Key::Chunk(self.from, index), Hold::Lock)? {
            Some(Row::Chunk(_, _, records)) => records,
            _ => Vec::new(),
        };
        for record in records {
            let first = (start + u64::from(record.pos)).max(begin);
            let behind = (start + u64::from(record.end())).min(end);
            if first < behind {
                let skipped = (first - start) as u32 - record.pos;
                let off = if record.is_hole() { 0 } else { record.off + skipped };
                let piece = Slice { off, len: (behind - first) as u32, ..record };
                self.show(view, piece, first);
            }
        }
        Ok(())
    }

    /// Shows a piece of the source, which begins at `offset` there, at its place in the target: in
    /// two chunks if it crosses a border.
    fn show(&self, view: &mut View<'_>, mut piece: Slice, offset: u64) {
        let mut at = offset - self.from_offset + self.to_offset;
        while piece.len > 0 {
            let pos = (at % CHUNK_SIZE) as u32;
            let len = piece.len.min(CHUNK_SIZE as u32 - pos);
            let index = (at / CHUNK_SIZE) as u32;
            view.write(Write::Append(self.to, index, vec![Slice { pos, len, ..piece }]));
            if !piece.is_hole() {
                view.write(Write::Refer(piece.id, piece.size, 1));
                piece.off += len;
            }
            piece.len -= len;
            at += u64::from(len);
        }
    }
}
