//! Damaged records and objects: whoever touches them is told what is damaged and what to do,
//! everything else goes on, and nothing is repaired away.

mod support;

use std::{
    fs,
    io::{Read, Write},
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
};

use sluice_testkit::fuse::no_fuse;
use support::{Volume, fails, ok, until};

const EIO: Option<i32> = Some(5);

fn says(said: &str, words: &[&str]) {
    for word in words {
        assert!(said.contains(word), "`{word}` is not in: {said}");
    }
}

/// Files a, b and c with their names as content; the inode of b. What was cached of them is gone.
fn sample(volume: &mut Volume) -> u64 {
    let point = volume.mount("mnt", &[]);
    for name in ["a", "b", "c"] {
        fs::write(point.join(name), name.repeat(5000)).expect("written");
    }
    let ino = fs::metadata(point.join("b")).expect("seen").ino();
    volume.umount(&point);
    fs::remove_dir_all(volume.path("cache")).expect("removed");
    ino
}

fn names(dir: &Path) -> Vec<String> {
    let listed = fs::read_dir(dir).expect("opened");
    let mut names: Vec<_> =
        listed.map(|entry| entry.expect("listed").file_name().into_string().expect("text")).collect();
    names.retain(|name| !name.starts_with('.'));
    names.sort();
    names
}

/// Everything but b can be used.
fn the_rest_goes_on(point: &Path) {
    for name in ["a", "c"] {
        assert_eq!(fs::read_to_string(point.join(name)).expect("read"), name.repeat(5000));
    }
    fs::write(point.join("new"), "new").expect("written");
    fs::remove_file(point.join("new")).expect("removed");
}

/// `fsck` names the record, with or without `--repair`, and changes nothing.
fn fsck_names(volume: &Volume, record: &str) {
    for repair in [&["--repair"][..], &[]] {
        let said = fails(&[&["fsck", &volume.meta], repair].concat());
        says(&said, &[record, "cannot be read", "backup", "1 errors", "nothing is repaired"]);
    }
}

#[test]
fn a_damaged_node_hides_nothing_else() {
    if no_fuse() {
        return;
    }
    for mut volume in Volume::each(&["--trash-days", "0"]) {
        let ino = sample(&mut volume);
        volume.forge(
            &format!("UPDATE jfs_node SET type = 99 WHERE inode = {ino}"),
            &["SET", &format!("i{ino}"), "no node"],
        );
        let record = volume.record(&format!("jfs_node {ino}"), &format!("i{ino}"));
        let point = volume.mount("mnt", &[]);
        assert_eq!(names(&point), ["a", "b", "c"]);
        assert_eq!(fs::metadata(point.join("b")).expect_err("damaged").raw_os_error(), EIO);
        the_rest_goes_on(&point);
        let said = fails(&["rmr", &point.join("b").display().to_string()]);
        says(&said, &["/b", "the log of the mount says why"]);
        volume.umount(&point);
        says(&volume.log(), &["damaged record", &record, "fsck"]);
        fsck_names(&volume, &record);
        // Deleted by hand it is only missing, and that can be put right.
        volume.forge(&format!("DELETE FROM jfs_node WHERE inode = {ino}"), &["DEL", &format!("i{ino}")]);
        ok(&["fsck", "--repair", &volume.meta]);
        ok(&["fsck", &volume.meta]);
        let point = volume.mount("mnt", &[]);
        assert_eq!(names(&point), ["a", "c"]);
        the_rest_goes_on(&point);
        volume.umount(&point);
    }
}

#[test]
fn a_listing_with_a_damaged_entry_does_not_look_complete() {
    if no_fuse() {
        return;
    }
    for mut volume in Volume::each(&["--trash-days", "0"]) {
        sample(&mut volume);
        volume
            .forge("UPDATE jfs_edge SET type = 0 WHERE name = CAST('b' AS BLOB)", &["HSET", "d1", "b", "x"]);
        let record = volume.record("jfs_edge 1 b", "d1 b");
        let point = volume.mount("mnt", &[]);
        let listed: Result<Vec<_>, _> = fs::read_dir(&point).and_then(Iterator::collect);
        assert_eq!(listed.expect_err("damaged").raw_os_error(), EIO);
        assert_eq!(fs::metadata(point.join("b")).expect_err("damaged").raw_os_error(), EIO);
        the_rest_goes_on(&point);
        volume.umount(&point);
        says(&volume.log(), &["damaged record", &record, "fsck"]);
        fsck_names(&volume, &record);
    }
}

