//! `sluice warmup`: the block cache of a mount holds what it was told to, and nothing else.

mod support;

use std::{
    fs,
    io::Write,
    path::{Path, PathBuf},
    process::Command,
};

use sluice_testkit::fuse::no_fuse;
use support::{Volume, fails, ok, until};

/// A cache needs no free space on the disk of the tests.
const ROOM: [&str; 2] = ["--free-space-ratio", "0"];

fn text(path: &Path) -> String {
    path.display().to_string()
}

/// The bytes of a file, past the kernel's cache.
fn read(path: &Path) -> std::io::Result<Vec<u8>> {
    let file = fs::File::open(path)?;
    rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed)?;
    drop(file);
    fs::read(path)
}

/// A mounted volume with a tree of two files, three blocks in all, nothing of it cached.
fn volume() -> (Volume, PathBuf) {
    let mut volume = Volume::new(&["--block-size", "64K", "--trash-days", "0"]);
    let point = volume.mount("mnt", &[]);
    fs::create_dir_all(point.join("tree/deep")).expect("made");
    fs::write(point.join("tree/large"), vec![7; 128 << 10]).expect("written");
    fs::write(point.join("tree/deep/small"), "small").expect("written");
    volume.umount(&point);
    fs::remove_dir_all(volume.path("cache")).expect("removed");
    let point = volume.mount("mnt", &ROOM);
    (volume, point)
}

#[test]
fn what_is_warm_needs_no_object_store() {
    if no_fuse() {
        return;
    }
    let (mut volume, point) = volume();
    let (tree, large) = (text(&point.join("tree")), point.join("tree/large"));
    assert!(
        ok(&["warmup", "--check", &tree])
            .contains("2 files: 0 B of 128.00 KiB (0.0%) cached, 128.00 KiB not")
    );
    let said = ok(&["warmup", &tree]);
    assert!(said.contains("warmed up 128.00 KiB of 2 files"), "{said}");
    let said = ok(&["warmup", "--check", &tree]);
    assert!(said.contains("2 files: 128.00 KiB of 128.00 KiB (100.0%) cached, 0 B not"), "{said}");
    assert!(said.contains(&text(&volume.path("cache"))), "where it is: {said}");

    let (objects, away) = (volume.path("objects/testvol/chunks"), volume.path("away"));
    fs::rename(&objects, &away).expect("moved");
    assert_eq!(read(&large).expect("read"), vec![7; 128 << 10]);
    assert_eq!(read(&point.join("tree/deep/small")).expect("read"), b"small");
    let said = ok(&["warmup", "--evict", &text(&large)]);
    assert!(said.contains("evicted 128.00 KiB of 1 files"), "{said}");
    assert!(ok(&["warmup", "--check", &tree]).contains("2 files: 5 B of 128.00 KiB"));
    read(&large).expect_err("its blocks are nowhere");
    let said = fails(&["warmup", &tree]);
    assert!(said.contains("/tree/large") && said.contains("does not exist"), "{said}");
    assert!(
        said.contains("warmed up 5 B of 2 files") && said.contains("128.00 KiB are not cached"),
        "{said}"
    );
    fs::rename(&away, &objects).expect("moved");
    assert!(ok(&["warmup", &tree]).contains("warmed up 128.00 KiB"));
    volume.umount(&point);
}

#[test]
fn a_cache_directory_that_was_removed_is_filled_again() {
    if no_fuse() {
        return;
    }
    let (mut volume, point) = volume();
    let tree = text(&point.join("tree"));
    ok(&["warmup", &tree]);
    fs::remove_dir_all(volume.path("cache")).expect("removed");
    assert!(ok(&["warmup", "--check", &tree]).contains("2 files: 0 B of 128.00 KiB (0.0%) cached"));
    ok(&["warmup", &tree]);
    fs::remove_dir_all(volume.path("cache")).expect("removed");
    // Without a look in between.
    assert!(ok(&["warmup", &tree]).contains("warmed up 128.00 KiB of 2 files"));
    fs::rename(volume.path("objects/testvol/chunks"), volume.path("away")).expect("moved");
    assert_eq!(read(&point.join("tree/large")).expect("read"), vec![7; 128 << 10]);
    volume.umount(&point);
}

