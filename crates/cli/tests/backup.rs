//! Backups of the metadata: mounts make them, and a volume whose database is lost comes back.

mod support;

use std::{
    collections::BTreeMap,
    fs,
    os::unix::fs::{MetadataExt, symlink},
    path::{Path, PathBuf},
};

use sluice_testkit::fuse::no_fuse;
use support::{Volume, fails, kill_both, ok, sluice, until};

const KEY: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../object/tests/data/keys/pkcs8.pem");
const EVERY: &str = "SLUICE_TEST_BACKUP_META";

/// The backups in the volume's store whose names end in `suffix`, oldest first.
fn backups(volume: &Volume, suffix: &str) -> Vec<PathBuf> {
    let folder = fs::read_dir(volume.path("objects/testvol/meta"));
    let paths = folder.into_iter().flatten().filter_map(|entry| Some(entry.ok()?.path()));
    let mut paths: Vec<PathBuf> = paths.filter(|path| path.to_string_lossy().ends_with(suffix)).collect();
    paths.sort();
    paths
}

/// Waits for a backup that began after this call; its place.
fn next_backup(volume: &Volume, suffix: &str) -> PathBuf {
    // The first that ends may have begun before.
    let last = |volume| backups(volume, suffix).last().cloned();
    let mut seen = last(volume);
    for _ in 0..2 {
        until("a backup", || last(volume) > seen);
        seen = last(volume);
    }
    seen.expect("it was there")
}

/// What a file is: kind and permissions, number of names, size, content or target.
type Seen = (u32, u64, u64, Vec<u8>);

/// All that is below `dir`.
fn tree(dir: &Path) -> BTreeMap<PathBuf, Seen> {
    let (mut found, mut rest) = (BTreeMap::new(), vec![dir.to_owned()]);
    while let Some(folder) = rest.pop() {
        for entry in fs::read_dir(&folder).expect("a directory") {
            let path = entry.expect("an entry").path();
            let meta = path.symlink_metadata().expect("seen");
            let content = if meta.is_dir() {
                rest.push(path.clone());
                Vec::new()
            } else if meta.is_symlink() {
                fs::read_link(&path).expect("read").into_os_string().into_encoded_bytes()
            } else {
                fs::read(&path).expect("read")
            };
            let name = path.strip_prefix(dir).expect("below").to_owned();
            found.insert(name, (meta.mode(), meta.nlink(), meta.size(), content));
        }
    }
    found
}

fn fill(dir: &Path) {
    fs::create_dir_all(dir.join("a/b/c")).expect("made");
    for number in 0..50_u32 {
        fs::write(dir.join(format!("a/file {number}")), number.to_string().repeat(100)).expect("written");
    }
    let large: Vec<u8> = (0..9_000_001_u32).map(|at| (at % 251) as u8).collect();
    fs::write(dir.join("a/b/large"), large).expect("written");
    fs::write(dir.join("a/b/empty"), "").expect("written");
    fs::hard_link(dir.join("a/b/large"), dir.join("a/b/c/second name")).expect("made");
    symlink("b/large", dir.join("a/link")).expect("made");
}

/// From a backup to a mounted volume, as docs/running.md says it.
fn the_volume_comes_back(format: &[&str], backup: &[&str], suffix: &str) {
    let mut volume = Volume::new(format);
    volume.environment.push((EVERY, "1s".into()));
    let (point, guardian) = volume.serve("mnt", backup);
    fill(&point);
    let before = tree(&point.join("a"));
    let backup = next_backup(&volume, suffix);
    kill_both(guardian, &point);
    let _ = sluice().args(["umount", "--force"]).arg(&point).output();
    fs::remove_file(volume.path("meta.db")).expect("lost");
    let _ = fs::remove_dir_all(volume.path("cache"));

    let redis = sluice_testkit::server::redis().expect("redis-server is installed");
    volume.meta = redis.url(1);
    volume.redis = Some(redis);
    let backup = backup.display().to_string();
    let encrypted = format.contains(&"--encrypt-rsa-key");
    if encrypted {
        assert!(!fs::read(&backup).expect("read").starts_with(&[0x1F, 0x8B]), "it is encrypted");
        fails(&["load", &volume.meta, &backup]);
        ok(&["load", "--encrypt-rsa-key", KEY, &volume.meta, &backup]);
    } else {
        ok(&["load", &volume.meta, &backup]);
    }
    let point = volume.mount("again", &[]);
    assert_eq!(tree(&point.join("a")), before);
    // It is as good as any, and backed up again.
    fs::write(point.join("a/new"), "new").expect("written");
    next_backup(&volume, ".json.gz");
    volume.umount(&point);
    ok(&["fsck", &volume.meta]);
}

#[test]
fn a_volume_whose_database_is_lost_comes_back() {
    if !no_fuse() {
        the_volume_comes_back(&[], &[], ".json.gz");
    }
}

#[test]
fn an_encrypted_volume_whose_database_is_lost_comes_back() {
    if !no_fuse() {
        the_volume_comes_back(&["--encrypt-rsa-key", KEY], &[], ".json.gz");
    }
}

#[test]
fn a_binary_backup_brings_a_volume_back_too() {
    if !no_fuse() {
        the_volume_comes_back(&[], &["--backup-format", "binary"], ".bin.gz");
    }
}

#[test]
fn of_two_mounts_one_makes_a_backup_and_its_failure_disturbs_nobody() {
    if no_fuse() {
        return;
    }
    let mut volume = Volume::new(&[]);
    // Nobody waits an hour here; the first comes after six seconds.
    volume.environment.push((EVERY, "60s".into()));
    let points = ["one", "two"].map(|name| volume.mount(name, &["--enable-xattr"]));
    until("a backup", || !backups(&volume, ".json.gz").is_empty());
    let taken = |volume: &Volume| volume.log().matches("the metadata are backed up").count();
    until("its line in the log", || taken(&volume) > 0);
    // Whoever has not asked yet asks soon.
    for point in &points {
        fs::write(point.join("file"), "content").expect("written");
        assert!(fs::metadata(point).is_ok());
    }
    assert_eq!((backups(&volume, ".json.gz").len(), taken(&volume)), (1, 1));
    for point in &points {
        volume.umount(point);
    }

    // The store takes no backups any more: a file lies where they go.
    fs::remove_dir_all(volume.path("objects/testvol/meta")).expect("removed");
    fs::write(volume.path("objects/testvol/meta"), "").expect("written");
    volume.environment = vec![(EVERY, "1s".into())];
    let point = volume.mount("one", &["--io-retries", "1"]);
    until("its failure in the log", || volume.log().contains("the metadata were not backed up"));
    assert!(volume.log().contains("the backup was not stored"), "{}", volume.log());
    fs::write(point.join("other"), "content").expect("written");
    assert_eq!(fs::read(point.join("other")).expect("read"), b"content");
    volume.umount(&point);
}

#[test]
fn intervals_that_cannot_be_are_refused() {
    let said = fails(&["mount", "--backup-meta", "4m", "redis://h/1", "/nowhere"]);
    assert!(said.contains("5m or longer"), "{said}");
    let flags = ["mount", "--backup-format", "binary", "--backup-skip-trash", "redis://h/1", "/nowhere"];
    let said = fails(&flags);
    assert!(said.contains("always of the whole volume"), "{said}");
}
