//! The observable state of one file: everything that must be equal on two file systems, and nothing
//! that may differ.

use rustix::{
    fs::{AtFlags, CWD, FileType, Stat},
    io::Errno,
};
use std::path::Path;

/// Seconds before which a time was given by an operation; the clock's are later.
const ANCIENT: i64 = 1_500_000_000;

/// A file's attributes as two file systems must agree on them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Facts {
    /// Type and permissions.
    pub mode: u32,
    /// Links, or 0 if they are not compared.
    pub links: u64,
    /// Owner and group.
    pub owner: (u32, u32),
    /// Bytes; 0 for a directory.
    pub size: u64,
    /// The modification time, when an operation set it; none when it came from the clock.
    pub mtime: Option<(i64, u64)>,
    /// A symlink's target.
    pub target: Option<String>,
    /// Extended attributes by name.
    pub xattrs: Vec<(String, Vec<u8>)>,
}

/// Whose links are compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Links {
    /// Those of all files and directories.
    All,
    /// Not those of directories: some file systems do not count them.
    Files,
    /// None: what lies in the trash counts for the files that are still there.
    None,
}

impl Links {
    /// Those of files, and of directories if they are counted.
    pub fn of(folder_links: bool) -> Self {
        if folder_links { Self::All } else { Self::Files }
    }
}

impl Facts {
    /// Of the file at `path`, a symlink itself and not what it names.
    pub fn of(path: &Path, compared: Links) -> Result<Self, Errno> {
        let stat = rustix::fs::statat(CWD, path, AtFlags::SYMLINK_NOFOLLOW)?;
        let mut facts = Self::of_stat(&stat, compared);
        if FileType::from_raw_mode(stat.st_mode) == FileType::Symlink {
            facts.target = Some(rustix::fs::readlink(path, Vec::new())?.to_string_lossy().into_owned());
        }
        facts.xattrs = xattrs(path)?;
        Ok(facts)
    }

    /// Of what stat(2) said.
    pub fn of_stat(stat: &Stat, compared: Links) -> Self {
        let folder = FileType::from_raw_mode(stat.st_mode) == FileType::Directory;
        Self {
            mode: stat.st_mode,
            links: match compared {
                Links::None => 0,
                Links::Files if folder => 0,
                _ => stat.st_nlink,
            },
            owner: (stat.st_uid, stat.st_gid),
            size: if folder { 0 } else { stat.st_size as u64 },
            mtime: (stat.st_mtime < ANCIENT).then_some((stat.st_mtime, stat.st_mtime_nsec)),
            target: None,
            xattrs: Vec::new(),
        }
    }
}

/// The `user.` attributes of `path`, sorted.
fn xattrs(path: &Path) -> Result<Vec<(String, Vec<u8>)>, Errno> {
    let mut list = vec![0; 64 << 10];
    let length = match rustix::fs::llistxattr(path, &mut list[..]) {
        Ok(length) => length,
        Err(Errno::OPNOTSUPP) => 0,
        Err(why) => return Err(why),
    };
    let mut found = Vec::new();
    for name in list[..length].split(|byte| *byte == 0).filter(|name| name.starts_with(b"user.")) {
        let mut value = vec![0; 64 << 10];
        let length = rustix::fs::lgetxattr(path, name, &mut value[..])?;
        value.truncate(length);
        found.push((String::from_utf8_lossy(name).into_owned(), value));
    }
    found.sort();
    Ok(found)
}
