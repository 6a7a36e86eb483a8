//! Long work shows a bar on a terminal and plain lines elsewhere.

mod support;

use std::{
    fs,
    process::{Command, Stdio},
};

use sluice_testkit::fuse::no_fuse;
use support::{Volume, ok, sluice};

/// All that the program shows on a terminal, which `script` makes.
fn on_a_terminal(arguments: &[&str]) -> String {
    let quoted: Vec<String> = arguments.iter().map(|argument| format!("'{argument}'")).collect();
    let command = format!("stty cols 100; {} {}", env!("CARGO_BIN_EXE_sluice"), quoted.join(" "));
    let output = Command::new("script")
        .args(["-qec", &command, "/dev/null"])
        .env("TERM", "xterm")
        .stdin(Stdio::null())
        .output()
        .expect("script runs");
    let shown = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "sluice {}: {shown}", arguments.join(" "));
    shown
}

/// What the program says on standard error into a pipe.
fn in_a_pipe(arguments: &[&str]) -> String {
    let output = sluice().args(arguments).output().expect("starts");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "sluice {}: {said}", arguments.join(" "));
    said
}

/// Fails unless each of `works` shows a bar on a terminal (`terminal`), and a line in a pipe
/// (`pipe`).
fn shows(works: &[&str], terminal: &str, pipe: &str) {
    for work in works {
        // A bar is drawn over itself: the cursor goes back and the line is cleared.
        assert!(terminal.contains(&format!("{work}: ")), "no `{work}` on a terminal: {terminal:?}");
        let line = |line: &str| line.strip_prefix(work).is_some_and(|rest| rest.starts_with(": "));
        assert!(pipe.lines().any(line), "no line of `{work}` in a pipe: {pipe:?}");
    }
    assert!(terminal.contains('\r') && terminal.contains('\u{1b}'), "no bar: {terminal:?}");
    assert!(!pipe.contains('\r') && !pipe.contains('\u{1b}'), "a bar in a pipe: {pipe:?}");
}

#[test]
fn work_on_the_metadata_shows_how_far_it_is() {
    let volume = Volume::new(&["--trash-days", "0"]);
    let mdtest = |dir| ["mdtest", "--depth", "0", "--files", "50", volume.meta.as_str(), dir];
    let (terminal, pipe) = (on_a_terminal(&mdtest("one")), in_a_pipe(&mdtest("two")));
    shows(&["create file"], &terminal, &pipe);
    assert!(pipe.contains("create file: 50 of 50"), "{pipe}");
    let fsck = ["fsck", volume.meta.as_str()];
    shows(&["check metadata", "check objects"], &on_a_terminal(&fsck), &in_a_pipe(&fsck));
    let gc = ["gc", "--compact", volume.meta.as_str()];
    let works = ["compact chunks", "delete unused slices", "list slices", "compare objects"];
    shows(&works, &on_a_terminal(&gc), &in_a_pipe(&gc));
    let uuid = volume.status()["Setting"]["UUID"].as_str().expect("a UUID").to_owned();
    // Of each of the 100 files its node takes a page, and none has an object.
    let destroyed = on_a_terminal(&["destroy", "-y", &volume.meta, &uuid]);
    assert!(destroyed.contains("delete objects: ") && destroyed.contains(" of about "), "{destroyed:?}");
}

#[test]
fn work_in_a_mount_shows_how_far_it_is() {
    if no_fuse() {
        return;
    }
    let mut volume = Volume::new(&["--trash-days", "0"]);
    let point = volume.mount("mnt", &[]);
    let path = |name: &str| point.join(name).display().to_string();
    fs::create_dir(point.join("tree")).expect("made");
    for number in 0..30 {
        fs::write(point.join(format!("tree/{number}")), "x").expect("written");
    }
    let tree = path("tree");
    let clone = |to: &str| (tree.clone(), path(to));
    let (one, two) = (clone("one"), clone("two"));
    let terminal = on_a_terminal(&["clone", &one.0, &one.1]);
    let pipe = in_a_pipe(&["clone", &two.0, &two.1]);
    shows(&["clone entries"], &terminal, &pipe);
    assert!(pipe.contains("clone entries: 31"), "{pipe}");
    let (terminal, pipe) = (on_a_terminal(&["rmr", &one.1]), in_a_pipe(&["rmr", &two.1]));
    shows(&["remove entries"], &terminal, &pipe);
    let quiet = clone("quiet");
    assert_eq!(ok(&["-q", "clone", &quiet.0, &quiet.1]), "");
    assert_eq!(on_a_terminal(&["-q", "rmr", &quiet.1]), "");
    assert!(pipe.contains("remove entries: 31"), "{pipe}");
    let here = path("");
    let bench = ["bench", "--big-file-size", "5M", "--block-size", "2M", "--small-file-count", "5", &here];
    let works = ["write big files", "read big files", "write small files", "read small files"];
    let (terminal, pipe) = (on_a_terminal(&bench), in_a_pipe(&bench));
    shows(&[&works[..], &["stat small files"]].concat(), &terminal, &pipe);
    assert!(pipe.contains("read big files: 3 of 3") && pipe.contains("read small files: 5 of 5"), "{pipe}");
    volume.umount(&point);
}
