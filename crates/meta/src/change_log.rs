//! The lines of the change log, in the format of JuiceFS.
//!
//! A line is `SECONDS.NANOSECONDS|OPERATION(ARGUMENTS):RESULT|(SESSION,NUMBER)`. It contains the
//! request and its result, not the changed records. What must stay true: an operation states its
//! lines beside its writes, so that both are in one commit.

use std::fmt;

use bytes::Bytes;
use sluice_types::{Attr, FileType, Ino, Name, Slice, Time};

use crate::{
    at::At,
    schema::{Counter, DirStat, LockOwner, PlockRange, QuotaKey},
};

/// What a line says.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the arguments of the operations")]
pub(crate) enum Line {
    /// A new node; for `owner`, the caller's user and group.
    Create {
        at: At,
        owner: (u32, u32),
        kind: FileType,
        mode: u16,
        umask: u16,
        target: Bytes,
        ino: Ino,
    },
    /// A name removed. `trash` is the hour directory to which it moved, if it did.
    Unlink {
        at: At,
        trash: Ino,
        opened: bool,
        ino: Ino,
    },
    /// A directory removed.
    Rmdir {
        at: At,
        trash: Ino,
        ino: Ino,
    },
    /// A name moved, with the flags of `renameat2(2)`; `over` is what had the new name.
    Move {
        from: At,
        to: At,
        flags: u32,
        over: Ino,
        trash: Ino,
        ino: Ino,
    },
    /// Another name; `links` with it.
    Link {
        ino: Ino,
        at: At,
        links: u32,
    },
    /// A slice appended to a chunk.
    Write {
        ino: Ino,
        index: u32,
        slice: Slice,
        mtime: Time,
    },
    /// Another length.
    Truncate {
        ino: Ino,
        from: u64,
        to: u64,
        /// Whether through an open file.
        opened: bool,
    },
    /// What `fallocate(2)` did, with its mode.
    Fallocate {
        ino: Ino,
        offset: u64,
        length: u64,
        mode: u8,
    },
    /// Slices of one file that another file refers to; `end` is that one's length after it.
    CopyRange {
        from: (Ino, u64),
        to: (Ino, u64),
        length: u64,
        end: u64,
    },
    /// Attributes: the bits of those that were asked for, and all as they are now.
    SetAttr {
        ino: Ino,
        set: u16,
        attr: Attr,
    },
    /// A new access time.
    Access(Ino),
    /// An extended attribute, with the flags of `setxattr(2)`.
    SetXattr {
        ino: Ino,
        name: Name,
        value: Bytes,
        flags: u32,
    },
    RemoveXattr {
        ino: Ino,
        name: Name,
    },
    /// An ACL (1 access, 2 default), as it is stored.
    SetAcl {
        ino: Ino,
        kind: u8,
        rule: Vec<u8>,
    },
    /// A BSD lock: `R`, `W`, or `U` for released.
    Flock {
        ino: Ino,
        owner: LockOwner,
        kind: char,
    },
    /// A record lock, likewise.
    Plock {
        ino: Ino,
        owner: LockOwner,
        kind: char,
        range: PlockRange,
    },
    /// A session that began or came back, with its JSON.
    NewSession {
        sid: u64,
        expire: i64,
        info: Bytes,
    },
    DropSession(u64),
    DropSustained {
        sid: u64,
        ino: Ino,
    },
    /// A chunk of a deleted file.
    DropChunk {
        ino: Ino,
        index: u32,
    },
    /// Records of a chunk replaced by `new`, after the first `kept`.
    Compact {
        ino: Ino,
        index: u32,
        kept: usize,
        replaced: usize,
        new: Slice,
    },
    /// References of slices that a compaction replaced.
    DropDelayed {
        id: u64,
        time: i64,
    },
    /// A slice whose blocks are deleted.
    ForgetSlice {
        id: u64,
        size: u32,
    },
    /// The usage of a directory put right.
    DirStat(Ino, DirStat),
    /// The links of a directory put right.
    RepairDir(Ino),
    /// Limits; -1 for one that stays.
    SetQuota {
        key: QuotaKey,
        space: i64,
        inodes: i64,
    },
    DropQuota(QuotaKey),
    /// A copy of a node; `top` if it is the root of what is cloned.
    Clone {
        source: Ino,
        at: At,
        ino: Ino,
        preserve: bool,
        umask: u16,
        top: bool,
    },
    /// The name of a cloned tree.
    Attach {
        ino: Ino,
        at: At,
    },
    /// Numbers taken from a counter.
    Count(Counter, i64),
    /// A counter set.
    Set(Counter, i64),
}

