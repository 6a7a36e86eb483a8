//! A volume that JuiceFS 1.4.1 wrote, mounted by the real program: every entry is as its manifest says.

mod support;

use std::{
    ffi::OsStr,
    fs,
    io::Read,
    os::unix::{
        ffi::OsStrExt,
        fs::{FileTypeExt, MetadataExt},
    },
    path::Path,
    process::Command,
};

use flate2::read::GzDecoder;
use serde_json::Value;
use support::{Volume, can_mount, ok};

/// The volume of the fixtures in a folder of its own.
fn unpack() -> (Volume, String) {
    let volume = Volume::folder();
    let mut database = Vec::new();
    GzDecoder::new(&include_bytes!("fixtures/main.db.gz")[..]).read_to_end(&mut database).expect("unpacked");
    fs::write(volume.path("meta.db"), database).expect("written");
    let archive = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/main-objects.tar.gz");
    let status = Command::new("tar").args(["-xzf", archive, "-C"]).arg(volume.folder.path()).status();
    assert!(status.expect("tar runs").success());
    let bucket = format!("{}/", volume.path("obj").display());
    (volume, bucket)
}

#[test]
fn every_entry_is_as_juicefs_wrote_it() {
    if !can_mount() {
        return;
    }
    let (mut volume, bucket) = unpack();
    ok(&["fsck", "--bucket", &bucket, &volume.meta]);
    let point = volume.mount("mnt", &["--bucket", &bucket, "--enable-xattr"]);
    let manifest: Vec<Value> =
        serde_json::from_str(include_str!("fixtures/main-manifest.json")).expect("a manifest");
    assert_eq!(manifest.len(), 46);
    for entry in &manifest {
        let relative = hex::decode(entry["path_hex"].as_str().expect("a path")).expect("hex");
        let path = point.join(OsStr::from_bytes(relative.strip_prefix(b"/").unwrap_or(&relative)));
        assert_eq!(differences(&path, entry), Vec::<String>::new(), "{}", entry["path"]);
    }
    volume.umount(&point);
    ok(&["fsck", "--bucket", &bucket, &volume.meta]);
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
