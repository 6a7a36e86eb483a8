//! What gives storage back, and what takes files out of the trash: `gc` finds objects that no file
//! needs, and deletes them and nothing else; `compact`, `destroy`, `restore`.

mod support;

use std::{
    fs::{self, File},
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
    time::Duration,
};

use sluice_testkit::fuse::no_fuse;
use sluice_types::Rng;
use support::{Volume, ends_well, fails, ok, sluice};

/// Files below a directory.
fn files(dir: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(dir).into_iter().flatten().filter_map(Result::ok) {
        let path = entry.path();
        if path.is_dir() { found.extend(files(&path)) } else { found.push(path) }
    }
    found.sort();
    found
}

/// The blocks of the volume.
fn objects(volume: &Volume) -> Vec<PathBuf> {
    files(&volume.path("objects/testvol/chunks"))
}

/// Makes all blocks look two hours old.
fn age(volume: &Volume) {
    age_these(&objects(volume));
}

/// Makes blocks look two hours old, those that are still there.
fn age_these(paths: &[PathBuf]) {
    for file in paths.iter().filter_map(|path| File::options().write(true).open(path).ok()) {
        let modified = file.metadata().and_then(|file| file.modified()).expect("a time");
        file.set_modified(modified - Duration::from_hours(2)).expect("set");
    }
}

/// Puts an object where a block of that slice would be.
fn plant(volume: &Volume, id: u64, size: usize) -> PathBuf {
    let dir = volume.path(&format!("objects/testvol/chunks/{}/{}", id / 1_000_000, id / 1000));
    fs::create_dir_all(&dir).expect("made");
    let path = dir.join(format!("{id}_0_{size}"));
    fs::write(&path, vec![1; size]).expect("written");
    path
}

/// The count before a word of the last line.
fn count(said: &str, word: &str) -> u64 {
    let line = said.lines().find(|line| line.starts_with("scanned ")).expect("a summary");
    let part =
        line.split(", ").find(|part| part.contains(word)).unwrap_or_else(|| panic!("{word} in {line}"));
    part.split(' ').find_map(|word| word.parse().ok()).expect("a number")
}

/// Files with many records, shared and removed ones; what they hold.
fn workload(point: &Path, seed: u64) -> Vec<(PathBuf, Vec<u8>)> {
    let mut rng = Rng::seeded(seed);
    fs::create_dir(point.join("d")).expect("made");
    for number in 0..12 {
        let path = point.join(format!("d/{number}"));
        let file = File::create(&path).expect("made");
        for _ in 0..rng.below(8) {
            let mut piece = vec![0; 1 + rng.below(20_000) as usize];
            rng.fill(&mut piece);
            file.write_all_at(&piece, rng.below(100_000)).expect("written");
            file.sync_all().expect("stored");
        }
        match rng.below(4) {
            0 => fs::remove_file(&path).expect("removed"),
            1 => file.set_len(rng.below(50_000)).expect("cut"),
            _ => {}
        }
    }
    let (from, to) = (point.join("d"), point.join("copy"));
    ok(&["clone", &from.display().to_string(), &to.display().to_string()]);
    fs::remove_dir_all(from).expect("removed");
    files(&to).into_iter().map(|path| (path.clone(), fs::read(path).expect("read"))).collect()
}

#[test]
fn after_any_work_nothing_is_leaked_and_nothing_needed_is_deleted() {
    if no_fuse() {
        return;
    }
    let (kept, gone) = (["--trash-days", "1"], ["--trash-days", "0"]);
    let kept = Volume::each(&kept).map(|volume| (true, volume));
    let gone = Volume::each(&gone).map(|volume| (false, volume));
    for (seed, (trash, mut volume)) in (5..).zip(kept.chain(gone)) {
        let point = volume.mount("mnt", &[]);
        let held = workload(&point, seed);
        volume.umount(&point);
        age(&volume);
        let said = ok(&["gc", &volume.meta]);
        assert_eq!(count(&said, "leaked"), 0, "{said}");
        assert_eq!(count(&said, "scanned"), objects(&volume).len() as u64, "{said}");
        assert!(count(&said, "valid") > 0, "{said}");
        let before = objects(&volume).len();
        let said = ok(&["gc", "--compact", "--delete", &volume.meta]);
        assert_eq!(count(&said, "leaked"), 0, "{said}");
        if !trash {
            assert!(objects(&volume).len() < before, "compactions leave fewer objects: {said}");
        }
        let again = ok(&["gc", "--compact", "--delete", &volume.meta]);
        assert!(again.contains("compacted 0 chunks") && again.contains("compact chunks: 0 of 0"), "{again}");
        let compacted = said.lines().find_map(|line| line.strip_prefix("compact chunks: ")).expect("a line");
        let (done, of) = compacted.split_once(" of ").expect("a total");
        assert!(done == of && done != "0", "{said}");
        ok(&["fsck", &volume.meta]);
        fs::remove_dir_all(volume.path("cache")).expect("removed");
        let point = volume.mount("mnt", &[]);
        for (path, bytes) in held {
            assert!(fs::read(&path).expect("read") == bytes, "{} changed: {said}", path.display());
        }
        volume.umount(&point);
    }
}

