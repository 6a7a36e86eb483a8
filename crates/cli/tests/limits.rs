//! Full volumes, full disks and names that are too long: the right error, and nothing lost.

mod support;

use std::{
    fs,
    io::{self, Write},
    os::unix::fs::symlink,
    path::Path,
};

use sluice_testkit::{disk::SmallDisk, fuse::no_fuse};
use support::{Volume, fails, ok, until};

const ENOSPC: Option<i32> = Some(28);
const ENAMETOOLONG: Option<i32> = Some(36);

/// Writes a file and makes sure that it is stored.
fn store(path: &Path, content: &[u8]) -> io::Result<()> {
    let mut file = fs::File::create(path)?;
    file.write_all(content)?;
    file.sync_all()
}

#[test]
fn a_volume_without_space_says_so_and_takes_more_once_there_is_some() {
    if no_fuse() {
        return;
    }
    for mut volume in Volume::each(&["--trash-days", "0", "--capacity", "1M"]) {
        let point = volume.mount("mnt", &[]);
        store(&point.join("a"), &vec![1; 700_000]).expect("room");
        let error = store(&point.join("b"), &vec![2; 700_000]).expect_err("no room");
        assert_eq!(error.raw_os_error(), ENOSPC);
        assert_eq!(fs::read(point.join("a")).expect("read"), vec![1; 700_000]);
        fs::remove_file(point.join("b")).expect("removing needs no room");
        fs::remove_file(point.join("a")).expect("removing needs no room");
        store(&point.join("c"), &vec![3; 700_000]).expect("room again");
        volume.umount(&point);
        ok(&["fsck", &volume.meta]);
    }
}

#[test]
fn a_volume_without_inodes_says_so_and_takes_more_once_there_are_some() {
    if no_fuse() {
        return;
    }
    for mut volume in Volume::each(&["--trash-days", "0", "--inodes", "3"]) {
        let point = volume.mount("mnt", &[]);
        for name in ["a", "b", "c"] {
            store(&point.join(name), b"x").expect("an inode");
        }
        assert_eq!(fs::File::create(point.join("d")).expect_err("none left").raw_os_error(), ENOSPC);
        assert_eq!(fs::create_dir(point.join("d")).expect_err("none left").raw_os_error(), ENOSPC);
        store(&point.join("a"), b"changed").expect("no inode is needed");
        fs::remove_file(point.join("b")).expect("removed");
        fs::create_dir(point.join("d")).expect("an inode");
        volume.umount(&point);
        ok(&["fsck", &volume.meta]);
    }
}

#[test]
fn a_full_cache_disk_costs_speed_only() {
    if no_fuse() {
        return;
    }
    let Some(disk) = SmallDisk::mount("1m") else { return };
    for flags in [&["--free-space-ratio", "0"][..], &["--free-space-ratio", "0", "--writeback"]] {
        let mut volume = Volume::new(&[]);
        symlink(disk.path(), volume.path("cache")).expect("made");
        disk.fill();
        let point = volume.mount("mnt", flags);
        for number in 0..8 {
            store(&point.join(number.to_string()), &vec![number; 300_000]).expect("stored");
        }
        volume.umount(&point);
        let point = volume.mount("mnt", flags);
        for number in 0..8 {
            assert_eq!(fs::read(point.join(number.to_string())).expect("read"), vec![number; 300_000]);
        }
        disk.empty();
        store(&point.join("later"), &vec![9; 300_000]).expect("stored");
        ok(&["umount", "--flush", &point.display().to_string()]);
        ok(&["fsck", &volume.meta]);
    }
}

#[test]
fn a_name_of_256_bytes_is_too_long_and_one_of_255_is_not() {
    if no_fuse() {
        return;
    }
    for mut volume in Volume::each(&["--trash-days", "0"]) {
        let point = volume.mount("mnt", &[]);
        let (good, long) = (point.join("n".repeat(255)), point.join("n".repeat(256)));
        fs::write(&good, "good").expect("255 bytes are a name");
        let refused = |done: io::Result<()>| {
            assert_eq!(done.expect_err("too long").raw_os_error(), ENAMETOOLONG);
        };
        refused(fs::write(&long, "x"));
        refused(fs::create_dir(&long));
        refused(fs::rename(&good, &long));
        refused(fs::hard_link(&good, &long));
        refused(symlink("x", &long));
        refused(fs::metadata(&long).map(drop));
        let text = |path: &Path| path.display().to_string();
        for command in [
            &["rmr", &text(&long)][..],
            &["clone", &text(&good), &text(&long)],
            &["info", &text(&long)],
            &["fsck", "--path", &text(&Path::new("/").join(long.file_name().expect("a name"))), &volume.meta],
            &["mdtest", &volume.meta, &"n".repeat(256)],
            &["mount", "--subdir", &"n".repeat(256), &volume.meta, &text(&volume.path("part"))],
        ] {
            let said = fails(command).to_lowercase();
            assert!(said.contains("name too long") || said.contains("255 bytes"), "{command:?}: {said}");
        }
        assert_eq!(fs::read_to_string(&good).expect("read"), "good");
        ok(&["rmr", &text(&good)]);
        until("the name to go", || !good.exists());
        volume.umount(&point);
        ok(&["fsck", &volume.meta]);
    }
}
