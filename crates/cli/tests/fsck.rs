//! `fsck` finds what is wrong, says where, and puts right what can be.

mod support;

use std::{fs, os::unix::fs::MetadataExt, path::Path};

use sluice_testkit::fuse::no_fuse;
use support::{Volume, fails, ok, sluice};

fn forge(volume: &Volume, statement: &str) {
    let connection = rusqlite::Connection::open(volume.path("meta.db")).expect("opens");
    assert!(connection.execute(statement, []).expect("runs") > 0, "{statement} changed nothing");
}

/// Every regular file below a directory.
fn files(dir: &Path) -> Vec<std::path::PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(dir).expect("listed").filter_map(Result::ok) {
        let path = entry.path();
        if path.is_dir() { found.extend(files(&path)) } else { found.push(path) }
    }
    found.sort();
    found
}

/// A volume with a few files, unmounted.
fn sample() -> Volume {
    let mut volume = Volume::new(&["--trash-days", "0"]);
    let point = volume.mount("mnt", &[]);
    fs::create_dir_all(point.join("d/e")).expect("made");
    for name in ["d/one", "d/e/two", "three"] {
        fs::write(point.join(name), name.repeat(1000)).expect("written");
    }
    fs::hard_link(point.join("three"), point.join("d/three")).expect("linked");
    std::os::unix::fs::symlink("three", point.join("link")).expect("linked");
    volume.umount(&point);
    ok(&["fsck", &volume.meta]);
    volume
}

#[test]
fn missing_and_damaged_objects_are_told_with_their_files() {
    if no_fuse() {
        return;
    }
    let volume = sample();
    let objects: Vec<_> = files(&volume.path("objects"))
        .into_iter()
        .filter(|path| path.display().to_string().contains("chunks"))
        .collect();
    assert_eq!(objects.len(), 3);
    let two = objects.iter().find(|path| path.display().to_string().ends_with("_0_7000")).expect("d/e/two");
    fs::remove_file(two).expect("removed");
    let one =
        objects.iter().find(|path| path.display().to_string().ends_with("_0_5000")).expect("d/one or three");
    fs::write(one, "short").expect("written");
    let said = fails(&["fsck", &volume.meta]);
    assert!(said.contains("is missing") && said.contains("/d/e/two"), "{said}");
    assert!(said.contains("has 5 bytes"), "{said}");
    assert!(said.contains("2 blocks missing or damaged"), "{said}");

    // A disk that is not mounted.
    let (store, away) = (volume.path("objects"), volume.path("away"));
    fs::rename(&store, &away).expect("moved");
    let said = fails(&["fsck", &volume.meta]);
    assert!(said.contains("not even juicefs_uuid; is its disk mounted?"), "{said}");
    assert!(!said.contains("is missing") && !said.contains("--writeback"), "{said}");
    fs::rename(&away, &store).expect("moved");
    for object in &objects {
        let _ = fs::remove_file(object);
    }
    assert!(fails(&["fsck", &volume.meta]).contains("3 blocks missing or damaged"));
}

#[test]
fn a_name_forges_no_line() {
    if no_fuse() {
        return;
    }
    let mut volume = Volume::new(&["--trash-days", "0"]);
    let point = volume.mount("mnt", &[]);
    let names = ["a\nerror: b\u{1b}[2J", "c\nd"];
    for name in names {
        fs::write(point.join(name), "content").expect("written");
    }
    let summary = ok(&["summary", &point.display().to_string()]);
    assert!(summary.contains("a\\nerror: b\\u{1b}[2J") && !summary.contains('\u{1b}'), "{summary}");
    let info = ok(&["info", &point.join(names[0]).display().to_string()]);
    assert!(info.contains("path: /a\\nerror: b\\u{1b}[2J\n"), "{info}");
    assert!(!info.contains('\u{1b}') && info.contains("/a\\nerror: b\\u{1b}[2J :"), "{info}");
    volume.umount(&point);
    let mut objects = files(&volume.path("objects"));
    objects.retain(|path| path.display().to_string().ends_with("_0_7"));
    assert_eq!(objects.len(), 2);
    for object in objects {
        fs::remove_file(object).expect("removed");
    }
    forge(&volume, "DELETE FROM jfs_node WHERE inode = 3");
    let said = fails(&["fsck", &volume.meta]);
    assert!(said.contains("entry \"c\\nd\"") && said.contains("(/a\\nerror: b\\u{1b}[2J)"), "{said}");
    assert!(!said.contains('\u{1b}') && !said.contains("\nerror: b"), "{said}");
}

