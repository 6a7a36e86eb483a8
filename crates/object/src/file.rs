//! `file`: objects as files below a directory, laid out as the volume format says.
//!
//! What must stay true: an object is either whole under its name or not there. It is written under
//! a temporary name in the same directory, then renamed. A file that a dead writer left under such
//! a name is listed, as JuiceFS does. So `gc` finds it, and nobody else takes it for an object.
//!
//! Small reads and writes run on the calling thread, because a page-cache hit costs less than to
//! wake a thread. Larger ones, and all that wait for a sync of the disk, run on the runtime's
//! blocking threads, if there is a runtime.

use std::{
    fs::{self, File, OpenOptions},
    io,
    ops::Range,
    path::{Path, PathBuf},
    sync::Arc,
    time::UNIX_EPOCH,
};

use bytes::Bytes;
use futures::{
    future::BoxFuture,
    stream::{self, BoxStream, StreamExt, TryStreamExt},
};
use parking_lot::Mutex;
use sluice_types::{Rng, Time};

use crate::{
    buffers::{self, Buffer},
    direct::{self, Direct},
    durable::Durability,
    offload::offload,
    positional::read_at,
    store::{MAX_OBJECT, ObjectError, ObjectMeta, ObjectStore, too_large, unreadable},
};

/// Base names are cut to this many bytes inside a temporary name, which has to fit in 255.
const TEMPORARY_BASE: usize = 200;

/// Most files that are read, and written, without the page cache at once. So many keep a disk busy.
const READS: usize = 32;
const WRITES: usize = 8;

/// Objects as files. Cloning is cheap; all clones are the same store.
#[derive(Clone, Debug)]
pub struct FileStore(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    root: String,
    sync: bool,
    reads: Direct,
    /// Of large files, and of small ones.
    writes: [Direct; 2],
    names: Mutex<Rng>,
    durability: Durability,
}

impl FileStore {
    /// Files below `root`, an absolute directory. A key is appended to it as text, so that `root`
    /// should end in `/`; it need not exist before the first write.
    ///
    /// With `sync`, a put returns only when the bytes and the name are on the disk. Without it, as
    /// `JuiceFS` does, a power cut may leave an object empty or missing although its put returned,
    /// until [`ObjectStore::sync`] returned.
    pub fn new(root: impl Into<String>, sync: bool) -> Result<Self, ObjectError> {
        let root = root.into();
        if !root.starts_with('/') {
            return Err(ObjectError::Config {
                store: format!("file://{root}"),
                reason: "the bucket of file storage has to be an absolute directory, such as /var/jfs/"
                    .into(),
            });
        }
        Ok(Self(Arc::new(Inner {
            durability: Durability::new(&root),
            root,
            sync,
            reads: Direct::new(READS, direct::LARGE),
            writes: [direct::LARGE, direct::SMALLEST].map(|smallest| Direct::new(WRITES, smallest)),
            names: Mutex::new(Rng::from_os()),
        })))
    }
}

impl ObjectStore for FileStore {
    fn describe(&self) -> String {
        format!("file://{}", self.0.root)
    }

    fn ranged(&self) -> bool {
        true
    }

