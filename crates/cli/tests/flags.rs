//! Flags of a mount by what they do, and those that are refused.

mod support;

use std::{
    fs,
    os::unix::fs::{FileExt, MetadataExt},
    path::{Path, PathBuf},
    process::Command,
};

use rustix::fs::XattrFlags;
use sluice_testkit::fuse::no_fuse;
use support::{Volume, fails, ok, until};

/// However full the disk is, blocks are cached.
const ROOM: [&str; 2] = ["--free-space-ratio", "0"];

/// A number in `.stats`.
fn stat(point: &Path, name: &str) -> u64 {
    let stats = fs::read_to_string(point.join(".stats")).expect("the mount answers");
    let line = stats.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    line.unwrap_or_else(|| panic!("no {name} in {stats}")).parse().expect("a whole number")
}

fn blocks(point: &Path) -> u64 {
    stat(point, "juicefs_blockcache_blocks")
}

/// A volume with a file of two full blocks, and nothing in the cache.
fn volume() -> Volume {
    let mut volume = Volume::new(&["--block-size", "64K"]);
    let point = volume.mount("mnt", &[]);
    fs::write(point.join("file"), vec![7; 128 << 10]).expect("written");
    volume.umount(&point);
    fs::remove_dir_all(volume.path("cache")).expect("removed");
    volume
}

/// Files below a folder.
fn files(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        if entry.path().is_dir() {
            found.extend(files(&entry.path()));
        } else {
            found.push(entry.path());
        }
    }
    found
}

#[test]
fn blocks_that_nobody_uses_go() {
    if no_fuse() {
        return;
    }
    let mut volume = volume();
    let point = volume.mount("mnt", &["--cache-expire", "1s", ROOM[0], ROOM[1]]);
    assert_eq!(fs::read(point.join("file")).expect("read").len(), 128 << 10);
    until("the blocks to be cached", || stat(&point, "juicefs_blockcache_writes") == 2);
    until("the blocks to go", || blocks(&point) == 0);
    assert_eq!(files(&volume.path("cache")), Vec::<PathBuf>::new());
    assert_eq!(fs::read(point.join("file")).expect("read").len(), 128 << 10);
    volume.umount(&point);
}

#[test]
fn what_others_removed_from_the_cache_is_found_out() {
    if no_fuse() {
        return;
    }
    let mut volume = volume();
    let point = volume.mount("mnt", &["--cache-scan-interval", "1s", ROOM[0], ROOM[1]]);
    fs::read(point.join("file")).expect("read");
    until("the blocks to be cached", || blocks(&point) == 2);
    for file in files(&volume.path("cache")) {
        fs::remove_file(file).expect("removed");
    }
    until("the index to follow", || blocks(&point) == 0);
    volume.umount(&point);
}

#[test]
fn only_blocks_read_in_part_are_cached() {
    if no_fuse() {
        return;
    }
    let mut volume = volume();
    let point = volume.mount("mnt", &["--cache-partial-only", ROOM[0], ROOM[1]]);
    assert_eq!(fs::read(point.join("file")).expect("read").len(), 128 << 10);
    volume.umount(&point);
    assert_eq!(files(&volume.path("cache")), Vec::<PathBuf>::new());

    let point = volume.mount("mnt", &["--cache-partial-only", ROOM[0], ROOM[1]]);
    let file = fs::File::open(point.join("file")).expect("open");
    rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::Random).expect("advised");
    let mut some = [0; 4096];
    // The second small read fetches the block.
    for page in [96 << 10, 64 << 10] {
        file.read_exact_at(&mut some, page).expect("read");
    }
    until("the block to be cached", || blocks(&point) == 1);
    drop(file);
    volume.umount(&point);
}

/// Hours of the day by the machine's clock, `from` now on.
fn hours(from: u32, until: u32) -> String {
    let output = Command::new("date").arg("+%H").output().expect("date runs");
    let now: u32 = String::from_utf8_lossy(&output.stdout).trim().parse().expect("an hour");
    format!("{}-{}", (now + from) % 24, (now + until) % 24)
}

#[test]
fn staged_blocks_wait_for_the_hours_of_uploads() {
    if no_fuse() {
        return;
    }
    let mut volume = Volume::new(&[]);
    let objects = |volume: &Volume| files(&volume.path("objects/testvol/chunks")).len();
    let point = volume.mount("mnt", &["--writeback", "--upload-hours", &hours(6, 7), ROOM[0], ROOM[1]]);
    fs::write(point.join("file"), "content").expect("written");
    fs::File::open(point.join("file")).expect("open").sync_all().expect("synced");
    assert_eq!(stat(&point, "juicefs_staging_blocks"), 1);
    volume.umount(&point);
    assert_eq!(objects(&volume), 0);

    let point = volume.mount("mnt", &["--writeback", "--upload-hours", &hours(0, 6), ROOM[0], ROOM[1]]);
    until("the upload", || stat(&point, "juicefs_staging_blocks") == 0);
    volume.umount(&point);
    assert_eq!(objects(&volume), 1);
}

