//! `sluice quota`: what it prints, what it refuses, and that a mount holds to it.

mod support;

use std::{
    ffi::OsStr,
    fs,
    io::Write,
    os::unix::{ffi::OsStrExt, fs::chown},
};

use sluice_testkit::fuse::no_fuse;
use support::{Volume, fails, ok, sluice};

const EDQUOT: Option<i32> = Some(122);

/// The cells of the line about `name`.
fn line(table: &str, name: &str) -> Vec<String> {
    let cells = |line: &str| line.split('|').map(|cell| cell.trim().to_owned()).collect::<Vec<_>>();
    let found = table.lines().map(cells).find(|cells| cells.get(1).is_some_and(|cell| cell == name));
    found.unwrap_or_else(|| panic!("no line about {name}:\n{table}"))[1..8].to_vec()
}

#[test]
fn what_a_mount_may_use_is_set_shown_and_taken_away() {
    if no_fuse() {
        return;
    }
    for mut volume in Volume::each(&["--trash-days", "0"]) {
        let meta = volume.meta.clone();
        let point = volume.mount("mnt", &["--heartbeat", "1s"]);
        fs::create_dir_all(point.join("d/e")).expect("mkdir");
        fs::write(point.join("d/e/f"), vec![1; 5000]).expect("write");
        let limits = ["--capacity", "1M", "--inodes", "4"];
        let set = ok(&[&["quota", "set", &meta, "--path", "/d"], &limits[..]].concat());
        let shown = ["/d", "1.00 MiB", "12.00 KiB", "1%", "4", "2", "50%"];
        assert_eq!(line(&set, "/d"), shown);
        fs::write(point.join("d/g"), b"x").expect("within the limits");
        let mut file = fs::File::create(point.join("d/h")).expect("the third");
        let stored = file.write_all(&vec![1; 2_000_000]).and_then(|()| file.sync_all());
        let error = stored.expect_err("too much");
        drop(file);
        assert_eq!(error.raw_os_error(), EDQUOT);
        fs::remove_file(point.join("d/h")).expect("removing is always allowed");
        fs::create_dir(point.join("d/i")).expect("the fourth");
        assert_eq!(fs::create_dir(point.join("d/j")).expect_err("one too many").raw_os_error(), EDQUOT);
        ok(&["quota", "set", &meta, "--path", "d", "--inodes", "100"]);
        let listed = ok(&["quota", "ls", &meta]);
        assert_eq!(line(&listed, "/d")[4..], ["100", "4", "4%"]);
        // A tree that moves out takes with it what lies below it.
        fs::rename(point.join("d/e"), point.join("e")).expect("rename");
        let got = ok(&["quota", "get", &meta, "--path", "/d"]);
        assert_eq!(line(&got, "/d"), ["/d", "1.00 MiB", "8.00 KiB", "0%", "100", "2", "2%"]);
        ok(&["quota", "check", &meta]);
        ok(&["quota", "check", &meta, "--path", "/d", "--strict"]);
        if rustix::process::geteuid().is_root() {
            ok(&["quota", "set", &meta, "--uid", "1000", "--inodes", "10"]);
            fs::write(point.join("owned"), b"x").expect("write");
            chown(point.join("owned"), Some(1000), Some(100)).expect("chown");
            let got = ok(&["quota", "get", &meta, "--uid", "1000"]);
            assert_eq!(line(&got, "uid:1000"), ["uid:1000", "unlimited", "4.00 KiB", "", "10", "1", "10%"]);
            let checked = ok(&["quota", "check", &meta]);
            assert_eq!(line(&checked, "gid:100")[5], "1");
            ok(&["quota", "del", &meta, "--uid", "1000"]);
        }
        ok(&["quota", "delete", &meta, "--path", "/d"]);
        assert!(ok(&["quota", "list", &meta]).contains("there are no quotas"));
        volume.umount(&point);
        ok(&["fsck", &volume.meta]);
    }
}

