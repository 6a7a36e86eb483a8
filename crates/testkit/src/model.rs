//! The reference file system: a plain tree in memory with POSIX semantics.
//!
//! It is written from the manual pages, not from the operations it judges, and knows no engine. If
//! several errors apply to a call, POSIX does not say which one is returned, so the model names
//! them all.

use std::collections::BTreeMap;

use sluice_types::{Caller, FileType, FsError};

mod attributes;
mod names;

pub use names::Replace;

/// An inode of the model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Inode {
    /// Kind of node.
    pub kind: FileType,
    /// Permission bits.
    pub mode: u16,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Names of a file, those in the trash included; 2 + sub-directories of a directory.
    pub nlink: u32,
    /// Bytes of a file or of a symbolic link's target; 4096 for a directory.
    pub length: u64,
    /// Entries of a directory.
    pub entries: BTreeMap<String, u64>,
    /// Extended attributes.
    pub xattrs: BTreeMap<String, Vec<u8>>,
}

/// A tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Model {
    /// All inodes, by number; the root is 1.
    pub inodes: BTreeMap<u64, Inode>,
    /// What was removed, as `directory-inode-name`, if there is a trash.
    pub trash: Option<BTreeMap<String, u64>>,
}

/// A directory and a name in it.
pub type Place<'p> = (u64, &'p str);

/// Success, or the faults of which one must be told.
pub type Answer = Result<(), Vec<FsError>>;

/// What a process wants to do with a node, as in `access(2)`.
const WRITE: u16 = 2;
/// To change entries one must also pass through the directory.
const CHANGE: u16 = 3;

/// The faults of one call.
#[derive(Default)]
struct Faults(Vec<FsError>);

impl Faults {
    /// Notes faults if `wrong`.
    fn on<const N: usize>(&mut self, wrong: bool, faults: [FsError; N]) {
        if wrong {
            self.0.extend(faults);
        }
    }

    fn answer(self) -> Answer {
        if self.0.is_empty() { Ok(()) } else { Err(self.0) }
    }
}

impl Model {
    /// An empty tree, in which everybody may make files.
    pub fn new(has_trash: bool) -> Self {
        let root = Inode {
            kind: FileType::Dir,
            mode: 0o777,
            uid: 0,
            gid: 0,
            nlink: 2,
            length: 4096,
            entries: BTreeMap::new(),
            xattrs: BTreeMap::new(),
        };
        Self { inodes: BTreeMap::from([(1, root)]), trash: has_trash.then(BTreeMap::new) }
    }

    /// What a name stands for.
    pub fn lookup(&self, (dir, name): Place<'_>) -> Option<u64> {
        self.inodes.get(&dir)?.entries.get(name).copied()
    }

    /// Whether a node has a name outside the trash.
    pub fn is_live(&self, ino: u64) -> bool {
        ino == 1 || self.inodes.values().any(|inode| inode.entries.values().any(|child| *child == ino))
    }

    fn is_dir(&self, ino: u64) -> bool {
        self.inodes.get(&ino).is_some_and(|inode| inode.kind == FileType::Dir)
    }

    fn is_root(who: &Caller) -> bool {
        !who.check || who.uid == 0
    }

    fn owns(&self, ino: u64, who: &Caller) -> bool {
        Self::is_root(who) || self.inodes.get(&ino).is_some_and(|inode| inode.uid == who.uid)
    }

    /// Whether the permission bits allow it: those of the owner, else of the group, else of the
    /// others.
    fn may(&self, ino: u64, who: &Caller, wanted: u16) -> bool {
        let Some(inode) = self.inodes.get(&ino) else { return true };
        let bits = match (inode.uid == who.uid, who.in_group(inode.gid)) {
            (true, _) => inode.mode >> 6,
            (false, true) => inode.mode >> 3,
            (false, false) => inode.mode,
        };
        Self::is_root(who) || bits & wanted == wanted
    }

    /// Faults of changing the entries of a directory.
    fn check_dir(&self, dir: u64, who: &Caller, faults: &mut Faults) {
        faults.on(!self.is_live(dir), [FsError::NotFound]);
        faults.on(self.inodes.contains_key(&dir) && !self.is_dir(dir), [FsError::NotDir]);
        faults.on(!self.may(dir, who, CHANGE), [FsError::Access]);
    }

    /// In a sticky directory only the owners of the node and of the directory remove its name.
    fn check_sticky(&self, dir: u64, ino: u64, who: &Caller, faults: &mut Faults) {
        let sticky = self.inodes.get(&dir).is_some_and(|inode| inode.mode & 0o1000 != 0);
        let denied = sticky && !self.owns(dir, who) && !self.owns(ino, who);
        faults.on(denied, [FsError::Perm]);
    }
}
