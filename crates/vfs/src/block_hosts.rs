//! Which machines cache the blocks of a file.

use std::{cmp::Reverse, ops::Range};

use rustc_hash::FxHashMap;
use sluice_data::visible;
use sluice_meta::{Interrupt, ops::chunks::ReadChunks};
use sluice_types::{CHUNK_SIZE, FsResult, Ino, MAX_FILE_SIZE};

use crate::vfs::Vfs;

/// Machines that are named for one part of a file.
const HOSTS: usize = 3;
/// Chunks whose records are read in one round trip.
const CHUNKS: u32 = 64;

impl Vfs {
    /// Divides a file into parts of `part` bytes, and names the machines whose clients own the most
    /// bytes of each part in the cache group: at most three, the one with the most bytes first. The
    /// parts are those that `range` touches; of the last one, only the chunks up to the end of
    /// `range` count. Without a cache group, and for data that is not stored
    /// yet, no machine is named.
    ///
    /// # Errors
    /// The metadata engine does not answer, or `interrupt`.
    pub fn block_hosts(
        &self,
        interrupt: &Interrupt,
        ino: Ino,
        range: &Range<u64>,
        part: u64,
    ) -> FsResult<Vec<Vec<String>>> {
        let (range, part) = (range.start..range.end.min(MAX_FILE_SIZE), part.max(1));
        if range.is_empty() {
            return Ok(Vec::new());
        }
        let (first, last) = (range.start / part, (range.end - 1) / part);
        let mut owned: FxHashMap<(u64, String), u64> = FxHashMap::default();
        let mut from = (first * part / CHUNK_SIZE) as u32;
        let to = range.end.div_ceil(CHUNK_SIZE) as u32;
        while from < to {
            let until = to.min(from.saturating_add(CHUNKS));
            for (index, records) in self.meta.read(&ReadChunks { ino, from, to: until }, interrupt)? {
                let layout = self.data.layout();
                for piece in visible(&records).into_iter().flat_map(|piece| layout.parts(piece)) {
                    let Some(host) = self.data.owner_host(piece.block) else { continue };
                    let start = u64::from(index) * CHUNK_SIZE + u64::from(piece.pos);
                    for (at, bytes) in divide(start..start + u64::from(piece.len), part) {
                        *owned.entry((at, host.clone())).or_default() += bytes;
                    }
                }
            }
            from = until;
        }
        let mut parts = vec![Vec::new(); (last - first + 1) as usize];
        for ((at, host), bytes) in owned {
            if let Some(hosts) = at.checked_sub(first).and_then(|at| parts.get_mut(at as usize)) {
                hosts.push((Reverse(bytes), host));
            }
        }
        let named = |mut hosts: Vec<(Reverse<u64>, String)>| {
            hosts.sort_unstable();
            hosts.into_iter().take(HOSTS).map(|(_, host)| host).collect()
        };
        Ok(parts.into_iter().map(named).collect())
    }
}

/// The parts of `part` bytes that a range touches, each with the bytes of the range in it.
fn divide(range: Range<u64>, part: u64) -> impl Iterator<Item = (u64, u64)> {
    let mut at = range.start;
    std::iter::from_fn(move || {
        (at < range.end).then(|| {
            let (number, from) = (at / part, at);
            at = ((number + 1) * part).min(range.end);
            (number, at - from)
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_is_divided_at_the_ends_of_parts() {
        assert_eq!(divide(5..25, 10).collect::<Vec<_>>(), [(0, 5), (1, 10), (2, 5)]);
        assert_eq!(divide(10..20, 10).collect::<Vec<_>>(), [(1, 10)]);
        assert_eq!(divide(7..7, 10).count(), 0);
    }
}
