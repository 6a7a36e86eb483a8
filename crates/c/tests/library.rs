//! Tests that the header matches the exported functions. Compiles C programs and runs them on a
//! volume.

#![allow(clippy::unwrap_used, reason = "a test panics when it fails")]

use std::{
    env, fs,
    path::{Path, PathBuf},
    process::Command,
};

use sluice_meta::{Meta, schema::VolumeFormat};
use sluice_types::{Clock as _, SystemClock};
use tempfile::TempDir;

/// The root of the repository.
fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

fn header() -> String {
    let config = cbindgen::Config {
        language: cbindgen::Language::C,
        style: cbindgen::Style::Tag,
        include_guard: Some("SLUICE_H".into()),
        cpp_compat: true,
        usize_is_size_t: true,
        no_includes: true,
        sys_includes: vec!["stddef.h".into(), "stdint.h".into()],
        header: Some(include_str!("header.txt").trim_end().into()),
        line_length: 100,
        ..cbindgen::Config::default()
    };
    let mut builder = cbindgen::Builder::new().with_config(config);
    let names = [
        ("SluiceStat", "sluice_stat"),
        ("SluiceStatvfs", "sluice_statvfs"),
        ("SluiceEntry", "sluice_entry"),
        ("SluiceSummary", "sluice_summary"),
        ("SluiceQuota", "sluice_quota"),
        ("SluiceAclEntry", "sluice_acl_entry"),
        ("SluiceTime", "sluice_time"),
    ];
    for (name, in_c) in names {
        builder = builder.rename_item(name, in_c);
    }
    let files =
        ["structs", "volumes", "files", "listings", "names", "attrs", "xattrs", "acls", "trees", "quotas"];
    for file in files {
        builder = builder.with_src(Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("src/{file}.rs")));
    }
    let mut text = Vec::new();
    builder.generate().unwrap().write(&mut text);
    String::from_utf8(text).unwrap()
}

/// `UPDATE=1` writes it.
#[test]
fn the_header_is_that_of_the_functions() {
    let path = root().join("sdk/c/sluice.h");
    let header = header();
    if env::var_os("UPDATE").is_some() {
        fs::write(&path, &header).unwrap();
    }
    let written = fs::read_to_string(&path).unwrap_or_default();
    assert!(
        written == header,
        "sdk/c/sluice.h is not what the functions are: run UPDATE=1 cargo test -p sluice-c --test library"
    );
}

/// A new volume in a directory; its URL.
fn volume(dir: &Path) -> String {
    let url = format!("sqlite3://{}/meta.db", dir.display());
    let format = VolumeFormat {
        name: "from-c".into(),
        uuid: "6f1b3c52-7d0c-4d3c-9d5e-0c5ad6a5a016".into(),
        storage: "file".into(),
        bucket: format!("{}/objects/", dir.display()),
        block_size: 1024,
        enable_acl: true,
        ..VolumeFormat::default()
    };
    let engine = sluice_open::engine(&url, &|_| None).unwrap();
    Meta::format(engine.as_ref(), &format, SystemClock.now()).unwrap();
    url
}

/// Compiles a program, and runs it with arguments; what it printed.
fn run(dir: &TempDir, source: &Path, arguments: &[&str]) -> String {
    // Cargo builds the library beside the tests.
    let library = env::current_exe().unwrap().parent().unwrap().to_owned();
    let program = dir.path().join(source.file_stem().unwrap());
    let mut cc = Command::new("cc");
    cc.args(["-std=c11", "-D_GNU_SOURCE", "-Wall", "-Wextra", "-Werror", "-O1"]);
    cc.arg("-o").arg(&program).arg(source).arg("-I").arg(root().join("sdk/c"));
    cc.arg("-L")
        .arg(&library)
        .arg(format!("-Wl,-rpath,{}", library.display()))
        .args(["-lsluice", "-lpthread"]);
    let compiled = cc.output().unwrap();
    assert!(compiled.status.success(), "{}", String::from_utf8_lossy(&compiled.stderr));
    let ran = Command::new(&program).args(arguments).output().unwrap();
    let said = String::from_utf8_lossy(&ran.stdout).into_owned();
    assert!(ran.status.success(), "{}: {said}{}", ran.status, String::from_utf8_lossy(&ran.stderr));
    said
}

fn own(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests").join(name)
}

#[test]
fn the_example_runs() {
    let dir = tempfile::tempdir().unwrap();
    let said = run(&dir, &root().join("sdk/c/example.c"), &[&volume(dir.path())]);
    assert_eq!(said, "file 8388608 bytes\n-2: /example/missing: no such file or directory\n");
}

#[test]
fn every_call_does_what_it_says() {
    let dir = tempfile::tempdir().unwrap();
    let said = run(&dir, &own("calls.c"), &[&volume(dir.path())]);
    assert!(said.ends_with("all calls\n"), "{said}");
}

#[test]
fn users_may_do_what_the_table_says() {
    let dir = tempfile::tempdir().unwrap();
    let [passwd, group] = ["passwd", "group"].map(|name| dir.path().join(name));
    let people =
        [("ann", 1000, 100), ("bob", 1001, 101), ("cay", 1002, 102), ("adm", 1003, 103), ("root", 0, 0)];
    let lines = people.map(|(name, uid, gid)| format!("{name}:x:{uid}:{gid}::/:\n"));
    fs::write(&passwd, lines.concat()).unwrap();
    fs::write(&group, "root:x:0:\nteam:x:100:cay\nbobs:x:101:\nsupers:x:300:adm\n").unwrap();
    let table = root().join("sdk/users.txt");
    let arguments =
        [&volume(dir.path()), table.to_str().unwrap(), passwd.to_str().unwrap(), group.to_str().unwrap()];
    let said = run(&dir, &own("users.c"), &arguments);
    assert!(said.ends_with(" 0 wrong\n"), "{said}");
}
