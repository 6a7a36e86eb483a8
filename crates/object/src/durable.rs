//! Syncs the objects of a `file` store, so that they survive a power cut.
//!
//! What must stay true: after a successful sync, all objects that were written before it are on the
//! disk, with their names. An object that the disk failed to take makes every later sync fail, too,
//! until it is deleted or written again: the kernel reports such a failure only once.

use std::{
    collections::HashSet,
    fs::File,
    io,
    path::{Path, PathBuf},
};

use parking_lot::Mutex;

/// Most directories that are remembered as durable. The others cost a few more syncs.
const MAX_DURABLE: usize = 10_000;
/// Most objects that are synced one by one. If there are more, whole file systems are synced.
const MAX_UNSYNCED: usize = 1000;

/// The objects below a directory that may not survive a power cut yet.
#[derive(Debug, Default)]
pub(crate) struct Durability {
    root: PathBuf,
    /// Directories whose own names are known to be durable.
    durable: Mutex<HashSet<PathBuf>>,
    unsynced: Mutex<Unsynced>,
    /// Held by the one who syncs. Others wait for it, because it may be syncing their objects.
    syncing: Mutex<()>,
}

#[derive(Debug, Default)]
struct Unsynced {
    objects: Vec<PathBuf>,
    /// Directories of further objects.
    directories: HashSet<PathBuf>,
    /// Objects that the disk failed to take.
    lost: HashSet<PathBuf>,
}

impl Durability {
    /// The first sync covers what other processes wrote before, such as an earlier mount.
    pub(crate) fn new(root: &str) -> Self {
        let directories = HashSet::from([root.into()]);
        let unsynced = Unsynced { directories, ..Unsynced::default() };
        Self { root: root.into(), unsynced: Mutex::new(unsynced), ..Self::default() }
    }

    /// An object was written, and not synced.
    pub(crate) fn wrote(&self, object: PathBuf, directory: &Path) {
        let mut unsynced = self.unsynced.lock();
        unsynced.lost.remove(&object);
        if unsynced.objects.len() < MAX_UNSYNCED {
            unsynced.objects.push(object);
        } else if !unsynced.directories.contains(directory) {
            unsynced.directories.insert(directory.to_owned());
        }
    }

    /// Syncs all that was written before.
    pub(crate) fn sync(&self) -> io::Result<()> {
        let _one = self.syncing.lock();
        let (objects, directories) = {
            let mut unsynced = self.unsynced.lock();
            (std::mem::take(&mut unsynced.objects), std::mem::take(&mut unsynced.directories))
        };
        let mut parents: HashSet<&Path> = directories.iter().map(PathBuf::as_path).collect();
        let mut result = self.sync_file_systems(&directories);
        for object in &objects {
            result = result.and(sync_file(object).map_err(|error| self.note(object, error)));
            parents.extend(object.parent());
        }
        for directory in parents {
            result = result.and(self.make_durable(directory).or_else(missing_is_fine));
        }
        let mut unsynced = self.unsynced.lock();
        if result.is_err() {
            // To be tried again.
            unsynced.objects.extend(objects);
            unsynced.directories.extend(directories);
        }
        unsynced.lost.retain(|object| object.exists());
        match unsynced.lost.iter().next() {
            Some(lost) if result.is_ok() => {
                Err(io::Error::other(format!("the disk did not take {}", lost.display())))
            }
            _ => result,
        }
    }

    /// Syncs the file systems of some directories.
    fn sync_file_systems(&self, directories: &HashSet<PathBuf>) -> io::Result<()> {
        let mut result = Ok(());
        let mut synced = HashSet::new();
        for directory in directories {
            let one = open(directory).and_then(|opened| match opened {
                Some(opened) if synced.insert(device(&opened).map_err(Unfinished::Closed)?) => {
                    sync_file_system(directory, &opened)
                }
                _ => Ok(()),
            });
            result = result.and(one.map_err(|error| self.note(directory, error)));
        }
        result
    }

    /// Remembers a file that the disk failed to take.
    fn note(&self, path: &Path, error: Unfinished) -> io::Error {
        match error {
            Unfinished::Closed(error) => error,
            Unfinished::Failed(error) => {
                self.unsynced.lock().lost.insert(path.to_owned());
                error
            }
        }
    }

    /// Makes the names in `directory` durable, and its own name in its parents, whichever process
    /// made them.
    pub(crate) fn make_durable(&self, directory: &Path) -> io::Result<()> {
        File::open(directory)?.sync_all()?;
        if self.durable.lock().contains(directory) {
            return Ok(());
        }
        for parent in directory.ancestors().skip(1) {
            let synced = File::open(parent).and_then(|parent| parent.sync_all());
            // Above the bucket there may be directories that only other users may open.
            if parent.starts_with(&self.root) {
                synced?;
            }
        }
        let mut durable = self.durable.lock();
        if durable.len() >= MAX_DURABLE {
            durable.clear();
        }
        durable.insert(directory.to_owned());
        Ok(())
    }
}

/// Why the bytes of a file are not on the disk.
enum Unfinished {
    /// It could not be opened, for example because too many files are open. A later sync can
    /// succeed.
    Closed(io::Error),
    /// The disk failed to take them. The kernel reports it only once.
    Failed(io::Error),
}

/// Opens a file to sync it; `None` if it was deleted meanwhile.
fn open(path: &Path) -> Result<Option<File>, Unfinished> {
    match File::open(path) {
        Ok(file) => Ok(Some(file)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(Unfinished::Closed(error)),
    }
}

/// Syncs the bytes of a file. One that was deleted meanwhile needs none.
fn sync_file(path: &Path) -> Result<(), Unfinished> {
    open(path)?.map_or(Ok(()), |file| file.sync_data()).map_err(Unfinished::Failed)
}

fn missing_is_fine(error: io::Error) -> io::Result<()> {
    if error.kind() == io::ErrorKind::NotFound { Ok(()) } else { Err(error) }
}

#[cfg(unix)]
fn device(file: &File) -> io::Result<u64> {
    Ok(std::os::unix::fs::MetadataExt::dev(&file.metadata()?))
}

#[cfg(target_os = "linux")]
fn sync_file_system(_: &Path, opened: &File) -> Result<(), Unfinished> {
    rustix::fs::syncfs(opened).map_err(|error| Unfinished::Failed(error.into()))
}

/// A number for each file: each is synced by itself here.
#[cfg(not(unix))]
fn device(file: &File) -> io::Result<u64> {
    use std::sync::atomic::{AtomicU64, Ordering};
    static NEXT: AtomicU64 = AtomicU64::new(0);
    file.metadata()?;
    Ok(NEXT.fetch_add(1, Ordering::Relaxed))
}

/// This system cannot sync a file system: all files of the directory are synced.
#[cfg(not(target_os = "linux"))]
fn sync_file_system(directory: &Path, _: &File) -> Result<(), Unfinished> {
    let mut entries = std::fs::read_dir(directory).map_err(Unfinished::Closed)?;
    entries.try_for_each(|entry| sync_file(&entry.map_err(Unfinished::Closed)?.path()))
}