#[test]
fn a_file_with_a_damaged_chunk_is_neither_read_nor_written() {
    if no_fuse() {
        return;
    }
    for mut volume in Volume::each(&["--trash-days", "0"]) {
        let ino = sample(&mut volume);
        volume.forge(
            &format!("UPDATE jfs_chunk SET slices = x'010203' WHERE inode = {ino}"),
            &["LSET", &format!("c{ino}_0"), "0", "short"],
        );
        let record = volume.record(&format!("jfs_chunk {ino} 0"), &format!("c{ino}_0"));
        let point = volume.mount("mnt", &[]);
        assert_eq!(fs::read(point.join("b")).expect_err("damaged").raw_os_error(), EIO);
        let mut file = fs::File::options().append(true).open(point.join("b")).expect("opened");
        file.write_all(b"more").expect("buffered");
        assert_eq!(file.sync_all().expect_err("damaged").raw_os_error(), EIO);
        drop(file);
        the_rest_goes_on(&point);
        volume.umount(&point);
        says(&volume.log(), &["damaged record", &record, "fsck"]);
        fsck_names(&volume, &record);
    }
}

#[test]
fn damaged_settings_are_never_replaced() {
    for volume in Volume::each(&[]) {
        volume.forge("UPDATE jfs_setting SET value = '{\"Name\": '", &["SET", "setting", "{\"Name\": "]);
        let point = volume.path("mnt").display().to_string();
        let bucket = volume.path("other").display().to_string();
        for command in [
            &["status", &volume.meta][..],
            &["config", "--trash-days", "3", &volume.meta],
            &["fsck", "--repair", &volume.meta],
            &["mount", &volume.meta, &point],
            &["format", "--bucket", &bucket, &volume.meta, "testvol"],
            &["format", "--force", "--bucket", &bucket, &volume.meta, "testvol"],
        ] {
            says(&fails(command), &["the volume's settings are damaged", "setting", "backup"]);
        }
    }
}

/// The objects of a volume with so many bytes.
fn object(dir: &Path, of: &str) -> PathBuf {
    let mut dirs = vec![dir.to_owned()];
    while let Some(dir) = dirs.pop() {
        for entry in fs::read_dir(dir).expect("listed") {
            let path = entry.expect("listed").path();
            if path.is_dir() {
                dirs.push(path);
            } else if path.display().to_string().ends_with(of) {
                return path;
            }
        }
    }
    panic!("no object {of}")
}

/// Reads of b fail with its object named in the log, all else goes on.
fn a_damaged_object(volume: &mut Volume, object: &Path) {
    let point = volume.mount("mnt", &[]);
    let mut content = Vec::new();
    let mut file = fs::File::open(point.join("b")).expect("opened");
    assert_eq!(file.read_to_end(&mut content).expect_err("damaged").raw_os_error(), EIO);
    drop(file);
    the_rest_goes_on(&point);
    volume.umount(&point);
    let name = object.file_name().and_then(|name| name.to_str()).expect("text");
    says(&volume.log(), &["inode", name, "is damaged", "put the object back"]);
}

#[test]
fn a_truncated_object_is_an_error_and_fsck_names_its_file() {
    if no_fuse() {
        return;
    }
    for mut volume in Volume::each(&["--trash-days", "0"]) {
        let point = volume.mount("mnt", &[]);
        for (name, size) in [("a", 5000), ("b", 5001), ("c", 5000)] {
            fs::write(point.join(name), name.repeat(size)).expect("written");
        }
        volume.umount(&point);
        fs::remove_dir_all(volume.path("cache")).expect("removed");
        let object = object(&volume.path("objects"), "_0_5001");
        let short = fs::File::options().write(true).open(&object).expect("opened");
        short.set_len(2000).expect("cut");
        a_damaged_object(&mut volume, &object);
        says(&fails(&["fsck", &volume.meta]), &["has 2000 bytes", "/b", "1 blocks missing or damaged"]);
    }
}