#[test]
fn paths_come_from_a_file_and_lead_anywhere_in_the_mount() {
    if no_fuse() {
        return;
    }
    let (mut volume, point) = volume();
    std::os::unix::fs::symlink("large", point.join("tree/link")).expect("linked");
    let odd = point.join("tree/two\nlines");
    fs::write(&odd, vec![1; 1000]).expect("written");
    let list = volume.path("list");
    let mut file = fs::File::create(&list).expect("made");
    write!(file, "{}\n\n{}\n", text(&point.join("tree/link")), text(&point.join("tree/deep/../deep")))
        .expect("written");
    drop(file);
    let said = ok(&["warmup", "--file", &text(&list), &text(&odd)]);
    assert!(said.contains("of 3 files"), "{said}");
    let said = ok(&["warmup", "--check", &text(&point)]);
    assert!(said.contains("3 files") && said.contains("(100.0%)"), "{said}");
    let said = fails(&["warmup", &text(&point.join("nothing")), &text(&odd)]);
    assert!(said.contains("cannot use") && said.contains("of 1 files"), "{said}");
    // Every blank of a line belongs to the name.
    let blanks = point.join("tree/large ");
    fs::write(&blanks, vec![2; 10]).expect("written");
    fs::write(&list, text(&blanks)).expect("written");
    let said = ok(&["warmup", "--file", &text(&list)]);
    assert!(said.contains("warmed up 10 B of 1 files"), "{said}");
    fs::remove_file(&blanks).expect("removed");
    let said = fails(&["warmup", "--file", &text(&list)]);
    assert!(said.contains("cannot use") && said.contains("No such file"), "{said}");
    fails(&["warmup"]);
    fails(&["warmup", "--evict", "--check", &text(&point)]);
    assert!(fails(&["warmup", &text(volume.folder.path())]).contains("in no mounted volume"));

    ok(&["warmup", "--evict", &text(&point)]);
    let said = ok(&["warmup", "--background", &text(&point)]);
    assert!(said.contains("1 paths in the background"), "{said}");
    until("the files to be warm", || ok(&["warmup", "--check", &text(&point)]).contains("(100.0%)"));
    until("the log to tell", || volume.log().contains("warmup has ended"));
    volume.umount(&point);
}

/// A directory that is bound over another one, until this is dropped.
struct Bound(PathBuf);

impl Bound {
    fn over(source: &Path, target: &Path) -> Self {
        let bound = Command::new("mount").arg("--bind").args([source, target]).status().expect("mount runs");
        assert!(bound.success(), "{} cannot be bound over {}", source.display(), target.display());
        Self(target.to_owned())
    }
}

impl Drop for Bound {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(&self.0).status();
    }
}

#[test]
fn what_is_bound_over_a_directory_of_the_mount_is_what_is_meant() {
    if no_fuse() || !rustix::process::geteuid().is_root() {
        return;
    }
    let (mut volume, point) = volume();
    fs::create_dir_all(point.join("hidden/deep")).expect("made");
    let bound = Bound::over(&point.join("tree"), &point.join("hidden"));
    let small = point.join("hidden/deep/small");
    let said = ok(&["warmup", &text(&small)]);
    assert!(said.contains("warmed up 5 B of 1 files"), "{said}");
    let said = ok(&["warmup", &text(&point.join("hidden"))]);
    assert!(said.contains("warmed up 128.00 KiB of 2 files"), "{said}");
    // Beside paths of the mount itself, in one request.
    let said = ok(&["warmup", "--check", &text(&point.join("tree/large")), &text(&small)]);
    assert!(said.contains("2 files") && said.contains("(100.0%)"), "{said}");
    drop(bound);
    let said = ok(&["warmup", "--check", &text(&point.join("hidden"))]);
    assert!(said.contains("0 files"), "nothing is in the directory that was hidden: {said}");
    volume.umount(&point);
}

#[test]
fn a_cache_without_room_is_said() {
    if no_fuse() {
        return;
    }
    let (mut volume, point) = volume();
    volume.umount(&point);
    let point = volume.mount("mnt", &["--cache-size", "100K", ROOM[0], ROOM[1], "--cache-eviction", "none"]);
    // One after the other: of those that come at once the last may still find room.
    let said = fails(&["warmup", "-p", "1", &text(&point.join("tree"))]);
    assert!(said.contains("are not cached") && said.contains("--cache-size"), "{said}");
    volume.umount(&point);
}
