//! Numbers of Linux that stand in volumes and in answers to its kernel, on every platform.
//!
//! Sources: `errno(3)`, `inode(7)`, and the headers `asm-generic/errno*.h` and `linux/stat.h`.

pub(crate) const EPERM: i32 = 1;
pub(crate) const ENOENT: i32 = 2;
pub(crate) const EINTR: i32 = 4;
pub(crate) const EIO: i32 = 5;
pub(crate) const ENXIO: i32 = 6;
pub(crate) const E2BIG: i32 = 7;
pub(crate) const EBADF: i32 = 9;
pub(crate) const EAGAIN: i32 = 11;
pub(crate) const EACCES: i32 = 13;
pub(crate) const EBUSY: i32 = 16;
pub(crate) const EEXIST: i32 = 17;
pub(crate) const EXDEV: i32 = 18;
pub(crate) const ENOTDIR: i32 = 20;
pub(crate) const EISDIR: i32 = 21;
pub(crate) const EINVAL: i32 = 22;
pub(crate) const ETXTBSY: i32 = 26;
pub(crate) const EFBIG: i32 = 27;
pub(crate) const ENOSPC: i32 = 28;
pub(crate) const EROFS: i32 = 30;
pub(crate) const EMLINK: i32 = 31;
pub(crate) const ERANGE: i32 = 34;
pub(crate) const EDEADLK: i32 = 35;
pub(crate) const ENAMETOOLONG: i32 = 36;
pub(crate) const ENOSYS: i32 = 38;
pub(crate) const ENOTEMPTY: i32 = 39;
pub(crate) const ELOOP: i32 = 40;
pub(crate) const ENODATA: i32 = 61;
pub(crate) const EOPNOTSUPP: i32 = 95;
pub(crate) const ESTALE: i32 = 116;
pub(crate) const EDQUOT: i32 = 122;

/// The bits of a mode that are the type of a file.
pub(crate) const S_IFMT: u32 = 0o170_000;
pub(crate) const S_IFSOCK: u32 = 0o140_000;
pub(crate) const S_IFLNK: u32 = 0o120_000;
pub(crate) const S_IFREG: u32 = 0o100_000;
pub(crate) const S_IFBLK: u32 = 0o060_000;
pub(crate) const S_IFDIR: u32 = 0o040_000;
pub(crate) const S_IFCHR: u32 = 0o020_000;
pub(crate) const S_IFIFO: u32 = 0o010_000;

#[cfg(test)]
mod tests {
    macro_rules! same {
        ($($name:ident)*) => {
            $(assert_eq!(super::$name, libc::$name, stringify!($name));)*
        };
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn they_are_those_of_this_system() {
        same!(
            EPERM ENOENT EINTR EIO ENXIO E2BIG EBADF EAGAIN EACCES EBUSY EEXIST EXDEV ENOTDIR EISDIR EINVAL ETXTBSY EFBIG ENOSPC EROFS EMLINK ERANGE EDEADLK ENAMETOOLONG ENOSYS ENOTEMPTY ELOOP ENODATA EOPNOTSUPP ESTALE EDQUOT S_IFMT S_IFSOCK S_IFLNK S_IFREG S_IFBLK S_IFDIR S_IFCHR S_IFIFO
        );
    }
}
