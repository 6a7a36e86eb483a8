//! A volume in memory, mounted: what the kernel and the adapter make of it together.

#![allow(clippy::unwrap_used, clippy::missing_panics_doc, reason = "a test panics when it fails")]

use std::{
    fs,
    io::{Read as _, Seek as _, SeekFrom, Write as _},
    os::unix::{
        fs::{MetadataExt, PermissionsExt, symlink},
        process::CommandExt,
    },
    path::Path,
    process::Command,
    sync::Arc,
    thread::{self, JoinHandle},
    time::Duration,
};

use sluice_data::{DataConfig, DataStore};
use sluice_fuse::{Config, MountError, MountOptions, Session, SessionHandle, VolumeFs};
use sluice_meta::{Meta, Options, mem::MemEngine, schema::VolumeFormat};
use sluice_object::MemStore;
use sluice_testkit::fuse::no_fuse;
use sluice_types::{Caller, Clock, Ino, SystemClock};
use sluice_vfs::{Interrupt, MetaIndex, RenameMode, Vfs, VfsConfig};
use tempfile::TempDir;

/// A mounted volume that ends with the test.
struct Mounted {
    vfs: Arc<Vfs>,
    handle: SessionHandle,
    served: Option<JoinHandle<Result<(), MountError>>>,
    dir: TempDir,
}

impl Mounted {
    /// Without a trash; `None` where there is known to be no FUSE.
    fn new(config: VfsConfig) -> Option<Self> {
        Self::with_trash(config, 0)
    }

    fn with_trash(config: VfsConfig, trash_days: i64) -> Option<Self> {
        if no_fuse() {
            return None;
        }
        let engine = Arc::new(MemEngine::new());
        let format = VolumeFormat { name: "test".into(), trash_days, ..VolumeFormat::default() };
        Meta::format(engine.as_ref(), &format, SystemClock.now()).unwrap();
        let index = MetaIndex::new(Meta::open(engine, Options::default()).unwrap());
        let store = Arc::new(MemStore::new());
        let data = DataStore::open(&DataConfig::default(), store, Arc::clone(&index) as _, None).unwrap();
        let vfs = Vfs::new(index, data, config);
        let adapter = VolumeFs::new(Arc::clone(&vfs));
        let config = Config { features: adapter.features(), ..Config::default() };
        let dir = tempfile::tempdir().unwrap();
        let mut options = MountOptions::new("memory", "sluice");
        options.allow_other = true;
        let session = Session::mount(adapter, dir.path(), &options, config).unwrap();
        let handle = session.handle();
        let served = Some(thread::spawn(move || session.run()));
        Some(Self { vfs, handle, served, dir })
    }

    fn path(&self) -> &Path {
        self.dir.path()
    }

    /// How often the kernel asked for each of `ops` while `run` ran.
    fn asked<const N: usize>(&self, ops: [&str; N], run: impl FnOnce()) -> [u64; N] {
        let counts = || {
            let text = self.vfs.stats_text();
            ops.map(|op| {
                let name = format!("juicefs_fuse_ops_total_{op} ");
                text.lines().find_map(|line| line.strip_prefix(&name)?.parse().ok()).unwrap_or(0)
            })
        };
        let before: [u64; N] = counts();
        run();
        let after = counts();
        std::array::from_fn(|at| after[at] - before[at])
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        self.handle.shutdown(Duration::from_secs(10)).unwrap();
        self.served.take().unwrap().join().unwrap().unwrap();
        self.vfs.close(None).unwrap();
    }
}

#[test]
fn programs_find_a_file_system() {
    let Some(mounted) = Mounted::new(VfsConfig::default()) else { return };
    let root = mounted.path();
    fs::create_dir(root.join("d")).unwrap();
    let file = root.join("d/f");
    fs::write(&file, b"0123456789").unwrap();
    fs::hard_link(&file, root.join("link")).unwrap();
    symlink("d/f", root.join("soft")).unwrap();
    fs::rename(root.join("d"), root.join("e")).unwrap();
    assert!(fs::read(root.join("soft")).is_err(), "it points nowhere now");
    assert_eq!(fs::read(root.join("link")).unwrap(), b"0123456789");
    let mut open = fs::OpenOptions::new().read(true).write(true).open(root.join("e/f")).unwrap();
    assert_eq!(open.metadata().unwrap().nlink(), 2);
    open.set_len(4).unwrap();
    open.seek(SeekFrom::Start(6)).unwrap();
    open.write_all(b"xy").unwrap();
    assert_eq!(open.metadata().unwrap().len(), 8);
    assert_eq!(fs::read(root.join("link")).unwrap(), b"0123\0\0xy");
    fs::remove_file(root.join("link")).unwrap();
    fs::remove_file(root.join("e/f")).unwrap();
    let mut rest = String::new();
    open.seek(SeekFrom::Start(0)).unwrap();
    open.read_to_string(&mut rest).unwrap();
    assert_eq!(rest, "0123\0\0xy");
    drop(open);
    fs::remove_dir(root.join("e")).unwrap();
    let mut left: Vec<_> = fs::read_dir(root).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    left.sort();
    assert_eq!(left, [".accesslog", ".config", ".stats", "soft"]);
}

