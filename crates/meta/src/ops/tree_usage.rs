//! The usage below a directory, from the statistics of all directories in its tree.
//!
//! What must stay true: the result is exact, or there is no result. The caller passes all
//! directories of the tree. The records of these directories show whether the list is complete.
//! With [`Hold::Lock`], this is also true at the commit.

use rustc_hash::FxHashMap;
use sluice_types::{Attr, Ino};

use crate::{
    engine::Hold,
    schema::{DirStat, Key, Row},
    view::{Stop, View},
    want::Want,
};

/// What a tree uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TreeUsage {
    /// Bytes and inodes below its root.
    Exact(i64, i64),
    /// There are other directories than those that the caller named, or one has no statistics.
    Changed,
}

/// What [`tree_usage`] asks. Times and links of a directory change with what is in it: both records
/// count, to the byte.
pub(crate) fn questions(dirs: &[Ino], hold: Hold) -> Vec<Want> {
    dirs.iter().flat_map(|dir| [Want::node(*dir, hold), Want::get(Key::DirStat(*dir), hold)]).collect()
}

/// What lies below `root`, and what tells so. `dirs` are `root` and all directories below it. One
/// trip.
pub(crate) fn tree_usage(
    view: &mut View<'_>,
    root: Ino,
    dirs: &[Ino],
    hold: Hold,
) -> Result<(TreeUsage, Vec<(Attr, DirStat)>), Stop> {
    view.want(&questions(dirs, hold))?;
    let mut subdirs: FxHashMap<Ino, u32> = FxHashMap::default();
    let mut seen = Vec::with_capacity(dirs.len());
    let (mut space, mut inodes) = (0, 0);
    for dir in dirs {
        let Some(attr) = view.node(*dir, hold)?.filter(Attr::is_dir) else {
            return Ok((TreeUsage::Changed, seen));
        };
        if *dir != root {
            *subdirs.entry(attr.parent).or_default() += 1;
        }
        let Some(Row::DirStat(_, stat)) = view.get(&Key::DirStat(*dir), hold)? else {
            return Ok((TreeUsage::Changed, seen));
        };
        space += stat.space;
        inodes += stat.inodes;
        seen.push((attr, stat));
    }
    let named = |dir: &Ino| subdirs.get(dir).copied().unwrap_or(0);
    // All that lie in one of them are among them, and all of them lie in one.
    let complete = dirs.iter().zip(&seen).all(|(dir, (attr, _))| attr.nlink == 2 + named(dir));
    let within = dirs.iter().map(named).sum::<u32>() as usize + 1 == dirs.len();
    Ok((if complete && within { TreeUsage::Exact(space, inodes) } else { TreeUsage::Changed }, seen))
}
