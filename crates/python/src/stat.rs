//! Attributes as tuples. The package converts them into `os.stat_result`.

use sluice_fs::Attr;

/// Mode, inode, links, owner, group, length, and three times: nanoseconds since 1970.
pub(crate) type StatFields = (u32, u64, u32, u32, u32, u64, i64, i64, i64);

pub(crate) fn stat_fields(ino: u64, attr: &Attr) -> StatFields {
    let nanos =
        |time: sluice_fs::Time| time.sec.saturating_mul(1_000_000_000).saturating_add(time.nsec.into());
    (
        attr.st_mode(),
        ino,
        attr.nlink,
        attr.uid,
        attr.gid,
        attr.length,
        nanos(attr.atime),
        nanos(attr.mtime),
        nanos(attr.ctime),
    )
}
