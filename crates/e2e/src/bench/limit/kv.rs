//! The records of small files as keys and values, as JuiceFS stores them in TiKV and etcd.

use super::{ATTR, FIRST, SLICE};

/// What all keys begin with.
const BEGIN: &[u8] = b"limit\xfdA";

/// All rows of some files, in the order of their keys.
pub(super) fn pairs(files: usize) -> Vec<(Vec<u8>, Vec<u8>)> {
    let of = |inode: i64| {
        let node = [BEGIN, &inode.to_le_bytes()].concat();
        let name = format!("Dfile.mdtest.{inode}");
        let entry = [BEGIN, &1_i64.to_le_bytes(), name.as_bytes()].concat();
        let named = [&[1][..], &inode.to_be_bytes()].concat();
        let chunk = [&node[..], b"C\0\0\0\0"].concat();
        [(entry, named), ([&node[..], b"I"].concat(), ATTR.to_vec()), (chunk, SLICE.to_vec())]
    };
    let mut pairs: Vec<_> = (FIRST..FIRST + files as i64).flat_map(of).collect();
    pairs.sort_unstable();
    pairs
}

/// The ranges of these rows, each of 16 groups of inodes, as a dump divides them.
pub(super) fn ranges() -> impl Iterator<Item = (Vec<u8>, Vec<u8>)> {
    (0..=u8::MAX).step_by(16).map(|first| {
        let next = first.checked_add(16);
        let end = next.map_or_else(|| b"limit\xfdB".to_vec(), |next| [BEGIN, &[next]].concat());
        ([BEGIN, &[first]].concat(), end)
    })
}
