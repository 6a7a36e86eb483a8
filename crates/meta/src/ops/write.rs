//! Write: adds uploaded slices to a file.

use sluice_types::{Attr, CHUNK_SIZE, FsError, Ino, MAX_FILE_SIZE, Slice, Time};
use smallvec::{SmallVec, smallvec};

use super::{
    rules,
    truncate::{changed_content, changing_file, resize},
};
use crate::{
    change_log::Line,
    engine::Write as Change,
    op::{ConflictKey, ConflictKeys, Op},
    schema::Row,
    view::{Stop, View},
};

/// Appends records to a chunk, after their blocks were put into the object store. Two trips.
///
/// Records of one slice id may be several; they must come in one operation, which makes the slice
/// known.
#[derive(Clone, Debug)]
pub struct Write {
    /// The file.
    pub ino: Ino,
    /// The chunk.
    pub index: u32,
    /// Records, oldest first.
    pub slices: Vec<Slice>,
    /// When the application wrote last.
    pub mtime: Time,
}

impl Op for Write {
    type Out = Attr;
    const NAME: &'static str = "write";

    fn conflict_keys(&self) -> ConflictKeys {
        smallvec![ConflictKey::Node(self.ino)]
    }

    fn run(&self, view: &mut View<'_>) -> Result<Attr, Stop> {
        let mut attr = changing_file(view, self.ino, true)?;
        let end = self.slices.iter().map(Slice::end).max().unwrap_or(0);
        let end = u64::from(self.index) * CHUNK_SIZE + u64::from(end);
        rules::require(end <= MAX_FILE_SIZE, FsError::FileTooBig)?;
        let length = attr.length.max(end);
        resize(view, self.ino, &mut attr, length)?;
        changed_content(&mut attr, self.mtime, view.now());
        view.put(Row::Node(self.ino, attr));
        view.write(Change::Append(self.ino, self.index, self.slices.clone()));
        let mut known: SmallVec<[(u64, u32, i64); 2]> = SmallVec::new();
        for slice in self.slices.iter().filter(|slice| !slice.is_hole()) {
            match known.iter_mut().find(|(id, _, _)| *id == slice.id) {
                Some((_, _, refs)) => *refs += 1,
                None => known.push((slice.id, slice.size, 1)),
            }
        }
        for (id, size, refs) in known {
            view.insert(Row::SliceRef(id, size, refs));
        }
        for slice in &self.slices {
            view.log(|| Line::Write { ino: self.ino, index: self.index, slice: *slice, mtime: attr.mtime });
        }
        Ok(attr)
    }
}