#[test]
fn leaked_objects_go_once_they_are_old() {
    if no_fuse() {
        return;
    }
    for mut volume in Volume::each(&["--trash-days", "0"]) {
        let point = volume.mount("mnt", &[]);
        for number in 0..20 {
            fs::write(point.join(number.to_string()), number.to_string()).expect("written");
        }
        volume.umount(&point);
        age(&volume);
        let kept = objects(&volume);
        // A slice that was never made, and a block of one that has another size.
        let size = fs::metadata(&kept[0]).expect("there").len() as usize;
        let name = kept[0].file_name().expect("a name").to_string_lossy().into_owned();
        let id: u64 = name.split('_').next().expect("an id").parse().expect("a number");
        plant(&volume, 77_777, 5);
        plant(&volume, id, size + 1);
        fs::write(volume.path("objects/testvol/chunks/notes"), "of somebody").expect("written");
        let young = ok(&["gc", "--delete", &volume.meta]);
        assert_eq!((count(&young, "leaked"), count(&young, "skipped")), (0, 2), "{young}");
        assert_eq!(objects(&volume).len(), kept.len() + 3);
        age(&volume);
        let said = ok(&["gc", &volume.meta]);
        assert_eq!((count(&said, "leaked"), count(&said, "valid")), (2, kept.len() as u64), "{said}");
        assert!(said.contains("gc --delete"), "{said}");
        assert_eq!(objects(&volume).len(), kept.len() + 3, "only told");
        let sorted_on_disk = sluice()
            .args(["gc", "--delete", "-p", "2", &volume.meta])
            .env("SLUICE_SORT_BYTES", "100")
            .output()
            .expect("the program starts");
        let said = String::from_utf8_lossy(&sorted_on_disk.stdout).into_owned();
        assert_eq!((count(&said, "leaked"), count(&said, "valid")), (2, kept.len() as u64), "{said}");
        // How far it is, of what is known then: the records from their second survey on.
        let shown = String::from_utf8_lossy(&sorted_on_disk.stderr).into_owned();
        let all = kept.len() + 2;
        for line in [
            format!("compare objects: {all} of {all}\n"),
            "compare objects: 2 of 2\n".into(),
            "delete leaked objects: 2 of 2\n".into(),
        ] {
            assert!(shown.contains(&line), "no `{line}`: {shown}");
        }
        let surveys: Vec<_> = shown.lines().filter_map(|line| line.strip_prefix("list slices: ")).collect();
        assert_eq!(surveys[1], format!("{0} of {0}", surveys[0]), "{shown}");
        let left: Vec<_> = objects(&volume).into_iter().filter(|path| !path.ends_with("notes")).collect();
        assert_eq!(left, kept);
        assert_eq!(count(&ok(&["gc", &volume.meta]), "leaked"), 0);
    }
}

#[test]
fn what_an_unmounted_volume_still_owes_is_done() {
    if no_fuse() {
        return;
    }
    let mut volume = Volume::new(&["--trash-days", "1"]);
    let point = volume.mount("mnt", &[]);
    fs::write(point.join("gone"), "in the trash").expect("written");
    fs::remove_file(point.join("gone")).expect("removed");
    volume.umount(&point);
    age(&volume);
    let said = ok(&["gc", "--delete", &volume.meta]);
    assert_eq!((count(&said, "valid"), objects(&volume).len()), (1, 1), "the trash keeps it: {said}");
    // As if it had been deleted long ago.
    volume.forge(
        "UPDATE jfs_edge SET name = CAST('2001-01-01-00' AS BLOB) WHERE CAST(name AS TEXT) LIKE '20__-__-__-__'",
        &[],
    );
    let said = ok(&["gc", "--delete", &volume.meta]);
    assert_eq!((count(&said, "delfiles"), objects(&volume).len()), (1, 0), "{said}");
    assert!(said.contains("empty trash: 2 of 2"), "the file and its hour: {said}");
    assert!(said.contains("delete files: 12 B of about 12 B"), "{said}");
    ok(&["fsck", &volume.meta]);
}