    fn get<'a>(
        &'a self,
        key: &'a str,
        range: Option<Range<u64>>,
    ) -> BoxFuture<'a, Result<Bytes, ObjectError>> {
        let bytes = range.as_ref().map_or(u64::MAX, |range| range.end.saturating_sub(range.start));
        let (inner, owned) = (Arc::clone(&self.0), key.to_owned());
        Box::pin(offload(bytes, move || inner.read(&owned, range)))
    }

    fn put<'a>(&'a self, key: &'a str, data: Bytes) -> BoxFuture<'a, Result<(), ObjectError>> {
        let bytes = if self.0.sync { u64::MAX } else { data.len() as u64 };
        let (inner, owned) = (Arc::clone(&self.0), key.to_owned());
        Box::pin(offload(bytes, move || {
            inner.write_bytes(&owned, &data).map_err(|error| inner.failed("write", &owned, &error))
        }))
    }

    fn put_file<'a>(&'a self, key: &'a str, file: &'a Path) -> BoxFuture<'a, Result<(), ObjectError>> {
        let (inner, owned, from) = (Arc::clone(&self.0), key.to_owned(), file.to_owned());
        Box::pin(offload(u64::MAX, move || {
            let mut from = File::open(&from).map_err(|error| unreadable(&from, &error))?;
            let fill = |file: &mut File| io::copy(&mut from, file).map(drop);
            inner.write(&owned, fill).map_err(|error| inner.failed("write", &owned, &error))
        }))
    }

    fn sync(&self) -> BoxFuture<'_, Result<(), ObjectError>> {
        let inner = Arc::clone(&self.0);
        Box::pin(offload(u64::MAX, move || {
            inner.durability.sync().map_err(|error| inner.failed("sync", "its objects", &error))
        }))
    }

    fn delete<'a>(&'a self, key: &'a str) -> BoxFuture<'a, Result<(), ObjectError>> {
        let (inner, owned) = (Arc::clone(&self.0), key.to_owned());
        // To free the space of a large file takes time on the disk.
        Box::pin(offload(u64::MAX, move || {
            let path = inner.path(&owned);
            // A key that ends so is a directory, which goes if it is empty.
            let removed = if owned.ends_with('/') { fs::remove_dir(path) } else { fs::remove_file(path) };
            match removed {
                Err(error) if error.kind() != io::ErrorKind::NotFound => {
                    Err(inner.failed("delete", &owned, &error))
                }
                _ => Ok(()),
            }
        }))
    }

    fn head<'a>(&'a self, key: &'a str) -> BoxFuture<'a, Result<ObjectMeta, ObjectError>> {
        Box::pin(async move {
            let meta = fs::metadata(self.0.path(key)).map_err(|error| self.0.failed("read", key, &error))?;
            Ok(described(key.to_owned(), &meta))
        })
    }

    fn list<'a>(&'a self, prefix: &'a str) -> BoxStream<'a, Result<ObjectMeta, ObjectError>> {
        let top = prefix.rfind('/').map_or(String::new(), |slash| prefix[..=slash].to_owned());
        let walk = stream::try_unfold(vec![top], move |mut waiting| async move {
            let Some(directory) = waiting.pop() else { return Ok(None) };
            let inner = Arc::clone(&self.0);
            let wanted = prefix.to_owned();
            let (objects, deeper) = offload(u64::MAX, move || inner.scan(&directory, &wanted)).await?;
            waiting.extend(deeper);
            Ok(Some((stream::iter(objects.into_iter().map(Ok)), waiting)))
        });
        walk.try_flatten().boxed()
    }
}

impl Inner {
    fn path(&self, key: &str) -> PathBuf {
        PathBuf::from(format!("{}{key}", self.root))
    }