impl Line {
    /// The text of the line, which the process of session `sid` makes as its `number`th.
    pub(crate) fn text(&self, now: Time, sid: u64, number: u64) -> String {
        format!("{}.{:09}|{self}|({sid},{number})", now.sec, now.nsec)
    }
}

impl fmt::Display for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Create { at: At { dir, name }, owner: (uid, gid), kind, mode, umask, target, ino } => {
                let (kind, name, target) = (*kind as u8, Escaped(name), Escaped(target));
                let times = *dir != Ino::TRASH;
                write!(
                    f,
                    "CREATE({dir},{name},{uid},{gid},{kind},{mode},{umask},{target},linux,{times}):{ino}"
                )
            }
            Self::Unlink { at: At { dir, name }, trash, opened, ino } => {
                let times = !dir.is_trash();
                write!(f, "UNLINK({dir},{},{trash},{opened},{times}):{ino}", Escaped(name))
            }
            Self::Rmdir { at: At { dir, name }, trash, ino } => {
                write!(f, "RMDIR({dir},{},{trash}):{ino}", Escaped(name))
            }
            Self::Move { from, to, flags, over, trash, ino } => {
                let (old, new) = (Escaped(&from.name), Escaped(&to.name));
                write!(f, "MOVE({},{old},{},{new},{flags},{over},{trash}):{ino}", from.dir, to.dir)
            }
            Self::Link { ino, at: At { dir, name }, links } => {
                write!(f, "LINK({ino},{dir},{},true):{links}", Escaped(name))
            }
            // How many records the chunk has is what appending does not ask. JuiceFS says 0, too,
            // on Redis, and for the first one.
            Self::Write { ino, index, slice: Slice { pos, id, len, .. }, mtime } => {
                write!(f, "WRITE({ino},{index},{pos},{id},{len},{},{}):0", mtime.sec, mtime.nsec)
            }
            Self::Truncate { ino, from, to, opened } => {
                write!(f, "TRUNCATE({ino},{from},{to},{})", u8::from(*opened))
            }
            Self::Fallocate { ino, offset, length, mode } => {
                write!(f, "FALLOCATE({ino},{offset},{length},{mode})")
            }
            Self::CopyRange { from: (from, start), to: (to, offset), length, end } => {
                write!(f, "COPYFILERANGE({from},{start},{to},{offset},{length}):{end}")
            }
            Self::SetAttr { ino, set, attr } => write_attr(f, *ino, *set, attr),
            Self::Access(ino) => write!(f, "ACCESS({ino})"),
            Self::SetXattr { ino, name, value, flags } => {
                write!(f, "SETXATTR({ino},{},{},{flags})", Escaped(name), Escaped(value))
            }
            Self::RemoveXattr { ino, name } => write!(f, "REMOVEXATTR({ino},{})", Escaped(name)),
            Self::SetAcl { ino, kind, rule } => write!(f, "SETFACL({ino},{kind},{})", Escaped(rule)),
            Self::Flock { ino, owner, kind } => write!(f, "FLOCK({ino},{},{kind})", owner.owner),
            Self::Plock { ino, owner, kind, range: PlockRange { start, end, pid, .. } } => {
                write!(f, "SETLK({ino},{},{kind},{start},{end},{pid})", owner.owner)
            }
            Self::NewSession { sid, expire, info } => {
                write!(f, "NEWSESSION({sid},{expire},{})", Escaped(info))
            }
            Self::DropSession(sid) => write!(f, "CLEANSESSION({sid})"),
            Self::DropSustained { sid, ino } => write!(f, "DELSUSTAINED({sid},{ino})"),
            Self::DropChunk { ino, index } => write!(f, "DELCHUNK({ino},{index})"),
            Self::Compact { ino, index, kept, replaced, new: Slice { pos, id, size, .. } } => {
                write!(f, "COMPACTCHUNK({ino},{index},{kept},{replaced},{pos},{id},{size})")
            }
            Self::DropDelayed { id, time } => write!(f, "CLEANUP_DELAYED_SLICES({id},{time})"),
            Self::ForgetSlice { id, size } => write!(f, "DELETESLICE({id},{size})"),
            Self::DirStat(ino, DirStat { length, space, inodes }) => {
                write!(f, "DIRSTAT({ino},{length},{space},{inodes})")
            }
            Self::RepairDir(ino) => write!(f, "REPAIRDIR({ino})"),
            Self::SetQuota { key, space, inodes } => {
                let (kind, id) = quota(*key);
                write!(f, "SETQUOTA({kind},{id},{space},{inodes})")
            }
            Self::DropQuota(key) => {
                let (kind, id) = quota(*key);
                write!(f, "DELQUOTA({kind},{id})")
            }
            Self::Clone { source, at: At { dir, name }, ino, preserve, umask, top } => {
                let (name, mode) = (Escaped(name), u8::from(*preserve));
                write!(f, "CLONE({source},{dir},{name},{ino},{mode},{umask},{top}):{ino}")
            }
            Self::Attach { ino, at: At { dir, name } } => {
                write!(f, "ATTACH({ino},{dir},{})", Escaped(name))
            }
            Self::Count(counter, by) => write!(f, "INCR_COUNTER({},{by})", counter.name()),
            Self::Set(counter, value) => write!(f, "SET({},{value})", counter.name()),
        }
    }
}