#[test]
fn clones_that_nobody_finishes_go() {
    if no_fuse() {
        return;
    }
    let mut volume = Volume::new(&["--trash-days", "0"]);
    let point = volume.mount("mnt", &[]);
    fs::create_dir_all(point.join("t/below")).expect("made");
    fs::write(point.join("t/below/file"), "content").expect("written");
    volume.umount(&point);
    // As a clone leaves it whose client died long ago.
    for statement in [
        "INSERT INTO jfs_detached_node SELECT inode, 1 FROM jfs_edge WHERE name = CAST('t' AS BLOB)",
        "DELETE FROM jfs_edge WHERE name = CAST('t' AS BLOB)",
        "UPDATE jfs_node SET nlink = nlink - 1 WHERE inode = 1",
    ] {
        volume.forge(statement, &[]);
    }
    ok(&["gc", &volume.meta]);
    assert_eq!(objects(&volume).len(), 1, "only looked at");
    let said = ok(&["gc", "--delete", &volume.meta]);
    assert!(said.contains("removed 1 abandoned clones"), "{said}");
    assert_eq!(objects(&volume).len(), 0, "{said}");
    let said = ok(&["fsck", &volume.meta]);
    assert!(said.contains("0 errors in the metadata"), "{said}");
}

#[test]
fn gc_deletes_what_dead_writers_left_unfinished() {
    let volume = Volume::new(&[]);
    let [old, young] = [5, 6].map(|id| {
        let (planted, size) = (plant(&volume, id, 7), 7);
        let unfinished = planted.with_file_name(format!(".jfs.{id}_0_{size}.tmp.123{id}"));
        fs::rename(planted, &unfinished).expect("renamed");
        unfinished
    });
    age_these(std::slice::from_ref(&old));
    let said = ok(&["gc", &volume.meta]);
    assert_eq!(["scanned", "leaked", "skipped"].map(|word| count(&said, word)), [2, 1, 1], "{said}");
    assert_eq!(objects(&volume), [old, young.clone()], "only looked at");
    let said = ok(&["gc", "--delete", &volume.meta]);
    assert_eq!(objects(&volume), [young], "{said}");
    assert!(ok(&["fsck", &volume.meta]).contains("0 blocks missing or damaged"));
}

#[test]
fn gc_runs_while_files_are_written() {
    if no_fuse() {
        return;
    }
    let mut volume = Volume::new(&["--trash-days", "0"]);
    let point = volume.mount("mnt", &["--writeback"]);
    let (mut held, mut before) = (Vec::new(), Vec::new());
    for round in 0..4 {
        let collector = sluice()
            .args(["gc", "--delete", "--compact", &volume.meta])
            .env("JFS_GC_SKIPPEDTIME", "3600")
            .stdout(std::process::Stdio::null())
            .stderr(std::process::Stdio::null())
            .spawn()
            .expect("the program starts");
        let dir = point.join(round.to_string());
        fs::create_dir(&dir).expect("made");
        held.extend(workload(&dir, round));
        // What a compaction has just uploaded must not look old before it has its record.
        age_these(&before);
        before = objects(&volume);
        ends_well(collector);
    }
    for (path, bytes) in &held {
        assert!(fs::read(path).expect("read") == *bytes, "{}", path.display());
    }
    volume.umount(&point);
    ok(&["fsck", &volume.meta]);
    age(&volume);
    // A file that the collector removed may have had blocks that the mount uploaded after that.
    ok(&["gc", "--delete", &volume.meta]);
    assert_eq!(count(&ok(&["gc", &volume.meta]), "leaked"), 0);
    ok(&["fsck", &volume.meta]);
}