#[test]
fn a_flipped_bit_in_an_encrypted_object_is_an_error() {
    if no_fuse() {
        return;
    }
    let key = concat!(env!("CARGO_MANIFEST_DIR"), "/../object/tests/data/keys/pkcs8.pem");
    for mut volume in Volume::each(&["--trash-days", "0", "--encrypt-rsa-key", key]) {
        let point = volume.mount("mnt", &[]);
        for (name, size) in [("a", 5000), ("b", 5001), ("c", 5000)] {
            fs::write(point.join(name), name.repeat(size)).expect("written");
        }
        volume.umount(&point);
        fs::remove_dir_all(volume.path("cache")).expect("removed");
        let object = object(&volume.path("objects"), "_0_5001");
        let mut bytes = fs::read(&object).expect("read");
        let middle = bytes.len() - 2500;
        bytes[middle] ^= 1;
        fs::write(&object, bytes).expect("written");
        a_damaged_object(&mut volume, &object);
    }
}

#[test]
fn a_flipped_bit_in_the_cache_costs_nothing_but_a_download() {
    if no_fuse() {
        return;
    }
    let mut volume = Volume::new(&[]);
    // However full the disk of this machine is.
    let options = ["--free-space-ratio", "0.001"];
    let point = volume.mount("mnt", &options);
    fs::write(point.join("b"), "b".repeat(5001)).expect("written");
    until("the block to be cached", || {
        let mut found = false;
        let mut dirs = vec![volume.path("cache")];
        while let Some(dir) = dirs.pop() {
            for entry in fs::read_dir(dir).into_iter().flatten().filter_map(Result::ok) {
                let path = entry.path();
                found |= path.display().to_string().ends_with("_0_5001");
                if path.is_dir() {
                    dirs.push(path);
                }
            }
        }
        found
    });
    volume.umount(&point);
    let cached = object(&volume.path("cache"), "_0_5001");
    let mut bytes = fs::read(&cached).expect("read");
    bytes[1234] ^= 1;
    fs::write(&cached, bytes).expect("written");
    let point = volume.mount("mnt", &options);
    until("the cache to be known", || {
        let stats = fs::read_to_string(point.join(".stats")).expect("read");
        stats.lines().any(|line| line.ends_with("blockcache_blocks 1"))
    });
    assert_eq!(fs::read_to_string(point.join("b")).expect("read"), "b".repeat(5001));
    volume.umount(&point);
    says(&volume.log(), &["a cache file is damaged"]);
}

#[test]
fn a_bucket_that_became_a_file_fails_at_once() {
    if no_fuse() {
        return;
    }
    let mut volume = Volume::new(&["--trash-days", "0"]);
    sample(&mut volume);
    let bucket = volume.path("objects");
    fs::rename(&bucket, volume.path("away")).expect("moved");
    fs::write(&bucket, "no directory").expect("written");
    let point = volume.mount("mnt", &[]);
    let error = fs::read(point.join("a")).expect_err("no bucket");
    assert_eq!(error.raw_os_error(), EIO);
    let mut file = fs::File::create(point.join("new")).expect("made");
    file.write_all(b"new").expect("buffered");
    // Five minutes of trying would be too long for the test.
    let error = file.sync_all().expect_err("no bucket");
    assert_eq!(error.raw_os_error(), EIO);
    drop(file);
    says(&volume.log(), &["the bucket has to be a directory"]);
    fs::remove_file(&bucket).expect("removed");
    fs::rename(volume.path("away"), &bucket).expect("moved back");
    assert_eq!(fs::read_to_string(point.join("a")).expect("read"), "a".repeat(5000));
    fs::remove_file(point.join("new")).expect("removed");
    volume.umount(&point);
    ok(&["fsck", &volume.meta]);
}
