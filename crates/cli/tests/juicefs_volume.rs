//! Volumes that JuiceFS 1.4.1 wrote, mounted for reading and writing by the real program: every
//! entry is as the manifest says that was made through a JuiceFS mount.

mod support;

use std::{
    ffi::OsStr,
    fs,
    io::{Read, Seek, Write},
    os::unix::{
        ffi::OsStrExt,
        fs::{FileTypeExt, MetadataExt},
    },
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
};

use flate2::read::GzDecoder;
use serde_json::Value;
use sluice_testkit::fuse::no_fuse;
use support::{Volume, ok, until};

/// A file of the fixtures, of this crate or of the engine's.
fn fixture(path: &str) -> PathBuf {
    [env!("CARGO_MANIFEST_DIR"), "..", path].iter().collect()
}

/// What a compressed file of the fixtures holds.
fn unzip(path: &str) -> Vec<u8> {
    let (file, mut content) = (fs::File::open(fixture(path)).expect(path), Vec::new());
    GzDecoder::new(file).read_to_end(&mut content).expect(path);
    content
}

/// The volume of the fixtures in a folder of its own, its metadata in `database`.
fn sqlite(database: &str) -> Volume {
    let volume = Volume::folder();
    fs::write(volume.path("meta.db"), unzip(database)).expect("written");
    volume
}

/// A server with the records of a volume.
struct Redis(Child);

impl Redis {
    fn start(volume: &mut Volume, dump: &str) -> Self {
        fs::copy(fixture(dump), volume.path("dump.rdb")).expect(dump);
        let server = Command::new("redis-server")
            .args(["--port", "0", "--save", "", "--appendonly", "no", "--unixsocket", "redis.sock"])
            .args(["--logfile", "redis.log"])
            .current_dir(volume.folder.path())
            .stdin(Stdio::null())
            .spawn()
            .expect("redis-server is installed");
        let server = Self(server);
        let socket = volume.path("redis.sock");
        volume.meta = format!("unix://{}?db=1", socket.display());
        until("redis-server to answer", || socket.exists() && support::run(&["status", &volume.meta]).0);
        server
    }
}

impl Drop for Redis {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Mounts the volume for reading and writing, compares every entry with the manifest, and works in
/// it; `fsck` finds nothing before and after.
fn every_entry_is_as_written(mut volume: Volume, name: &str, manifest: &[u8]) {
    let archive = fixture(&format!("cli/tests/fixtures/{name}-objects.tar.gz"));
    let status = Command::new("tar").arg("-xzf").arg(archive).arg("-C").arg(volume.folder.path()).status();
    assert!(status.expect("tar runs").success());
    let bucket = format!("{}/", volume.path("obj").display());
    ok(&["fsck", "--bucket", &bucket, &volume.meta]);
    let point = volume.mount("mnt", &["--bucket", &bucket, "--enable-xattr"]);
    let manifest: Vec<Value> = serde_json::from_slice(manifest).expect("a manifest");
    assert_eq!(manifest.len(), 46);
    for entry in &manifest {
        let relative = hex::decode(entry["path_hex"].as_str().expect("a path")).expect("hex");
        let path = point.join(OsStr::from_bytes(relative.strip_prefix(b"/").unwrap_or(&relative)));
        assert_eq!(differences(&path, entry), Vec::<String>::new(), "{name}: {}", entry["path"]);
    }
    write_and_remove(&point);
    volume.umount(&point);
    assert!(!volume.log().contains("read-only"), "{name}: {}", volume.log());
    ok(&["fsck", "--bucket", &bucket, &volume.meta]);
}

/// Writes a file of several blocks, one of them twice, as a user with a quota of the fixtures;
/// reads it back through a cold page cache, and removes it.
fn write_and_remove(point: &Path) {
    let path = point.join("written by another");
    let mut content: Vec<u8> = (0..300_000_u32).map(|n| ((n / 3) ^ (n >> 9)) as u8).collect();
    let mut file = fs::File::create_new(&path).expect("created");
    std::os::unix::fs::fchown(&file, Some(1000), Some(1001)).expect("chown");
    file.write_all(&content).expect("written");
    file.seek(std::io::SeekFrom::Start(70_000)).expect("a place");
    file.write_all(b"in the second block").expect("written");
    content[70_000..70_019].copy_from_slice(b"in the second block");
    file.sync_all().expect("synced");
    rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed).expect("advice");
    drop(file);
    assert!(fs::read(&path).expect("read") == content, "what was written is read");
    fs::remove_file(&path).expect("removed");
    assert!(!path.exists());
}

