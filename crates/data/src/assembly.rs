//! Assembles a range of a chunk from several sources, the newest first.
//!
//! What must stay true: a byte that one source provides is never taken from an older one.

use bytes::{Bytes, BytesMut};

use crate::layout::Part;

/// Zeros for holes.
static ZEROS: [u8; 128 << 10] = [0; 128 << 10];
/// More pieces than this are copied into one, because to send a reply costs time for each piece.
const MAX_PIECES: usize = 16;

/// The source of some bytes of the range.
#[derive(Debug)]
pub(crate) enum Piece {
    /// In memory, at this offset of the chunk.
    Here(u32, Bytes),
    /// In a block.
    Block(Part),
}

impl Piece {
    fn pos(&self) -> u32 {
        match self {
            Self::Here(pos, _) => *pos,
            Self::Block(part) => part.pos,
        }
    }
}

/// The range: the parts that are still missing, and the parts that were found.
#[derive(Debug)]
pub(crate) struct Assembly {
    from: u32,
    to: u32,
    wanted: Vec<(u32, u32)>,
    found: Vec<Piece>,
}

impl Assembly {
    pub(crate) fn new(from: u32, to: u32) -> Self {
        let wanted = if from < to { vec![(from, to)] } else { Vec::new() };
        Self { from, to, wanted, found: Vec::new() }
    }

    /// First and last missing offset, if any part is missing.
    pub(crate) fn span(&self) -> Option<(u32, u32)> {
        Some((self.wanted.first()?.0, self.wanted.last()?.1))
    }

    /// Fills the missing parts between `from` and `to` from one source. `give` returns its bytes of
    /// each range.
    pub(crate) fn fill(&mut self, from: u32, to: u32, mut give: impl FnMut(u32, u32, &mut Vec<Piece>)) {
        let first = self.wanted.partition_point(|range| range.1 <= from);
        let behind = self.wanted.partition_point(|range| range.0 < to);
        if first >= behind {
            return;
        }
        let head = Some((self.wanted[first].0, from)).filter(|range| range.0 < range.1);
        let tail = Some((to, self.wanted[behind - 1].1)).filter(|range| range.0 < range.1);
        for range in &self.wanted[first..behind] {
            give(range.0.max(from), range.1.min(to), &mut self.found);
        }
        self.wanted.splice(first..behind, head.into_iter().chain(tail));
    }

    /// The parts that were found, by offset.
    pub(crate) fn pieces(&mut self) -> &[Piece] {
        if !self.found.is_sorted_by_key(Piece::pos) {
            self.found.sort_by_key(Piece::pos);
        }
        &self.found
    }

    /// Appends the bytes of the range to `out`. `fetch` gets those that are in blocks. Parts that
    /// no source had are zeros.
    pub(crate) fn assemble<E>(
        mut self,
        out: &mut Vec<Bytes>,
        mut fetch: impl FnMut(Part) -> Result<Bytes, E>,
    ) -> Result<(), E> {
        self.pieces();
        let first = out.len();
        let mut pos = self.from;
        for piece in self.found {
            zeros(piece.pos() - pos, out);
            pos = piece.pos();
            let bytes = match piece {
                Piece::Here(_, bytes) => bytes,
                Piece::Block(part) => fetch(part)?,
            };
            pos += bytes.len() as u32;
            out.push(bytes);
        }
        zeros(self.to - pos, out);
        if out.len() - first > MAX_PIECES {
            let mut joined = BytesMut::with_capacity((self.to - self.from) as usize);
            out.drain(first..).for_each(|piece| joined.extend_from_slice(&piece));
            out.push(joined.freeze());
        }
        Ok(())
    }
}

fn zeros(mut len: u32, out: &mut Vec<Bytes>) {
    while len > 0 {
        let step = len.min(ZEROS.len() as u32);
        out.push(Bytes::from_static(&ZEROS[..step as usize]));
        len -= step;
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn the_first_source_of_a_byte_wins(sources in prop::collection::vec((0u32..100, 1u32..40), 0..10)) {
            let mut model = [0u8; 60];
            let mut assembly = Assembly::new(20, 80);
            for (value, (pos, len)) in (1u8..).zip(&sources) {
                for at in *pos..(pos + len) {
                    if (20..80).contains(&at) && model[at as usize - 20] == 0 {
                        model[at as usize - 20] = value;
                    }
                }
                assembly.fill(*pos, pos + len, |from, to, found| {
                    found.push(Piece::Here(from, vec![value; (to - from) as usize].into()));
                });
            }
            let mut out = Vec::new();
            assembly.assemble(&mut out, |_| Err(())).unwrap();
            prop_assert_eq!(out.concat(), model);
        }
    }
}
