//! What the reference directory's file system can do. Operations that it cannot do are left out. So
//! the directory under test must do exactly what the reference does.

use super::op::{Op, RenameHow, Reserve};
use rustix::{
    fs::{FallocateFlags, Mode, OFlags, RenameFlags, XattrFlags},
    io::Errno,
};
use std::path::Path;

/// The optional parts of a file system.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(clippy::struct_excessive_bools, reason = "each is one question with one answer")]
pub struct Capabilities {
    /// `user.` extended attributes.
    pub xattr: bool,
    /// fallocate(2) with `FALLOC_FL_PUNCH_HOLE`.
    pub punch: bool,
    /// fallocate(2) with `FALLOC_FL_ZERO_RANGE`.
    pub zero: bool,
    /// renameat2(2) with `RENAME_EXCHANGE`.
    pub exchange: bool,
    /// A directory's link count is two and its subdirectories.
    pub folder_links: bool,
    /// The owner may be given away: the tests run as root.
    pub chown: bool,
}

impl Capabilities {
    /// Tries each in `directory`, which is left as it was.
    pub fn probe(directory: &Path) -> anyhow::Result<Self> {
        let work = tempfile::tempdir_in(directory)?;
        let (a, b) = (work.path().join("a"), work.path().join("b"));
        let file = rustix::fs::open(&a, OFlags::CREATE | OFlags::RDWR, Mode::from(0o600))?;
        std::fs::create_dir(&b)?;
        let reserve = |flags| rustix::fs::fallocate(&file, flags | FallocateFlags::KEEP_SIZE, 0, 4096);
        let missing = [Errno::OPNOTSUPP, Errno::INVAL, Errno::NOSYS];
        let has = |result: Result<(), Errno>| !matches!(result, Err(why) if missing.contains(&why));
        Ok(Self {
            xattr: has(rustix::fs::fsetxattr(&file, "user.probe", b"x", XattrFlags::empty())),
            punch: has(reserve(FallocateFlags::PUNCH_HOLE)),
            zero: has(reserve(FallocateFlags::ZERO_RANGE)),
            exchange: has(rustix::fs::renameat_with(
                rustix::fs::CWD,
                &a,
                rustix::fs::CWD,
                &b,
                RenameFlags::EXCHANGE,
            )),
            folder_links: {
                std::fs::create_dir(a.join("sub"))?;
                rustix::fs::stat(&a)?.st_nlink == 3
            },
            chown: rustix::fs::fchown(&file, Some(rustix::fs::Uid::from_raw(1)), None).is_ok(),
        })
    }

    /// Whether `op` may be asked for.
    pub fn allow(self, op: &Op) -> bool {
        match op {
            Op::SetXattr { .. } | Op::RemoveXattr { .. } => self.xattr,
            Op::Reserve { form: Reserve::Punch, .. } => self.punch,
            Op::Reserve { form: Reserve::Zero | Reserve::ZeroKeep, .. } => self.zero,
            Op::Rename { how: RenameHow::Exchange, .. } => self.exchange,
            Op::Chown { .. } => self.chown,
            _ => true,
        }
    }
}
