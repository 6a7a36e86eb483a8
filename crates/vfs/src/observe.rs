//! What operations there are, how often they run and how long they take; and their lines in the access log.
//!
//! What must stay true: observing an operation takes two looks at a clock and two additions, no lock.

use std::{
    fmt::Write as _,
    sync::atomic::{AtomicU64, Ordering},
    time::{Duration, Instant},
};

use sluice_types::{Attr, Caller, FileType, FsResult, Ino};

use crate::vfs::{Entry, Vfs};

macro_rules! ops {
    ($($name:ident = $text:literal),* $(,)?) => {
        /// An operation as the kernel asks for it.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[allow(missing_docs, reason = "each is named after its request")]
        pub enum OpKind { $($name),* }

        const NAMES: &[&str] = &[$($text),*];
    };
}

ops! {
    Lookup = "lookup", GetAttr = "getattr", SetAttr = "setattr", Readlink = "readlink", Symlink = "symlink",
    Mknod = "mknod", Mkdir = "mkdir", Unlink = "unlink", Rmdir = "rmdir", Rename = "rename", Link = "link",
    Open = "open", Create = "create", Read = "read", Write = "write", Flush = "flush", Release = "release",
    Fsync = "fsync", Opendir = "opendir", Readdir = "readdir", Releasedir = "releasedir", Statfs = "statfs",
    SetXattr = "setxattr", GetXattr = "getxattr", ListXattr = "listxattr", RemoveXattr = "removexattr",
    GetLk = "getlk", SetLk = "setlk", Flock = "flock", Ioctl = "ioctl", Fallocate = "fallocate",
    Lseek = "lseek", CopyRange = "copy_file_range",
}

/// Counts of all operations.
pub(crate) struct Observed {
    ops: [Counts; NAMES.len()],
    pub(crate) read_bytes: AtomicU64,
    pub(crate) written_bytes: AtomicU64,
}

#[derive(Default)]
struct Counts {
    count: AtomicU64,
    errors: AtomicU64,
    nanos: AtomicU64,
}

/// Totals of one operation.
pub(crate) struct OpTotals {
    pub(crate) name: &'static str,
    pub(crate) count: u64,
    pub(crate) errors: u64,
    pub(crate) time: Duration,
}

impl Default for Observed {
    fn default() -> Self {
        let ops = std::array::from_fn(|_| Counts::default());
        Self { ops, read_bytes: AtomicU64::new(0), written_bytes: AtomicU64::new(0) }
    }
}

impl Observed {
    pub(crate) fn totals(&self) -> impl Iterator<Item = OpTotals> {
        NAMES.iter().zip(&self.ops).map(|(name, counts)| OpTotals {
            name,
            count: counts.count.load(Ordering::Relaxed),
            errors: counts.errors.load(Ordering::Relaxed),
            time: Duration::from_nanos(counts.nanos.load(Ordering::Relaxed)),
        })
    }
}

impl Vfs {
    /// Runs one operation of the kernel's, counts it, and writes its line if somebody reads the access log. `describe`
    /// gets the line's middle part to fill, and the answer.
    pub fn observed<T>(
        &self,
        op: OpKind,
        caller: &Caller,
        run: impl FnOnce() -> FsResult<T>,
        describe: impl FnOnce(&mut String, Option<&T>),
    ) -> FsResult<T> {
        let begin = Instant::now();
        let done = run();
        let took = begin.elapsed();
        let counts = &self.observed.ops[op as usize];
        counts.count.fetch_add(1, Ordering::Relaxed);
        counts.nanos.fetch_add(took.as_nanos() as u64, Ordering::Relaxed);
        if done.is_err() {
            counts.errors.fetch_add(1, Ordering::Relaxed);
        }
        if self.log.is_read() {
            let mut text = String::with_capacity(160);
            describe(&mut text, done.as_ref().ok());
            self.write_log(op, caller, &text, done.as_ref().err().map(sluice_types::FsError::errno), took);
        }
        done
    }

    fn write_log(&self, op: OpKind, caller: &Caller, text: &str, errno: Option<i32>, took: Duration) {
        let now = self.now();
        let (days, second) = (now.sec.div_euclid(86_400), now.sec.rem_euclid(86_400));
        let (year, month, day) = date(days);
        let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
        let micros = now.nsec / 1000;
        let Caller { uid, gid, pid, .. } = caller;
        let name = NAMES[op as usize];
        let result = errno.map_or_else(|| "OK".to_owned(), message);
        let seconds = took.as_secs_f64();
        self.log.write(&format!(
            "{year:04}.{month:02}.{day:02} {hour:02}:{minute:02}:{second:02}.{micros:06} \
             [uid:{uid},gid:{gid},pid:{pid}] {name} {text} - {result} <{seconds:.6}>"
        ));
    }
}

/// The system's words for an error number, as C has them.
fn message(errno: i32) -> String {
    let text = std::io::Error::from_raw_os_error(errno).to_string();
    text.split(" (os error").next().unwrap_or_default().to_lowercase()
}

/// The date (UTC) that many days after the epoch.
fn date(days: i64) -> (i64, i64, i64) {
    let days = days + 719_468;
    let (era, of_era) = (days.div_euclid(146_097), days.rem_euclid(146_097));
    let year = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let month = (5 * of_year + 2) / 153;
    let day = of_year - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    (year + era * 400 + i64::from(month <= 2), month, day)
}

/// Writes an inode as access logs show it: `: (ino,[-rw-r--r--:0100644,nlink,uid,gid,atime,mtime,ctime,length])`.
pub fn describe_attr(text: &mut String, ino: Ino, attr: &Attr) {
    let kind = match attr.kind {
        FileType::File => '-',
        FileType::Dir => 'd',
        FileType::Symlink => 'l',
        FileType::Fifo => 'p',
        FileType::Block => 'b',
        FileType::Char => 'c',
        FileType::Socket => 's',
    };
    let mut bits: Vec<u8> =
        (0..9).map(|n| if attr.mode >> (8 - n) & 1 == 1 { b"rwx"[n % 3] } else { b'-' }).collect();
    for (bit, at, with, without) in
        [(0o4000, 2, b's', b'S'), (0o2000, 5, b's', b'S'), (0o1000, 8, b't', b'T')]
    {
        if attr.mode & bit != 0 {
            bits[at] = if bits[at] == b'x' { with } else { without };
        }
    }
    let bits = String::from_utf8_lossy(&bits);
    let mode = attr.st_mode();
    let Attr { nlink, uid, gid, length, .. } = attr;
    let (atime, mtime, ctime) = (attr.atime.sec, attr.mtime.sec, attr.ctime.sec);
    // Writing to a string cannot fail.
    let _ = write!(
        text,
        ": ({ino},[{kind}{bits}:0{mode:06o},{nlink},{uid},{gid},{atime},{mtime},{ctime},{length}])"
    );
}

/// [`describe_attr`] of an entry.
pub fn describe_entry(text: &mut String, entry: Option<&Entry>) {
    if let Some(entry) = entry {
        describe_attr(text, entry.ino, &entry.attr);
    }
}
