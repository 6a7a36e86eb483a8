//! Chunks: the slices of a file.

use sluice_types::{Ino, Slice};

use super::rules;
use crate::{
    engine::{Hold, List},
    op::{ConflictKeys, Op},
    schema::{Key, Row},
    view::{Stop, View},
    want::Want,
};

/// Reads the records of one chunk, oldest first. One trip, two for a chunk without records.
#[derive(Clone, Debug)]
pub struct ReadChunk {
    /// The file.
    pub ino: Ino,
    /// The chunk.
    pub index: u32,
}

impl Op for ReadChunk {
    type Out = Vec<Slice>;
    const NAME: &'static str = "read";

    fn conflict_keys(&self) -> ConflictKeys {
        ConflictKeys::new()
    }

    fn run(&self, view: &mut View<'_>) -> Result<Vec<Slice>, Stop> {
        // A chunk without records is a hole only as long as there is a file: what was deleted must
        // not read as zeros.
        let chunk = Key::Chunk(self.ino, self.index);
        view.want(&[Want::get(chunk.clone(), Hold::None), Want::node(self.ino, Hold::None)])?;
        match view.get(&chunk, Hold::None)? {
            Some(Row::Chunk(_, _, records)) => Ok(records),
            _ => rules::existing(view, self.ino, Hold::None).map(|_| Vec::new()),
        }
    }
}

/// Finds which chunks of files have records. One trip.
#[derive(Clone, Debug)]
pub struct FindChunks(
    /// Files, each with the first chunk to read and the one after the last.
    pub Vec<(Ino, u32, u32)>,
);

impl Op for FindChunks {
    /// Per file the chunks, in ascending order.
    type Out = Vec<Vec<u32>>;
    const NAME: &'static str = "find_chunks";

    fn conflict_keys(&self) -> ConflictKeys {
        ConflictKeys::new()
    }

    fn run(&self, view: &mut View<'_>) -> Result<Self::Out, Stop> {
        let lists = self.0.iter().map(|(ino, from, to)| List::Chunks(*ino, *from, *to));
        view.want(&lists.clone().map(|list| Want::all(list, Hold::None)).collect::<Vec<_>>())?;
        let chunks_of = |list| {
            let mut chunks: Vec<u32> = view
                .all(list, Hold::None)?
                .into_iter()
                .filter_map(|row| if let Row::Chunk(_, index, _) = row { Some(index) } else { None })
                .collect();
            chunks.sort_unstable();
            Ok(chunks)
        };
        lists.map(chunks_of).collect()
    }
}

/// Reads the records of several chunks of a file, those with none left out. One trip.
#[derive(Clone, Debug)]
pub struct ReadChunks {
    /// The file.
    pub ino: Ino,
    /// First chunk.
    pub from: u32,
    /// Chunk after the last.
    pub to: u32,
}

impl Op for ReadChunks {
    type Out = Vec<(u32, Vec<Slice>)>;
    const NAME: &'static str = "read_chunks";

    fn conflict_keys(&self) -> ConflictKeys {
        ConflictKeys::new()
    }

    fn run(&self, view: &mut View<'_>) -> Result<Self::Out, Stop> {
        let rows = view.all(List::Chunks(self.ino, self.from, self.to), Hold::None)?;
        let mut chunks: Vec<(u32, Vec<Slice>)> = rows
            .into_iter()
            .filter_map(|row| match row {
                Row::Chunk(_, index, records) => Some((index, records)),
                _ => None,
            })
            .collect();
        chunks.sort_unstable_by_key(|(index, _)| *index);
        Ok(chunks)
    }
}