    fn failed(&self, action: &'static str, key: &str, error: &io::Error) -> ObjectError {
        let store = format!("file://{}", self.root);
        let key = key.to_owned();
        match error.kind() {
            io::ErrorKind::NotFound if action != "write" => ObjectError::NotFound { key, store },
            io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => ObjectError::Config {
                store,
                reason: format!("cannot {action} {key}: {error}; give this user access to the directory"),
            },
            io::ErrorKind::NotADirectory | io::ErrorKind::NotFound => ObjectError::Config {
                store,
                reason: format!(
                    "cannot {action} {key}: {error}; the bucket has to be a directory that exists or can be made"
                ),
            },
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
                ObjectError::Full { store, reason: format!("cannot {action} {key}: {error}") }
            }
            _ => ObjectError::Unavailable { action, key, store, reason: error.to_string() },
        }
    }

    fn read(&self, key: &str, range: Option<Range<u64>>) -> Result<Bytes, ObjectError> {
        let failed = |error: &io::Error| self.failed("read", key, error);
        let file = File::open(self.path(key)).map_err(|error| failed(&error))?;
        let Range { start, end } = match range {
            Some(range) => range,
            None => 0..file.metadata().map_err(|error| failed(&error))?.len(),
        };
        if end.saturating_sub(start) > MAX_OBJECT {
            return Err(ObjectError::Corrupt {
                key: key.to_owned(),
                store: format!("file://{}", self.root),
                reason: too_large(),
            });
        }
        let mut data = Buffer::with_length(end.saturating_sub(start) as usize);
        let mut done = self.read_directly(&file, &mut data, start);
        while done < data.len() {
            let offset = start + done as u64;
            match read_at(&file, &mut data[done..], offset).map_err(|error| failed(&error))? {
                0 => {
                    return Err(ObjectError::Corrupt {
                        key: key.to_owned(),
                        store: format!("file://{}", self.root),
                        reason: format!("it ends at byte {offset}, bytes {start} to {end} were wanted"),
                    });
                }
                count => done += count,
            }
        }
        Ok(data.into())
    }

    /// Reads as much as is read better without the page cache. Returns the number of bytes.
    fn read_directly(&self, file: &File, into: &mut [u8], start: u64) -> usize {
        let at_page = start.is_multiple_of(buffers::PAGE as u64);
        if !at_page || !self.reads.suits(into) || !direct::is_cold(file, start) {
            return 0;
        }
        let turn = self.reads.begin();
        if !turn.directly {
            let count = read_at(file, into, start).unwrap_or(0);
            turn.moved(count);
            return count;
        }
        let read = direct::set(file, true).and_then(|()| read_at(file, into, start));
        // The rest is read through the page cache, whose error is the one to report.
        if let (Ok(()), Ok(count)) = (direct::set(file, false), read) {
            turn.moved(count);
            count
        } else {
            turn.refused();
            0
        }
    }

    fn write_bytes(&self, key: &str, data: &[u8]) -> io::Result<()> {
        let [large, small] = &self.writes;
        let writes = if data.len() < direct::LARGE { small } else { large };
        self.write(key, |file| writes.write(file, data))
    }

    fn write(&self, key: &str, fill: impl FnOnce(&mut File) -> io::Result<()>) -> io::Result<()> {
        let path = self.path(key);
        let directory = path.parent().unwrap_or(Path::new("/"));
        let temporary = directory.join(self.temporary_name(&path));
        let mut file = match create(&temporary) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                fs::create_dir_all(directory)?;
                create(&temporary)
            }
            other => other,
        }?;
        let written = fill(&mut file)
            .and_then(|()| if self.sync { file.sync_data() } else { Ok(()) })
            .and_then(|()| fs::rename(&temporary, &path));
        if let Err(error) = written {
            // The first error is returned. What remains under the temporary name, `gc` deletes.
            drop(fs::remove_file(&temporary));
            return Err(error);
        }
        if self.sync {
            return self.durability.make_durable(directory);
        }
        self.durability.wrote(path.clone(), directory);
        Ok(())
    }

    fn temporary_name(&self, path: &Path) -> String {
        let base = path.file_name().unwrap_or_default().to_string_lossy();
        let mut cut = base.len().min(TEMPORARY_BASE);
        while !base.is_char_boundary(cut) {
            cut -= 1;
        }
        format!(".jfs.{}.tmp.{}", &base[..cut], self.names.lock().next_u64() >> 1)
    }

    /// The objects in one directory (a key that ends in `/`, or nothing for the top) and the
    /// directories below it that can hold keys starting with `prefix`.
    fn scan(&self, directory: &str, prefix: &str) -> Result<(Vec<ObjectMeta>, Vec<String>), ObjectError> {
        let failed = |error: &io::Error| self.failed("list", directory, error);
        let (mut objects, mut deeper) = (Vec::new(), Vec::new());
        let entries = match fs::read_dir(self.path(directory)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok((objects, deeper)),
            other => other.map_err(|error| failed(&error))?,
        };
        for entry in entries {
            let entry = entry.map_err(|error| failed(&error))?;
            let Ok(name) = entry.file_name().into_string() else { continue };
            let key = format!("{directory}{name}");
            // Follows links, because users move parts of a store to other disks. Files that were
            // removed meanwhile are left out.
            let Ok(meta) = fs::metadata(entry.path()) else { continue };
            let below = format!("{key}/");
            if meta.is_dir() && (below.starts_with(prefix) || prefix.starts_with(&below)) {
                deeper.push(below);
            } else if meta.is_file() && key.starts_with(prefix) {
                objects.push(described(key, &meta));
            }
        }
        Ok((objects, deeper))
    }
}

fn create(path: &Path) -> io::Result<File> {
    OpenOptions::new().write(true).create(true).truncate(true).open(path)
}

/// The key for which a listed file was written, if its writer died before it could rename it.
/// `JuiceFS` uses the same temporary names.
pub fn unfinished(key: &str) -> Option<String> {
    let (directory, name) = key.split_at(key.rfind('/').map_or(0, |slash| slash + 1));
    let (name, number) = name.strip_prefix(".jfs.")?.rsplit_once(".tmp.")?;
    number.parse::<u64>().ok()?;
    Some(format!("{directory}{name}"))
}

