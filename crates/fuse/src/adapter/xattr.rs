//! Extended attributes.

use std::os::unix::ffi::OsStrExt;

use sluice_types::Caller;
use sluice_vfs::{Interrupt, OpKind, XattrMode};

use super::{VolumeFs, args, translate};
use crate::{
    args::SetXattr,
    errno::{Errno, Result},
    filesystem::Request,
};

impl VolumeFs {
    pub(super) fn set_xattr(&self, req: &Request<'_>, ino: u64, xattr: &SetXattr<'_>) -> Result<()> {
        let mode = match xattr.flags as i32 {
            0 => XattrMode::Any,
            libc::XATTR_CREATE => XattrMode::Create,
            libc::XATTR_REPLACE => XattrMode::Replace,
            _ => return Err(Errno::EINVAL),
        };
        let pair = (xattr.name.as_bytes(), xattr.value);
        let run = |caller: &Caller, interrupt: &Interrupt| {
            // Whether setgid stays depends on them, or on what the kernel says where only it knows
            // them.
            let caller = translate::with_groups(caller, pair.0.starts_with(b"system.posix_acl_"));
            let caller = Caller { admitted: caller.admitted && !xattr.kill_sgid, ..caller.into_owned() };
            self.vfs.setxattr(&caller, interrupt, self.ino(ino), pair, mode)
        };
        let (name, len, flags) = (xattr.name.display(), xattr.value.len(), xattr.flags);
        self.run(req, OpKind::SetXattr, run, args(format_args!("{ino},{name},{len},{flags}")))
    }
}