#[test]
fn bad_input_and_a_store_that_is_away_are_told() {
    let volume = Volume::new(&[]);
    assert!(fails(&["gc", "--threads", "0", &volume.meta]).contains("--threads"));
    let output =
        sluice().args(["gc", &volume.meta]).env("JFS_GC_SKIPPEDTIME", "soon").output().expect("runs");
    assert!(!output.status.success());
    assert!(
        String::from_utf8_lossy(&output.stderr).contains("JFS_GC_SKIPPEDTIME=soon is no number of seconds")
    );
    // Although so little fits into memory.
    let said = fails(&["gc", "--external-sort-dir", "/nowhere", &volume.meta]);
    assert!(said.contains("cannot sort in /nowhere") && said.contains("--external-sort-dir"), "{said}");
    // What stands for the volume's marker cannot be looked at: too many links lead to it.
    let marker = volume.path("objects/testvol/juicefs_uuid");
    fs::remove_file(&marker).expect("removed");
    let said = fails(&["gc", &volume.meta]);
    assert!(said.contains("there is no object of the volume, not even juicefs_uuid"), "{said}");
    std::os::unix::fs::symlink("juicefs_uuid", &marker).expect("linked");
    let said = fails(&["gc", "--io-retries", "1", &volume.meta]);
    assert!(said.contains("whether juicefs_uuid is there is not known"), "{said}");
    fs::remove_file(&marker).expect("removed");
    plant(&volume, 5, 5);
    let away = "http://127.0.0.1:1/bucket";
    let said =
        fails(&["gc", "--delete", "--storage", "s3", "--bucket", away, "--io-retries", "1", &volume.meta]);
    assert!(said.contains("cannot be listed, and nothing was deleted"), "{said}");
    ok(&["gc", &volume.meta]);
}

#[test]
fn a_mount_compacts_what_it_is_asked_to() {
    if no_fuse() {
        return;
    }
    let mut volume = Volume::new(&["--trash-days", "0"]);
    let point = volume.mount("mnt", &[]);
    fs::create_dir(point.join("d")).expect("made");
    for name in ["d/one", "d/two", "three"] {
        let file = File::create(point.join(name)).expect("made");
        for at in 0..9 {
            file.write_all_at(&[at; 10], u64::from(at) * 7).expect("written");
            file.sync_all().expect("stored");
        }
    }
    let text = |name: &str| point.join(name).display().to_string();
    let said = ok(&["compact", "-p", "2", &text("d"), &text("three")]);
    assert!(said.contains("looked at 3 chunks"), "{said}");
    assert!(fails(&["compact", "/proc"]).contains("is in no mounted volume"));
    assert!(fails(&["compact", &text("nothing")]).contains("cannot compact"));
    volume.umount(&point);
    let said = ok(&["gc", "--compact", &volume.meta]);
    assert!(said.contains("compacted 0 chunks"), "{said}");
    fs::remove_dir_all(volume.path("cache")).expect("removed");
    let point = volume.mount("mnt", &[]);
    let expected: Vec<u8> = (0..66).map(|at| (at / 7).min(8) as u8).collect();
    assert_eq!(fs::read(point.join("d/two")).expect("read"), expected);
    volume.umount(&point);
}

#[test]
fn a_destroyed_volume_leaves_nothing_and_takes_nothing_else_along() {
    if no_fuse() {
        return;
    }
    for mut volume in Volume::each(&[]) {
        let uuid = volume.status()["Setting"]["UUID"].as_str().expect("a UUID").to_owned();
        let neighbour = volume.path("objects/neighbour/chunks/0/0/1_0_1");
        fs::create_dir_all(neighbour.parent().expect("a folder")).expect("made");
        fs::write(&neighbour, "x").expect("written");
        let point = volume.mount("mnt", &[]);
        fs::write(point.join("file"), "content").expect("written");
        assert!(fails(&["destroy", "-y", &volume.meta, &uuid]).contains("the volume is in use"));
        volume.umount(&point);
        assert!(fails(&["destroy", "-y", &volume.meta, "another"]).contains("nothing was deleted"));
        assert!(fails(&["destroy", &volume.meta, &uuid]).contains("--yes"));
        assert_eq!(objects(&volume).len(), 1);
        // As if its disk were not mounted.
        let (there, away) = (volume.path("objects/testvol"), volume.path("away"));
        fs::rename(&there, &away).expect("moved");
        for command in [&["destroy", "-y", &volume.meta, &uuid][..], &["gc", "--delete", &volume.meta]] {
            let said = fails(command);
            assert!(said.contains("mounted"), "{said}");
        }
        fs::rename(&away, &there).expect("moved back");
        let said = ok(&["destroy", "-y", &volume.meta, &uuid]);
        assert!(said.contains("the volume testvol is destroyed"), "{said}");
        assert!(
            said.contains("delete objects: 43 B of about 4.00 KiB"),
            "with what says whose it is: {said}"
        );
        assert_eq!(files(&volume.path("objects/testvol")), Vec::<PathBuf>::new());
        assert!(neighbour.exists());
        assert!(fails(&["status", &volume.meta]).contains("there is no volume"));
        if let Some(redis) = &volume.redis {
            assert_eq!(redis.command_in(1, &["DBSIZE"]).expect("answers"), b":0\r\n");
        }
        let bucket = volume.path("objects").display().to_string();
        ok(&["format", "--bucket", &bucket, &volume.meta, "testvol"]);
        ok(&["fsck", &volume.meta]);
    }
}

