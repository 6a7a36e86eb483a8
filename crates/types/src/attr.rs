//! File attributes as the volume stores them (JuiceFS volume format, "inode attributes").

use crate::{Ino, Time, linux};

/// What kind of node an inode is. The discriminants are those of the volume format.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum FileType {
    /// Regular file.
    File = 1,
    /// Directory.
    Dir = 2,
    /// Symbolic link.
    Symlink = 3,
    /// Named pipe.
    Fifo = 4,
    /// Block device.
    Block = 5,
    /// Character device.
    Char = 6,
    /// Socket.
    Socket = 7,
}

impl FileType {
    /// The type stored as `code`, if there is one.
    pub const fn from_code(code: u8) -> Option<Self> {
        Some(match code {
            1 => Self::File,
            2 => Self::Dir,
            3 => Self::Symlink,
            4 => Self::Fifo,
            5 => Self::Block,
            6 => Self::Char,
            7 => Self::Socket,
            _ => return None,
        })
    }

    /// The `S_IFMT` bits of `st_mode`.
    pub const fn mode_bits(self) -> u32 {
        match self {
            Self::File => linux::S_IFREG,
            Self::Dir => linux::S_IFDIR,
            Self::Symlink => linux::S_IFLNK,
            Self::Fifo => linux::S_IFIFO,
            Self::Block => linux::S_IFBLK,
            Self::Char => linux::S_IFCHR,
            Self::Socket => linux::S_IFSOCK,
        }
    }

    /// The type that the `S_IFMT` bits of `mode` name; no bits mean a regular file, as for
    /// `mknod(2)`.
    pub const fn from_mode_bits(mode: u32) -> Option<Self> {
        Some(match mode & linux::S_IFMT {
            0 | linux::S_IFREG => Self::File,
            linux::S_IFDIR => Self::Dir,
            linux::S_IFLNK => Self::Symlink,
            linux::S_IFIFO => Self::Fifo,
            linux::S_IFBLK => Self::Block,
            linux::S_IFCHR => Self::Char,
            linux::S_IFSOCK => Self::Socket,
            _ => return None,
        })
    }
}

/// Flag bits set with `chattr(1)` or by Windows clients.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AttrFlags(pub u8);

impl AttrFlags {
    /// Nothing may change it (`chattr +i`).
    pub const IMMUTABLE: u8 = 1;
    /// It may only grow (`chattr +a`).
    pub const APPEND: u8 = 2;
    /// Deleted entries skip the trash (`chattr +s`); children inherit it.
    pub const SKIP_TRASH: u8 = 32;

    /// Whether all of `bits` are set.
    pub const fn has(self, bits: u8) -> bool {
        self.0 & bits == bits
    }

    /// Whether any of `bits` is set.
    pub const fn any(self, bits: u8) -> bool {
        self.0 & bits != 0
    }
}

/// The attributes of one inode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attr {
    /// `chattr` flags.
    pub flags: AttrFlags,
    /// Kind of node.
    pub kind: FileType,
    /// Permission bits with setuid, setgid and sticky: 12 bits.
    pub mode: u16,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Last access (only kept when the mount's atime mode asks for it).
    pub atime: Time,
    /// Last change of content or entries. Other clients detect stale records of chunks by a change
    /// of this.
    pub mtime: Time,
    /// Last change of the attributes.
    pub ctime: Time,
    /// Directory: 2 + sub-directories. Others: entries, those in the trash included.
    pub nlink: u32,
    /// Bytes. Directories always 4096, symlinks the length of their target.
    pub length: u64,
    /// Device number in the 32-bit Linux encoding.
    pub rdev: u32,
    /// The one directory it is in, or [`Ino::NONE`] once it had several links.
    pub parent: Ino,
    /// Id of the access ACL, 0 if none.
    pub access_acl: u32,
    /// Id of the default ACL of a directory, 0 if none.
    pub default_acl: u32,
    /// Storage tier, 0 to 3.
    pub tier: u8,
}

impl Attr {
    /// A new node of `kind` in `parent`, with all three times `now`.
    pub const fn new(kind: FileType, mode: u16, uid: u32, gid: u32, parent: Ino, now: Time) -> Self {
        let dir = matches!(kind, FileType::Dir);
        Self {
            flags: AttrFlags(0),
            kind,
            mode: mode & 0o7777,
            uid,
            gid,
            atime: now,
            mtime: now,
            ctime: now,
            nlink: if dir { 2 } else { 1 },
            length: if dir { 4096 } else { 0 },
            rdev: 0,
            parent,
            access_acl: 0,
            default_acl: 0,
            tier: 0,
        }
    }

    /// `st_mode`: type and permission bits.
    pub const fn st_mode(&self) -> u32 {
        self.kind.mode_bits() | self.mode as u32
    }

    /// Whether it is a directory.
    pub const fn is_dir(&self) -> bool {
        matches!(self.kind, FileType::Dir)
    }

    /// Whether it is a regular file.
    pub const fn is_file(&self) -> bool {
        matches!(self.kind, FileType::File)
    }

    /// Bytes it counts for in the volume's used space.
    pub const fn space(&self) -> i64 {
        align4k(self.length)
    }
}

/// Bytes that a node of `length` counts for: whole 4 KiB units, at least one.
pub const fn align4k(length: u64) -> i64 {
    if length == 0 { 4096 } else { (length.div_ceil(4096) * 4096) as i64 }
}