fn write_attr(f: &mut fmt::Formatter<'_>, ino: Ino, set: u16, attr: &Attr) -> fmt::Result {
    let Attr { uid, gid, mode, flags, atime, mtime, ctime, access_acl, .. } = attr;
    write!(f, "SETATTR({ino},{set},0,{uid},{gid},{mode},{},", flags.0)?;
    write!(f, "{},{},{},{},", atime.sec, mtime.sec, atime.nsec, mtime.nsec)?;
    write!(f, "{},{},{access_acl})", ctime.sec, ctime.nsec)
}

/// The kind of a quota, and whose it is.
const fn quota(key: QuotaKey) -> (u8, u64) {
    match key {
        QuotaKey::Dir(ino) => (0, ino.0),
        QuotaKey::User(uid) => (1, uid as u64),
        QuotaKey::Group(gid) => (2, gid as u64),
    }
}

/// Bytes of which those that mean something in a line, or are no letters, are written as `%XX`.
struct Escaped<'b>(&'b [u8]);

impl fmt::Display for Escaped<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for byte in self.0 {
            match byte {
                b',' | b'%' | b'(' | b')' | b'"' | b'\\' => write!(f, "%{byte:02X}")?,
                b' '..=b'~' => write!(f, "{}", char::from(*byte))?,
                _ => write!(f, "%{byte:02X}")?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_has_a_time_an_operation_and_who_made_it() {
        let now = Time { sec: 1_700_000_000, nsec: 42 };
        let at = At::new(Ino(1), Name::new(b"a,(b)% \xff").unwrap());
        let line = Line::Rmdir { at, trash: Ino::NONE, ino: Ino(7) };
        assert_eq!(line.text(now, 3, 9), "1700000000.000000042|RMDIR(1,a%2C%28b%29%25 %FF,0):7|(3,9)");
    }
}