#[test]
fn the_kernel_asks_no_more_than_it_must() {
    let Some(mounted) = Mounted::new(VfsConfig { xattr: true, ..VfsConfig::default() }) else { return };
    let root = mounted.path();
    fs::create_dir(root.join("d")).unwrap();
    let file = root.join("d/f");
    let ops = ["lookup", "create", "open", "flush", "getattr", "getxattr", "setattr"];
    let create = mounted.asked(ops, || drop(fs::File::create(&file).unwrap()));
    assert_eq!(create[..4], [1, 1, 0, 1], "create: {create:?}");
    assert!(create[4] <= 1 && create[5..] == [0, 0], "create: {create:?}");
    let read = mounted.asked(ops, || drop(fs::File::open(&file).unwrap()));
    // Record locks go with each close, whoever took them.
    assert_eq!(read[2..4], [1, 1], "one open, one flush: {read:?}");
    let unlink = mounted.asked(["unlink", "lookup", "open"], || fs::remove_file(&file).unwrap());
    assert_eq!(unlink, [1, 0, 0]);
    // The kernel looks for capabilities once a file, before its first write.
    let mut file = fs::File::create(root.join("d/g")).unwrap();
    file.write_all(&[1; 4096]).unwrap();
    let write = mounted.asked(["write", "getxattr", "setattr", "flush"], || {
        file.write_all(&vec![1; 64 << 10]).unwrap();
        file.write_all(&vec![1; 64 << 10]).unwrap();
    });
    assert_eq!(write, [2, 0, 0, 0], "nothing is asked before a write");
}

#[test]
fn a_private_directory_stays_private_once_its_names_are_cached() {
    let forever = Duration::from_hours(1);
    let config =
        VfsConfig { attr_ttl: forever, entry_ttl: forever, dir_entry_ttl: forever, ..VfsConfig::default() };
    let Some(mounted) = Mounted::new(config) else { return };
    let root = mounted.path();
    fs::set_permissions(root, fs::Permissions::from_mode(0o755)).unwrap();
    let secret = root.join("private/secret");
    fs::create_dir(root.join("private")).unwrap();
    fs::write(&secret, b"secret").unwrap();
    fs::set_permissions(&secret, fs::Permissions::from_mode(0o644)).unwrap();
    fs::set_permissions(root.join("private"), fs::Permissions::from_mode(0o700)).unwrap();
    assert_eq!(fs::read(&secret).unwrap(), b"secret");
    if fs::metadata("/proc/self").unwrap().uid() != 0 {
        return;
    }
    fs::set_permissions(mounted.path().parent().unwrap(), fs::metadata("/tmp").unwrap().permissions())
        .unwrap();
    for tool in ["cat", "stat"] {
        let output = Command::new(tool).arg(&secret).uid(65534).gid(65534).output().unwrap();
        let told = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success() && told.contains("Permission denied"), "{tool}: {told}");
    }
}

#[test]
fn who_belongs_to_the_group_by_a_further_group_keeps_setgid() {
    let Some(mounted) = Mounted::new(VfsConfig::default()) else { return };
    if fs::metadata("/proc/self").unwrap().uid() != 0 {
        return;
    }
    let root = mounted.path();
    std::os::unix::fs::chown(root, None, Some(2000)).unwrap();
    fs::set_permissions(root, fs::Permissions::from_mode(0o2777)).unwrap();
    let make = r"use Fcntl; umask 0; sysopen(F, $ARGV[0], O_CREAT | O_WRONLY, 02755) or die $!";
    for (name, groups, mode) in [("member", "2000", 0o2755), ("other", "3000", 0o755)] {
        let file = root.join(name);
        let user = ["--reuid=65534", "--regid=65534", &format!("--groups={groups}")];
        let made = Command::new("setpriv").args(user).args(["perl", "-e", make]).arg(&file).status().unwrap();
        assert!(made.success());
        let made = fs::metadata(&file).unwrap();
        assert_eq!((made.mode() & 0o7777, made.gid()), (mode, 2000), "{name}");
    }
}

#[test]
fn an_open_finds_what_took_the_place_of_a_file_also_when_that_lies_in_the_trash() {
    let forever = Duration::from_hours(1);
    let config = VfsConfig { attr_ttl: forever, entry_ttl: forever, ..VfsConfig::default() };
    let Some(mounted) = Mounted::with_trash(config, 1) else { return };
    let root = mounted.path();
    let replace = |name: &str| {
        fs::write(root.join(name), "old").unwrap();
        let new = format!("new {name}");
        fs::write(root.join(&new), "new").unwrap();
        assert_eq!(fs::metadata(root.join(name)).unwrap().len(), 3);
        let (vfs, me, never) = (&mounted.vfs, Caller::user(0, 0), Interrupt::never());
        let (from, to) = ((Ino::ROOT, new.as_bytes()), (Ino::ROOT, name.as_bytes()));
        vfs.rename(&me, &never, from, to, RenameMode::Replace).unwrap();
    };
    replace("read");
    assert_eq!(fs::read(root.join("read")).unwrap(), b"new");
    replace("write");
    let mut file = fs::OpenOptions::new().write(true).open(root.join("write")).unwrap();
    file.write_all(b"two").unwrap();
    drop(file);
    assert_eq!(fs::read(root.join("write")).unwrap(), b"two");
    replace("cut");
    fs::write(root.join("cut"), b"three").unwrap();
    assert_eq!(fs::read(root.join("cut")).unwrap(), b"three");

    let list = |dir: &Path| fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path()).collect::<Vec<_>>();
    let old: Vec<_> = list(&root.join(".trash")).iter().flat_map(|hour| list(hour)).collect();
    assert_eq!(old.len(), 3);
    for old in old {
        assert_eq!(fs::read(&old).unwrap(), b"old");
        let denied = fs::OpenOptions::new().write(true).open(&old).unwrap_err();
        assert_eq!(denied.raw_os_error(), Some(libc::EPERM));
    }
}
