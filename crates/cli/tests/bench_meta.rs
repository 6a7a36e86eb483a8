//! `bench-meta` measures every operation, and leaves a volume as it was.

mod support;

use std::{
    collections::BTreeMap,
    process::{Command, Stdio},
};

use rustix::process::{Pid, Signal, kill_process};
use support::{Volume, fails, ok, sluice, until};

const ROWS: [&str; 24] = [
    "mkdir",
    "mvdir",
    "rmdir",
    "readdir_10",
    "readdir_1k",
    "mknod",
    "create",
    "rename",
    "unlink",
    "lookup",
    "getattr",
    "setattr",
    "access",
    "setxattr",
    "getxattr",
    "removexattr",
    "listxattr_1",
    "listxattr_10",
    "link",
    "symlink",
    "newchunk",
    "write",
    "read_1",
    "read_10",
];

/// What it prints as JSON.
fn measured(arguments: &[&str]) -> serde_json::Value {
    let output =
        sluice().args(["bench-meta", "--json"]).args(arguments).output().expect("the program starts");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).expect("JSON")
}

/// How many records there are of each kind, but for counters, which only ever grow.
fn records(volume: &Volume) -> BTreeMap<String, i64> {
    let connection = rusqlite::Connection::open(volume.path("meta.db")).expect("opens");
    let tables = "SELECT name FROM sqlite_master WHERE type = 'table' AND name LIKE 'jfs_%'";
    let mut tables = connection.prepare(tables).expect("SQL");
    let names = tables.query_map([], |row| row.get::<_, String>(0)).expect("SQL");
    let count = |name: String| {
        let count = format!("SELECT count(*) FROM {name}");
        (name, connection.query_row(&count, [], |row| row.get(0)).expect("SQL"))
    };
    names.filter_map(Result::ok).filter(|name| name != "jfs_counter").map(count).collect()
}

fn usage(volume: &Volume) -> Vec<i64> {
    let connection = rusqlite::Connection::open(volume.path("meta.db")).expect("opens");
    let usage = "SELECT value FROM jfs_counter WHERE name IN ('usedSpace', 'totalInodes') ORDER BY name";
    let mut usage = connection.prepare(usage).expect("SQL");
    usage.query_map([], |row| row.get(0)).expect("SQL").filter_map(Result::ok).collect()
}

#[test]
fn every_operation_is_measured_and_nothing_stays_behind() {
    // What is removed must not end in the trash.
    let volume = Volume::new(&["--trash-days", "1"]);
    let before = (records(&volume), usage(&volume));
    assert!(before.0.len() > 10, "{before:?}");
    for meta in [volume.meta.as_str(), "mem://"] {
        // More writes than a chunk takes before it is compacted.
        let report = measured(&["--iterations", "100", "--threads", "2", meta]);
        let rows = report["rows"].as_array().expect("rows");
        assert_eq!(rows.iter().map(|row| &row["name"]).collect::<Vec<_>>(), ROWS);
        for row in rows {
            let of = |member: &str| row[member].as_f64().expect("a number");
            assert!(of("least_us") > 0.0 && of("least_us") <= of("us") && of("us") <= of("most_us"), "{row}");
            assert_eq!(row["operations"], 200, "{row}");
        }
    }
    assert_eq!((records(&volume), usage(&volume)), before);
    let said = ok(&["fsck", &volume.meta]);
    assert!(said.contains("0 errors") && said.contains("0 advisory"), "{said}");
}

#[test]
fn rows_are_chosen_by_name() {
    let report = measured(&["--iterations", "1", "--rows", "read_1,mkdir", "mem://"]);
    let names: Vec<_> = report["rows"].as_array().expect("rows").iter().map(|row| &row["name"]).collect();
    assert_eq!(names, ["read_1", "mkdir"]);
    let shown = ok(&["bench-meta", "--duration", "1ms", "--rows", "unlink", "mem://"]);
    assert!(shown.contains("| unlink "), "{shown}");
    let said = fails(&["bench-meta", "--rows", "mkdir,fly", "mem://"]);
    assert!(said.contains("'fly'") && said.contains("mkdir, mvdir, rmdir"), "{said}");
}

#[test]
fn a_signal_ends_it_and_nothing_stays_behind() {
    let volume = Volume::new(&[]);
    let before = (records(&volume), usage(&volume));
    let mut child = Command::new(env!("CARGO_BIN_EXE_sluice"))
        .args(["bench-meta", "--duration", "1h", "--rows", "unlink,write", &volume.meta])
        .stdin(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the program starts");
    until("the first entries", || records(&volume)["jfs_delfile"] > 0);
    kill_process(Pid::from_child(&child), Signal::INT).expect("it runs");
    let output = {
        let mut ended = None;
        until("the end", || {
            ended = child.try_wait().expect("a child");
            ended.is_some()
        });
        child.wait_with_output().expect("it ended")
    };
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && said.contains("interrupted"), "{said}");
    assert_eq!((records(&volume), usage(&volume)), before);
    ok(&["fsck", &volume.meta]);
}