#[test]
fn what_drifted_is_found_and_repaired() {
    for volume in Volume::each(&[]) {
        let meta = volume.meta.as_str();
        ok(&["quota", "set", meta, "--path", "/a/b", "--create", "--inodes", "10"]);
        volume.forge("UPDATE jfs_dir_quota SET used_inodes = 7", &["HSET", "dirQuotaUsedInodes", "3", "7"]);
        let said = fails(&["quota", "check", meta, "--path", "/a/b"]);
        assert!(said.contains("--repair"), "{said}");
        fails(&["quota", "check", meta]);
        ok(&["quota", "check", meta, "--path", "/a/b", "--repair"]);
        let checked = ok(&["quota", "check", meta, "--path", "/a/b"]);
        assert_eq!(line(&checked, "/a/b")[5], "0");
        // Rounded, both are the same.
        let used = (5 << 30) + 1;
        volume.forge(
            &format!("UPDATE jfs_dir_quota SET used_space = {used}"),
            &["HSET", "dirQuotaUsedSpace", "3", &used.to_string()],
        );
        let said = fails(&["quota", "check", meta, "--path", "/a/b"]);
        assert!(said.contains(&format!("({used} bytes)")) && said.contains("(0 bytes)"), "{said}");
    }
}

#[test]
fn what_makes_no_sense_is_refused_with_the_reason() {
    let volume = Volume::new(&[]);
    let meta = volume.meta.as_str();
    let set = |arguments: &[&str]| fails(&[&["quota", "set", meta], arguments].concat());
    for (arguments, reason) in [
        (&["--inodes", "1"][..], "say whose quota"),
        (&["--path", "/", "--uid", "3", "--inodes", "1"], "cannot be used with"),
        (&["--path", "/nowhere", "--inodes", "1"], "there is no /nowhere in the volume"),
        (&["--path", "/"], "nothing to set"),
        (&["--path", "/", "--inodes", "-1"], "no number of inodes"),
        (&["--path", "/", "--capacity", "-1"], "no size"),
        (&["--path", "/", "--capacity", "99999999999"], "too large"),
        (&["--path", "/", "--inodes", "99999999999999999999"], "too large"),
        (&["--uid", "-1", "--inodes", "1"], "no id"),
        (&["--uid", "0", "--inodes", "1"], "superuser"),
        (&["--gid", "4294967296", "--inodes", "1"], "no id"),
    ] {
        let said = set(arguments);
        assert!(said.contains(reason), "{arguments:?}: {said}");
    }
    assert!(fails(&["quota", "check", meta, "--path", "/"]).contains("there is no quota on /"));
    for action in ["get", "check", "delete", "list"] {
        let said = fails(&["quota", action, meta, "--path", ""]);
        assert!(said.contains("--path") && said.contains("say / for the whole volume"), "{said}");
    }
    assert!(set(&["--path", "", "--inodes", "1"]).contains("say / for the whole volume"));
    assert!(ok(&["quota", "list", meta]).contains("there are no quotas"));
}

#[test]
fn who_has_no_quota_is_named() {
    let volume = Volume::new(&[]);
    let meta = volume.meta.as_str();
    let of = |name: &'static str| match name.split_once(' ') {
        Some(("user", uid)) => ["--uid", uid],
        Some((_, gid)) => ["--gid", gid],
        None => ["--path", name],
    };
    // Before users and groups are counted, and then.
    for _ in 0..2 {
        for name in ["/", "user 5", "group 6"] {
            let missing = format!("there is no quota on {name}\n");
            for action in ["get", "check"] {
                let said = fails(&[&["quota", action, meta], &of(name)[..]].concat());
                assert!(said.contains(&missing), "{action}: {said}");
            }
            let said = ok(&[&["quota", "delete", meta], &of(name)[..]].concat());
            assert!(said.contains(&missing), "{said}");
            ok(&[&["quota", "list", meta], &of(name)[..]].concat());
        }
        ok(&["quota", "set", meta, "--uid", "1000", "--inodes", "10"]);
    }
    assert!(ok(&["quota", "check", meta, "--uid", "1000"]).contains("uid:1000"));
}

#[test]
fn a_directory_has_any_name() {
    let volume = Volume::new(&[]);
    let quota = |action: &str, name: &'static [u8]| {
        let mut command = sluice();
        command.args(["quota", action, &volume.meta, "--path"]).arg(OsStr::from_bytes(name));
        if action == "set" {
            command.args(["--create", "--inodes", "10"]);
        }
        let output = command.output().expect("it starts");
        let said = [output.stdout, output.stderr].concat();
        assert!(output.status.success(), "{action}: {}", said.escape_ascii());
        String::from_utf8(said).expect("text")
    };
    for (name, shown) in [(&b"/a\xFF/b"[..], "/a\u{FFFD}/b"), (b"/a\n\x1B[2J", "/a\\n\\u{1b}[2J")] {
        for action in ["set", "get", "check", "list"] {
            assert_eq!(line(&quota(action, name), shown)[4], "10", "{action}");
        }
        quota("delete", name);
    }
    assert!(ok(&["quota", "list", &volume.meta]).contains("there are no quotas"));
}