#[test]
fn metadata_that_disagrees_is_found_and_put_right() {
    if no_fuse() {
        return;
    }
    for (statement, word) in [
        ("UPDATE jfs_node SET nlink = 9 WHERE inode = 2", "9 links"),
        ("UPDATE jfs_node SET nlink = 1 WHERE length = 5000 AND nlink = 2", "1 links"),
        ("UPDATE jfs_node SET parent = 77 WHERE inode = 2", "directory 77"),
        ("DELETE FROM jfs_edge WHERE name = CAST('one' AS BLOB)", "has no name"),
        ("DELETE FROM jfs_edge WHERE name = CAST('e' AS BLOB)", "has no name"),
        ("DELETE FROM jfs_node WHERE inode = 3", "does not exist"),
        ("UPDATE jfs_edge SET type = 3 WHERE name = CAST('one' AS BLOB)", "another kind"),
        ("DELETE FROM jfs_chunk_ref", "no record of its uses"),
        ("UPDATE jfs_counter SET value = 2 WHERE name = 'nextInode'", "nextInode"),
        ("UPDATE jfs_counter SET value = 1 WHERE name = 'nextChunk'", "nextChunk"),
        ("DELETE FROM jfs_node WHERE length = 7000", "does not exist"),
    ] {
        let volume = sample();
        forge(&volume, statement);
        let said = fails(&["fsck", &volume.meta]);
        assert!(said.contains(word), "after {statement}, `{word}` is not in: {said}");
        let said = ok(&["fsck", "--repair", &volume.meta]);
        assert!(said.contains("repaired"), "{statement}: {said}");
        let said = ok(&["fsck", &volume.meta]);
        assert!(said.contains("0 errors in the metadata, 0 blocks"), "{statement}: {said}");
        assert!(said.contains(" 0 advisory"), "{statement}: {said}");
    }
}

#[test]
fn what_leaked_is_told_and_removed() {
    if no_fuse() {
        return;
    }
    for (statement, leak) in [
        ("UPDATE jfs_chunk_ref SET refs = 5", "leaked: slice"),
        (
            "UPDATE jfs_chunk SET inode = 99 WHERE inode = (SELECT inode FROM jfs_node WHERE length = 7000)",
            "leaked: chunk 0 belongs to inode 99",
        ),
    ] {
        let volume = sample();
        forge(&volume, statement);
        let said = ok(&["fsck", &volume.meta]);
        assert!(said.contains(leak) && !said.contains(" 0 chunks or slices leaked"), "{statement}: {said}");
        assert!(ok(&["fsck", "--repair", &volume.meta]).contains("repaired: "), "{statement}");
        let said = ok(&["fsck", &volume.meta]);
        assert!(said.contains(" 0 chunks or slices leaked"), "{statement}: {said}");
    }
}

#[test]
fn numbers_that_drift_are_advisory() {
    if no_fuse() {
        return;
    }
    let volume = sample();
    forge(&volume, "UPDATE jfs_counter SET value = value + 4096 WHERE name = 'usedSpace'");
    forge(&volume, "UPDATE jfs_dir_stats SET used_inodes = used_inodes + 3 WHERE inode = 2");
    let said = ok(&["fsck", &volume.meta]);
    assert!(said.contains("advisory: usedSpace") && said.contains("advisory: directory 2"), "{said}");
    let said = ok(&["fsck", "--path", "/d", "--sync-dir-stat", &volume.meta]);
    assert!(said.contains("repaired: directory 2"), "{said}");
    let said = ok(&["fsck", &volume.meta]);
    assert!(said.contains(" 1 advisory"), "{said}");
    ok(&["fsck", "--repair", &volume.meta]);
    assert!(ok(&["fsck", &volume.meta]).contains(" 0 advisory"));
}

#[test]
fn a_part_of_the_tree() {
    if no_fuse() {
        return;
    }
    let volume = sample();
    forge(&volume, "UPDATE jfs_node SET nlink = 9 WHERE inode = 3");
    ok(&["fsck", "--path", "/d", &volume.meta]);
    let said = fails(&["fsck", "--path", "/d", "-r", &volume.meta]);
    assert!(said.contains("9 links"), "{said}");
    ok(&["fsck", "--path", "/d", "-r", "--repair", &volume.meta]);
    ok(&["fsck", &volume.meta]);
}