fn described(key: String, meta: &fs::Metadata) -> ObjectMeta {
    let modified = meta.modified().ok().and_then(|time| time.duration_since(UNIX_EPOCH).ok());
    let modified = modified.map(|since| Time { sec: since.as_secs() as i64, nsec: since.subsec_nanos() });
    ObjectMeta { key, size: meta.len(), modified }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use futures::executor::block_on;

    use super::*;

    #[test]
    fn a_full_disk_is_not_asked_again() {
        let (_directory, store) = store(false);
        for errno in [rustix::io::Errno::NOSPC, rustix::io::Errno::DQUOT] {
            let error = store.0.failed("write", "k", &errno.into());
            assert!(matches!(error, ObjectError::Full { .. }), "{error}");
        }
    }

    fn store(sync: bool) -> (tempfile::TempDir, FileStore) {
        let directory = tempfile::tempdir().unwrap();
        let store = FileStore::new(format!("{}/bucket/", directory.path().display()), sync).unwrap();
        (directory, store)
    }

    fn keys(store: &FileStore, prefix: &str) -> Vec<String> {
        let mut keys: Vec<String> =
            block_on(store.list(prefix).map_ok(|meta| meta.key).try_collect()).unwrap();
        keys.sort();
        keys
    }

    #[test]
    fn puts_files_where_the_format_says() {
        for sync in [false, true] {
            let (directory, store) = store(sync);
            block_on(store.put("vol/chunks/0/0/1_0_4", Bytes::from_static(b"abcd"))).unwrap();
            let path = directory.path().join("bucket/vol/chunks/0/0/1_0_4");
            assert_eq!(fs::read(&path).unwrap(), b"abcd");
            // Nothing but the object is left in its directory.
            assert_eq!(fs::read_dir(path.parent().unwrap()).unwrap().count(), 1);
            let probe = directory.path().join("probe");
            fs::write(&probe, "").unwrap();
            let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode();
            assert_eq!(mode(&path), mode(&probe), "0666 less the umask");
        }
    }

    #[test]
    fn reads_ranges_and_refuses_to_read_past_the_end() {
        let (_directory, store) = store(false);
        let body: Vec<u8> = (0..3_000_000_u32).map(|i| (i % 251) as u8).collect();
        block_on(store.put("k", Bytes::from(body.clone()))).unwrap();
        assert_eq!(block_on(store.get("k", None)).unwrap(), body);
        assert_eq!(block_on(store.get("k", Some(5..1_000_005))).unwrap(), body[5..1_000_005]);
        assert_eq!(block_on(store.get("k", Some(7..7))).unwrap(), Bytes::new());
        let error = block_on(store.get("k", Some(2_999_999..3_000_001))).unwrap_err();
        assert!(matches!(error, ObjectError::Corrupt { .. }), "{error}");
        let error = block_on(store.get("other", None)).unwrap_err();
        assert!(matches!(error, ObjectError::NotFound { .. }), "{error}");
    }

    #[test]
    fn objects_come_back_whole_whichever_way_they_go() {
        let (directory, store) = store(false);
        for size in [100 << 10, (100 << 10) + 1, 1 << 20, 4 << 20, (4 << 20) + 4096, (4 << 20) + 1] {
            let mut body = Buffer::with_length(size);
            body.iter_mut().zip(0_u32..).for_each(|(byte, at)| *byte = (at % 251) as u8);
            let body = Bytes::from(body);
            block_on(store.put("k", body.clone())).unwrap();
            let file = File::open(directory.path().join("bucket/k")).unwrap();
            for cold in [false, true] {
                if cold {
                    file.sync_all().unwrap();
                    rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed).unwrap();
                }
                assert!(block_on(store.get("k", None)).unwrap() == body, "{size} {cold}");
                let end = size as u64;
                assert!(block_on(store.get("k", Some(4096..end))).unwrap() == body[4096..], "{size} {cold}");
                block_on(store.get("k", Some(0..end + 4096))).unwrap_err();
            }
        }
    }

    #[test]
    fn a_sync_covers_all_that_was_put_and_an_object_that_fails_is_not_forgotten() {
        let (directory, store) = store(false);
        let keys: Vec<String> = (0..1100).map(|n| format!("chunks/{}/{n}", n % 3)).collect();
        for key in &keys {
            block_on(store.put(key, Bytes::from_static(b"x"))).unwrap();
        }
        block_on(store.delete(&keys[5])).unwrap();
        block_on(store.sync()).unwrap();
        block_on(store.put("k", Bytes::from_static(b"x"))).unwrap();
        block_on(store.put("other", Bytes::from_static(b"x"))).unwrap();
        let path = directory.path().join("bucket/k");
        fs::remove_file(&path).unwrap();
        std::os::unix::fs::symlink(&path, &path).unwrap();
        for _ in 0..2 {
            block_on(store.sync()).unwrap_err();
        }
        fs::remove_file(&path).unwrap();
        block_on(store.sync()).unwrap();
    }

    #[test]
    fn an_object_that_no_block_can_be_is_not_read_into_memory() {
        let (directory, store) = store(false);
        block_on(store.put("k", Bytes::from_static(b"x"))).unwrap();
        let file = File::options().write(true).open(directory.path().join("bucket/k")).unwrap();
        file.set_len(MAX_OBJECT + 1).unwrap();
        let error = block_on(store.get("k", None)).unwrap_err();
        assert!(matches!(error, ObjectError::Corrupt { .. }), "{error}");
        assert_eq!(block_on(store.get("k", Some(0..1))).unwrap(), "x");
    }

    #[test]
    fn lists_by_prefix_and_says_what_is_unfinished() {
        let (directory, store) = store(false);
        for key in ["chunks/0/0/1_0_1", "chunks/0/1/2_0_1", "meta/dump-1", "meta/other", "uuid"] {
            block_on(store.put(key, Bytes::from_static(b"x"))).unwrap();
        }
        assert_eq!(
            keys(&store, ""),
            ["chunks/0/0/1_0_1", "chunks/0/1/2_0_1", "meta/dump-1", "meta/other", "uuid"]
        );
        assert_eq!(keys(&store, "chunks/"), ["chunks/0/0/1_0_1", "chunks/0/1/2_0_1"]);
        let left = format!("chunks/0/0/{}", store.0.temporary_name(Path::new("chunks/0/0/1_0_1")));
        fs::write(directory.path().join("bucket").join(&left), "half").unwrap();
        assert_eq!(keys(&store, "chunks/"), [left.as_str(), "chunks/0/0/1_0_1", "chunks/0/1/2_0_1"]);
        assert_eq!(unfinished(&left).as_deref(), Some("chunks/0/0/1_0_1"));
        for finished in ["chunks/0/0/1_0_1", "a.tmp.1", ".jfs.a.tmp.b", "d/.jfs.a"] {
            assert_eq!(unfinished(finished), None, "{finished}");
        }
        block_on(store.delete(&left)).unwrap();
        assert_eq!(keys(&store, "meta/dump"), ["meta/dump-1"]);
        assert_eq!(keys(&store, "nothing/"), [""; 0]);
        block_on(store.delete("uuid")).unwrap();
        block_on(store.delete("uuid")).unwrap();
        block_on(store.delete("chunks/0/1/")).unwrap_err();
        block_on(store.delete("chunks/0/1/2_0_1")).unwrap();
        block_on(store.delete("chunks/0/1/")).unwrap();
        assert!(!directory.path().join("bucket/chunks/0/1").exists());
        assert_eq!(keys(&store, "u"), [""; 0]);
        assert_eq!(block_on(store.head("meta/other")).unwrap().size, 1);
    }

    #[test]
    fn a_bucket_below_a_file_is_not_asked_again() {
        let directory = tempfile::tempdir().unwrap();
        fs::write(directory.path().join("file"), "").unwrap();
        for bucket in ["file/", "file/below/"] {
            let store = FileStore::new(format!("{}/{bucket}", directory.path().display()), false).unwrap();
            for error in [
                block_on(store.put("k", Bytes::from_static(b"x"))).unwrap_err(),
                block_on(store.get("k", None)).unwrap_err(),
                block_on(store.delete("k")).unwrap_err(),
            ] {
                assert!(matches!(error, ObjectError::Config { .. }), "{error}");
            }
        }
    }

    #[test]
    fn long_keys_fit_their_temporary_names() {
        let (_directory, store) = store(false);
        let key = "é".repeat(120);
        block_on(store.put(&key, Bytes::from_static(b"x"))).unwrap();
        assert_eq!(keys(&store, ""), [key]);
    }

    #[test]
    fn relative_directories_are_refused() {
        let error = FileStore::new("jfs/", false).unwrap_err();
        assert!(error.to_string().contains("absolute"), "{error}");
    }
}
