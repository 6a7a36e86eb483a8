//! What lies below a directory, by the statistics of all directories there, as it is at the commit.
//!
//! What must stay true: the answer is exact or there is none. The caller says which directories
//! there are; their records, which are held until the commit, tell whether these are all.

use rustc_hash::FxHashMap;
use sluice_types::Ino;

use crate::{
    engine::Hold,
    schema::{Key, Row},
    view::{Stop, View},
    want::Want,
};

/// What a tree uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TreeUsage {
    /// Bytes and inodes below its root.
    Exact(i64, i64),
    /// There are other directories than those that the caller named.
    Changed,
    /// A directory has no statistics.
    Unknown,
}

/// What lies below `root`. `dirs` are `root` and all directories below it. One trip.
pub(crate) fn tree_usage(view: &mut View<'_>, root: Ino, dirs: &[Ino]) -> Result<TreeUsage, Stop> {
    // Times and links of a directory change with what is in it: both records are held to the byte.
    let wants =
        dirs.iter().flat_map(|dir| [Want::node(*dir, Hold::Lock), Want::get(Key::DirStat(*dir), Hold::Lock)]);
    view.want(&wants.collect::<Vec<_>>())?;
    let mut subdirs: FxHashMap<Ino, u32> = FxHashMap::default();
    let mut links = Vec::with_capacity(dirs.len());
    let (mut space, mut inodes) = (0, 0);
    for dir in dirs {
        let Some(attr) = view.node(*dir, Hold::Lock)?.filter(sluice_types::Attr::is_dir) else {
            return Ok(TreeUsage::Changed);
        };
        if *dir != root {
            *subdirs.entry(attr.parent).or_default() += 1;
        }
        links.push((*dir, attr.nlink));
        let Some(Row::DirStat(_, stat)) = view.get(&Key::DirStat(*dir), Hold::Lock)? else {
            return Ok(TreeUsage::Unknown);
        };
        space += stat.space;
        inodes += stat.inodes;
    }
    let named = |dir: &Ino| subdirs.get(dir).copied().unwrap_or(0);
    // All that lie in one of them are among them, and all of them lie in one.
    let complete = links.iter().all(|(dir, nlink)| *nlink == 2 + named(dir));
    let within = links.iter().map(|(dir, _)| named(dir)).sum::<u32>() as usize + 1 == links.len();
    Ok(if complete && within { TreeUsage::Exact(space, inodes) } else { TreeUsage::Changed })
}
