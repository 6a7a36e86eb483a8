//! The `.control` file of a mount: commands send requests to the mount process through it.
//!
//! What must stay true: it uses the protocol of `JuiceFS`, so that Sluice's commands work on mounts
//! of `JuiceFS`, and the commands of `JuiceFS` on mounts of Sluice.

use std::{
    fs::{self, File},
    io::{self, ErrorKind},
    os::unix::fs::{FileExt, MetadataExt},
    path::{Path, PathBuf},
    thread,
    time::Duration,
};

use anyhow::{Context, Result, bail};
use serde::Deserialize;
use sluice_types::{Ino, printable};

/// Remove a tree.
pub(crate) const RMR: u32 = 1002;
/// Fetch files into the cache, drop them, or count what is there.
pub(crate) const FILL_CACHE: u32 = 1004;
/// Tell about an inode.
pub(crate) const INFO: u32 = 1005;
/// Clone a tree.
pub(crate) const CLONE: u32 = 1006;
/// Sum a tree up.
pub(crate) const SUMMARY: u32 = 1007;
/// Compact a tree.
pub(crate) const COMPACT: u32 = 1008;

/// Head of a message: number and length.
const HEAD: usize = 8;
const PROGRESS: u8 = 0xFE;
const DATA: u8 = 0xFF;
/// Pauses while there is no answer yet. What ends meanwhile is noticed that much later.
const FIRST_PAUSE: Duration = Duration::from_millis(1);
const LONGEST_PAUSE: Duration = Duration::from_millis(10);
/// Most bytes of one answer.
const LARGEST: u32 = 1 << 30;

/// A message to be sent.
pub(crate) struct Message(Vec<u8>);

impl Message {
    /// An empty message with that number.
    pub(crate) fn new(op: u32) -> Self {
        let mut bytes = op.to_be_bytes().to_vec();
        bytes.extend([0; 4]);
        Self(bytes)
    }

    /// Appends bytes.
    pub(crate) fn put(mut self, bytes: &[u8]) -> Self {
        self.0.extend(bytes);
        self
    }

    /// Appends an inode number.
    pub(crate) fn ino(self, ino: u64) -> Self {
        self.put(&ino.to_be_bytes())
    }

    /// Appends a name and its length.
    pub(crate) fn name(self, name: &[u8]) -> Result<Self> {
        let length = u8::try_from(name.len()).context("a name of more than 255 bytes")?;
        Ok(self.put(&[length]).put(name))
    }

    fn finish(mut self) -> Vec<u8> {
        let length = (self.0.len() - HEAD) as u32;
        self.0[4..HEAD].copy_from_slice(&length.to_be_bytes());
        self.0
    }
}

/// Directories that a mount of Sluice left out of a sum, since the caller may not list them.
#[derive(Default, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(crate) struct Denied {
    count: u64,
    /// Those that it names, below the start.
    #[serde(default)]
    paths: Vec<String>,
}

impl Denied {
    /// Says what was left out below `start`, as `du` does; whether there is any.
    pub(crate) fn say(&self, start: &Path) -> bool {
        for path in &self.paths {
            let path = printable(start.join(path).display());
            errln!("sluice: cannot list {path}: Permission denied");
        }
        let more = self.count.saturating_sub(self.paths.len() as u64);
        if more > 0 {
            errln!("sluice: cannot list {more} more directories: Permission denied");
        }
        self.count > 0
    }
}

/// An open `.control`.
pub(crate) struct Control {
    file: File,
    path: PathBuf,
}

impl Control {
    /// Opens that of the mount in which `path` is. Every directory of a mount has one.
    pub(crate) fn open(path: &Path) -> Result<Self> {
        let is_dir = fs::symlink_metadata(path).is_ok_and(|found| found.is_dir());
        let dir = if is_dir { path } else { path.parent().unwrap_or(path) };
        // The short name first: where it is not the mount's own, the long one is, and a mount asks
        // its engine for a name that is not its own.
        for name in [".control", ".jfs.control"] {
            let path = dir.join(name);
            // A file of that name that somebody made must not be written to.
            if fs::symlink_metadata(&path).is_ok_and(|found| !Ino(found.ino()).is_internal()) {
                continue;
            }
            match File::options().read(true).write(true).open(&path) {
                Ok(file) => return Ok(Self { file, path }),
                Err(error) if error.kind() == ErrorKind::NotFound => {}
                Err(error) => bail!("cannot open {}: {error}", path.display()),
            }
        }
        bail!("{} is in no mounted volume", path.display())
    }

    /// Sends a message and waits for the end of its work. Answers its data, if it has any;
    /// `progress` hears how far it is.
    pub(crate) fn ask(&self, message: Message, mut progress: impl FnMut(u64, u64)) -> Result<Vec<u8>> {
        let request = message.finish();
        self.file
            .write_all_at(&request, 0)
            .with_context(|| format!("cannot write to {}", self.path.display()))?;
        let mut answer = Answer { file: &self.file, at: request.len() as u64 };
        loop {
            match answer.byte()? {
                PROGRESS => {
                    progress(u64::from_be_bytes(answer.bytes()?), u64::from_be_bytes(answer.bytes()?));
                }
                DATA => {
                    let length = u32::from_be_bytes(answer.bytes()?);
                    anyhow::ensure!(length < LARGEST, "{} answers nonsense", self.path.display());
                    let mut data = vec![0; length as usize];
                    answer.fill(&mut data)?;
                    return Ok(data);
                }
                0 => return Ok(Vec::new()),
                errno => {
                    let error = io::Error::from_raw_os_error(i32::from(errno));
                    if error.raw_os_error() == Some(rustix::io::Errno::IO.raw_os_error()) {
                        return Err(error).context("the log of the mount says why");
                    }
                    return Err(error.into());
                }
            }
        }
    }
}

/// What comes back, read piece by piece.
struct Answer<'a> {
    file: &'a File,
    at: u64,
}

impl Answer<'_> {
    fn byte(&mut self) -> io::Result<u8> {
        Ok(self.bytes::<1>()?[0])
    }

    fn bytes<const N: usize>(&mut self) -> io::Result<[u8; N]> {
        let mut bytes = [0; N];
        self.fill(&mut bytes)?;
        Ok(bytes)
    }

    /// Reads until `buffer` is full. Nothing to read means that it is not there yet: the work takes
    /// its time, and ends with an error if the mount does.
    fn fill(&mut self, mut buffer: &mut [u8]) -> io::Result<()> {
        let mut pause = FIRST_PAUSE;
        while !buffer.is_empty() {
            match self.file.read_at(buffer, self.at) {
                Ok(0) => {
                    thread::sleep(pause);
                    pause = (pause * 2).min(LONGEST_PAUSE);
                }
                Ok(read) => {
                    self.at += read as u64;
                    buffer = &mut buffer[read..];
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

/// Inode of a path itself, not of what it points to.
pub(crate) fn inode(path: &Path) -> Result<u64> {
    let found = fs::symlink_metadata(path).with_context(|| format!("cannot look at {}", path.display()))?;
    Ok(found.ino())
}

/// The absolute path of a file, and its directory and name.
pub(crate) fn place(path: &Path) -> Result<(PathBuf, PathBuf, Vec<u8>)> {
    use std::os::unix::ffi::OsStrExt;
    let path = std::path::absolute(path)?;
    let (Some(dir), Some(name)) = (path.parent(), path.file_name()) else {
        bail!("{} is no entry of a directory", path.display())
    };
    let (dir, name) = (dir.to_owned(), name.as_bytes().to_vec());
    Ok((path, dir, name))
}