/// What `fsck` says and whether all is well, if a sort keeps so many bytes in memory.
fn sorting(volume: &Volume, bytes: &str, flags: &[&str]) -> (bool, String) {
    let output = sluice()
        .args([&["fsck", &volume.meta], flags].concat())
        .env("SLUICE_SORT_BYTES", bytes)
        .output()
        .expect("the program starts");
    (output.status.success(), String::from_utf8_lossy(&output.stdout).into_owned())
}

#[test]
fn what_is_sorted_on_disk_is_found_as_in_memory() {
    if no_fuse() {
        return;
    }
    for mut volume in Volume::each(&["--trash-days", "0", "--block-size", "64K"]) {
        let point = volume.mount("mnt", &[]);
        fs::create_dir_all(point.join("d/e")).expect("made");
        for number in 0..40 {
            // Of one block to four.
            let dir = if number % 2 == 0 { "d" } else { "d/e" };
            let content = number.to_string().repeat(1 + number * 2500);
            fs::write(point.join(dir).join(number.to_string()), content).expect("written");
            std::os::unix::fs::symlink("target", point.join(format!("d/link{number}"))).expect("linked");
        }
        fs::hard_link(point.join("d/38"), point.join("twice")).expect("linked");
        let [d, copy] = ["d", "copy"].map(|name| point.join(name).display().to_string());
        ok(&["clone", &d, &copy]);
        let inode = fs::metadata(point.join("d")).expect("seen").ino();
        volume.umount(&point);
        ok(&["fsck", &volume.meta]);

        let chunks: Vec<_> = files(&volume.path("objects/testvol/chunks"));
        assert!(chunks.len() > 60, "{} objects", chunks.len());
        for object in chunks.iter().step_by(5) {
            fs::remove_file(object).expect("removed");
        }
        for object in chunks.iter().skip(1).step_by(5) {
            fs::write(object, "short").expect("written");
        }
        for number in 2..8 {
            let name = (number * 2).to_string();
            volume.forge(
                &format!("DELETE FROM jfs_edge WHERE parent = {inode} AND name = CAST('{name}' AS BLOB)"),
                &["HDEL", &format!("d{inode}"), &name],
            );
        }
        let delayed = ["--writeback", "--upload-delay", "10h", "--free-space-ratio", "0.001"];
        let point = volume.mount("mnt", &delayed);
        fs::write(point.join("staged"), "staged").expect("written");
        fs::File::open(point.join("staged")).expect("opened").sync_all().expect("synced");
        volume.forge("UPDATE jfs_counter SET value = 1 WHERE name = 'nextChunk'", &["SET", "nextchunk", "0"]);

        let in_memory = sorting(&volume, "100000000", &[]);
        for bytes in ["0", "200", "5000"] {
            assert_eq!(sorting(&volume, bytes, &[]), in_memory, "sorted with {bytes} bytes");
        }
        let (clean, said) = &in_memory;
        assert!(!clean, "{said}");
        let lines =
            |words: &[&str]| said.lines().filter(|line| words.iter().all(|word| line.contains(word))).count();
        assert_eq!(lines(&["is missing", "needed by"]), chunks.len().div_ceil(5) + 1, "{said}");
        assert_eq!(lines(&["has 5 bytes"]), (chunks.len() - 1).div_ceil(5), "{said}");
        assert_eq!(lines(&["is missing", "(/staged)"]), 1, "{said}");
        assert!(lines(&["(/d/e/", ", inode ", "(/copy/e/"]) > 5, "clones share blocks: {said}");
        assert_eq!(lines(&["has no name"]), 6, "{said}");
        assert_eq!(lines(&["nextChunk is"]), 1, "{said}");
        volume.umount(&point);

        let (_, repaired) = sorting(&volume, "200", &["--repair"]);
        assert_eq!(repaired.matches("has no name").count(), 6, "{repaired}");
        let in_memory = sorting(&volume, "100000000", &[]);
        assert_eq!(sorting(&volume, "200", &[]), in_memory);
        assert!(in_memory.1.contains(": 0 errors in the metadata"), "{}", in_memory.1);
        let part = |bytes| sorting(&volume, bytes, &["--path", "/d", "-r"]);
        assert_eq!(part("0"), part("100000000"));
        assert!(part("0").0);
    }
}

#[test]
fn a_folder_that_cannot_be_sorted_in_is_named() {
    if no_fuse() {
        return;
    }
    let volume = sample();
    let output = sluice()
        .args(["fsck", "--external-sort-dir", "/nowhere", &volume.meta])
        .env("SLUICE_SORT_BYTES", "0")
        .output()
        .expect("the program starts");
    assert!(!output.status.success());
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("cannot sort in /nowhere") && said.contains("--external-sort-dir"), "{said}");
}