/// Hours in the trash of a mount.
fn hours(point: &Path) -> Vec<String> {
    let hours = fs::read_dir(point.join(".trash")).expect("listed").filter_map(Result::ok);
    hours.map(|hour| hour.file_name().to_string_lossy().into_owned()).collect()
}

#[test]
fn a_name_that_was_cut_is_told_whatever_else_is() {
    if no_fuse() || !rustix::process::geteuid().is_root() {
        return;
    }
    let mut volume = Volume::new(&["--trash-days", "1"]);
    let point = volume.mount("mnt", &[]);
    let names: Vec<String> = (0..30).map(|number| format!("file{number}")).collect();
    let long = "n".repeat(252);
    for name in names.iter().chain([&long]) {
        fs::write(point.join(name), "old").expect("written");
    }
    for name in names.iter().chain([&long]) {
        fs::remove_file(point.join(name)).expect("removed");
    }
    for name in &names {
        fs::write(point.join(name), "new").expect("written");
    }
    let all = hours(&point);
    let arguments: Vec<&str> =
        ["restore", &volume.meta, "--put-back"].into_iter().chain(all.iter().map(String::as_str)).collect();
    let said = fails(&arguments);
    assert!(said.contains("the end of its name may be lost"), "{said}");
    assert!(said.contains("(1 with names that may be cut)"), "{said}");
    assert!((20..30).contains(&said.matches("something of that name exists").count()), "{said}");
    volume.umount(&point);
}

#[test]
fn trees_come_back_from_the_trash() {
    if no_fuse() || !rustix::process::geteuid().is_root() {
        return;
    }
    for mut volume in Volume::each(&["--trash-days", "1"]) {
        // What comes back is charged to a quota that does not count it in the trash.
        ok(&["quota", "set", &volume.meta, "--path", "/", "--capacity", "1", "--inodes", "100"]);
        let point = volume.mount("mnt", &[]);
        fs::create_dir_all(point.join("d/e-f/g")).expect("made");
        let long = "n".repeat(252);
        for name in ["d/one", "d/e-f/two", "d/e-f/g/three", "top", &long] {
            fs::write(point.join(name), name).expect("written");
        }
        fs::remove_dir_all(point.join("d")).expect("removed");
        fs::remove_file(point.join("top")).expect("removed");
        fs::remove_file(point.join(&long)).expect("removed");
        fs::write(point.join("top"), "another").expect("written");
        let restore = |put_back: &[&str], hours: &[String]| {
            let hours = hours.iter().map(String::as_str);
            let arguments: Vec<&str> =
                ["restore", &volume.meta].into_iter().chain(hours).chain(put_back.iter().copied()).collect();
            support::run(&arguments)
        };
        let all = hours(&point);
        let (done, said) = restore(&[], &all);
        assert!(done, "{said}");
        if let [hour] = &all[..] {
            assert!(said.contains("rebuilt 5 entries, 3 need --put-back"), "{said}");
            let left = point.join(".trash").join(hour);
            support::until("the mount to see it", || fs::read_dir(&left).expect("listed").count() == 3);
        }
        let (done, said) = restore(&["--put-back", "--threads", "1"], &all);
        assert!(!done, "{said}");
        assert!(said.contains("something of that name exists") && said.contains("1 conflicts"), "{said}");
        assert!(said.contains("the end of its name may be lost"), "{said}");
        for name in ["d/one", "d/e-f/two", "d/e-f/g/three"] {
            assert_eq!(fs::read_to_string(point.join(name)).expect("back"), name, "{said}");
        }
        assert_eq!(fs::read_to_string(point.join("top")).expect("there"), "another");
        let cut = fs::read_dir(&point).expect("listed").filter_map(Result::ok);
        let cut: Vec<_> = cut.map(|entry| entry.file_name()).filter(|name| name.len() > 200).collect();
        assert_eq!(cut.len(), 1);
        assert_eq!(fs::read_to_string(point.join(&cut[0])).expect("back"), long);
        fs::remove_file(point.join("top")).expect("removed");
        let (_, said) = restore(&["2001-01-01-00"], &[]);
        assert!(said.contains("there is no hour 2001-01-01-00 in the trash"), "{said}");
        volume.umount(&point);
        ok(&["fsck", &volume.meta]);
        ok(&["quota", "check", &volume.meta, "--path", "/"]);
    }
}