#[test]
fn as_it_is() {
    if !no_fuse() {
        let manifest = fs::read(fixture("cli/tests/fixtures/main-manifest.json")).expect("a manifest");
        every_entry_is_as_written(sqlite("cli/tests/fixtures/main.db.gz"), "main", &manifest);
    }
}

#[test]
fn lz4_and_hashed_names() {
    if !no_fuse() {
        let manifest = unzip("cli/tests/fixtures/lz4vol-manifest.json.gz");
        every_entry_is_as_written(sqlite("meta-sql/tests/fixtures/lz4vol.db.gz"), "lz4vol", &manifest);
    }
}

#[test]
fn zstd() {
    if !no_fuse() {
        let manifest = unzip("cli/tests/fixtures/zstdvol-manifest.json.gz");
        every_entry_is_as_written(sqlite("cli/tests/fixtures/zstdvol.db.gz"), "zstdvol", &manifest);
    }
}

#[test]
fn lz4_and_aes_with_rsa() {
    if !no_fuse() {
        let manifest = unzip("cli/tests/fixtures/encvol-manifest.json.gz");
        every_entry_is_as_written(sqlite("cli/tests/fixtures/encvol.db.gz"), "encvol", &manifest);
    }
}

#[test]
fn on_redis() {
    if !no_fuse() {
        let mut volume = Volume::folder();
        let _server = Redis::start(&mut volume, "meta-redis/tests/fixtures/redisvol.rdb");
        let manifest =
            fs::read(fixture("meta-redis/tests/fixtures/redisvol-manifest.json")).expect("a manifest");
        every_entry_is_as_written(volume, "redisvol", &manifest);
    }
}

/// What about a file is not as its entry in the manifest says.
fn differences(path: &Path, entry: &Value) -> Vec<String> {
    let mut wrong = Vec::new();
    let mut compare = |what: &str, seen: Value, wanted: &Value| {
        if seen != *wanted {
            wrong.push(format!("{what}: {seen} instead of {wanted}"));
        }
    };
    let found = fs::symlink_metadata(path).expect("it is there");
    let nanos = |sec: i64, nsec: i64| Value::from(sec * 1_000_000_000 + nsec);
    compare("ino", found.ino().into(), &entry["ino"]);
    compare("mode", format!("0o{:o}", found.mode()).into(), &entry["mode"]);
    compare("uid", found.uid().into(), &entry["uid"]);
    compare("gid", found.gid().into(), &entry["gid"]);
    compare("nlink", found.nlink().into(), &entry["nlink"]);
    compare("size", found.size().into(), &entry["size"]);
    compare("atime", nanos(found.atime(), found.atime_nsec()), &entry["atime_ns"]);
    compare("mtime", nanos(found.mtime(), found.mtime_nsec()), &entry["mtime_ns"]);
    compare("ctime", nanos(found.ctime(), found.ctime_nsec()), &entry["ctime_ns"]);
    let kind = found.file_type();
    if kind.is_block_device() || kind.is_char_device() {
        let rdev = found.rdev();
        compare("rdev", vec![rustix::fs::major(rdev), rustix::fs::minor(rdev)].into(), &entry["rdev"]);
    }
    if kind.is_symlink() {
        let target = fs::read_link(path).expect("a target");
        compare("target", target.to_string_lossy().into(), &entry["target"]);
    }
    if let Some(xattrs) = entry["xattrs_hex"].as_object() {
        for (name, wanted) in xattrs {
            let mut value = vec![0; 65536];
            let seen = rustix::fs::lgetxattr(path, name.as_str(), &mut value[..]);
            let seen = seen.map_or_else(|error| error.to_string(), |size| hex::encode(&value[..size]));
            compare(name, seen.into(), wanted);
        }
    }
    if let Some(wanted) = entry.get("sha256") {
        let mut content = fs::File::open(path).expect("opened");
        let mut digest = aws_lc_rs::digest::Context::new(&aws_lc_rs::digest::SHA256);
        let mut block = vec![0; 1 << 20];
        loop {
            match content.read(&mut block).expect("read") {
                0 => break,
                size => digest.update(&block[..size]),
            }
        }
        compare("sha256", hex::encode(digest.finish()).into(), wanted);
    }
    wrong
}