#[test]
fn the_kernel_keeps_listings_until_the_directory_changes() {
    if no_fuse() {
        return;
    }
    let mut volume = Volume::new(&[]);
    let point = volume.mount("mnt", &["--readdir-cache", "--attr-cache", "1s"]);
    let other = volume.mount("other", &[]);
    fs::create_dir(point.join("d")).expect("made");
    fs::write(point.join("d/a"), "").expect("written");
    let list = || {
        let entries = fs::read_dir(point.join("d")).expect("listed").flatten();
        let mut names: Vec<_> = entries.map(|entry| entry.file_name().into_string().expect("text")).collect();
        names.sort();
        names
    };
    let asked = || {
        let stats = fs::read_to_string(point.join(".stats")).expect("the mount answers");
        let lines = stats.lines().filter_map(|line| line.strip_prefix("juicefs_fuse_ops_total_"));
        let listings =
            lines.filter_map(|line| line.strip_prefix("readdir")?.split(' ').nth(1)?.parse::<u64>().ok());
        listings.sum::<u64>()
    };
    assert_eq!(list(), ["a"]);
    let before = asked();
    assert!(before > 0);
    assert_eq!(list(), ["a"]);
    assert_eq!(asked(), before, "the kernel knows the listing");
    fs::write(point.join("d/b"), "").expect("written");
    assert_eq!(list(), ["a", "b"], "its own changes it knows at once");
    fs::write(other.join("d/c"), "").expect("written");
    until("the other's change to be seen", || list() == ["a", "b", "c"]);
    volume.umount(&other);
    volume.umount(&point);
}

#[test]
fn the_kernel_reads_ahead_as_far_as_it_is_told() {
    if no_fuse() || !rustix::process::geteuid().is_root() {
        return;
    }
    let mut volume = volume();
    for (flags, expected) in [(&[][..], "512"), (&["--kernel-readahead", "64K"], "64")] {
        let point = volume.mount("mnt", flags);
        let minor = rustix::fs::minor(fs::metadata(&point).expect("mounted").dev());
        let far =
            fs::read_to_string(format!("/sys/class/bdi/0:{minor}/read_ahead_kb")).expect("root may look");
        assert_eq!(far.trim(), expected);
        volume.umount(&point);
    }
}

#[test]
fn what_users_have_is_counted_when_that_begins() {
    if no_fuse() || !rustix::process::geteuid().is_root() {
        return;
    }
    for mut volume in Volume::each(&[]) {
        let point = volume.mount("mnt", &["--heartbeat", "1s"]);
        fs::create_dir(point.join("d")).expect("made");
        for name in ["a", "d/b"] {
            fs::write(point.join(name), vec![1; 5000]).expect("written");
            std::os::unix::fs::chown(point.join(name), Some(1000), Some(2000)).expect("given");
        }
        let meta = volume.meta.clone();
        ok(&["config", &meta, "--user-group-quota"]);
        // Beside a mount, which goes on counting.
        fs::write(point.join("c"), vec![1; 9000]).expect("written");
        std::os::unix::fs::chown(point.join("c"), Some(1000), Some(2000)).expect("given");
        volume.umount(&point);
        let said = ok(&["quota", "check", &meta]);
        assert!(said.contains("1000") && said.contains("2000"), "{said}");
    }
}

#[test]
fn labels_of_selinux_are_kept_if_asked_for() {
    if no_fuse() || !rustix::process::geteuid().is_root() {
        return;
    }
    let mut volume = Volume::new(&[]);
    let (name, label) = ("security.selinux", b"system_u:object_r:etc_t:s0\0");
    for (flags, kept) in [(&["--enable-xattr"][..], false), (&["--enable-selinux"], true)] {
        let point = volume.mount("mnt", flags);
        fs::write(point.join("file"), "").expect("written");
        let set = rustix::fs::setxattr(point.join("file"), name, label, XattrFlags::empty());
        let mut found = [0; 64];
        let read = rustix::fs::getxattr(point.join("file"), name, &mut found);
        assert_eq!(
            (set.is_ok(), read.is_ok_and(|length| found[..length] == *label)),
            (kept, kept),
            "{flags:?}"
        );
        volume.umount(&point);
    }
}

#[test]
fn what_cannot_be_done_is_refused_with_the_reason() {
    let volume = Volume::new(&[]);
    let point = volume.path("mnt").display().to_string();
    for (flags, reason) in [
        (&["--tag", "a=b"][..], "cannot be tagged"),
        (&["--sort-dir"], "sort by themselves"),
        (&["--network-interfaces", "eth0"], "leave it out"),
        (&["--skip-dir-mtime", "100ms"], "say 0"),
        (&["--skip-dir-nlink", "20"], "say 0"),
        (&["-o", "ro,writeback_cache"], "leave it out"),
        (&["--non-default-permission"], "cannot be switched off"),
        (&["--upload-hours", "22-25"], "hours of the day"),
        (&["--upload-hours", "soon"], "hours of the day"),
    ] {
        let said = fails(&[&["mount"], flags, &[&volume.meta, &point]].concat());
        assert!(said.contains(reason) && said.contains(flags[0]), "{flags:?}: {said}");
    }
    assert!(!volume.path("mnt").exists(), "nothing was done");
}
