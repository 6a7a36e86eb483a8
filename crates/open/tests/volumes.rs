//! Volumes that programs open.

#![allow(clippy::unwrap_used, reason = "a test panics when it fails")]

use std::{path::Path, sync::Arc};

use sluice_fs::User;
use sluice_meta::{Meta, schema::VolumeFormat};
use sluice_open::{OpenError, VolumeOptions, engine, volume};
use sluice_types::{Clock as _, SystemClock};

fn nothing(_: &str) -> Option<String> {
    None
}

/// A volume in a directory; its URL.
fn made_in(dir: &Path) -> String {
    let url = format!("sqlite3://{}/meta.db", dir.display());
    let format = VolumeFormat {
        name: "opened".into(),
        uuid: "6f1b3c52-7d0c-4d3c-9d5e-0c5ad6a5a003".into(),
        storage: "file".into(),
        bucket: format!("{}/objects/", dir.display()),
        block_size: 1024,
        ..VolumeFormat::default()
    };
    Meta::format(engine(&url, &nothing).unwrap().as_ref(), &format, SystemClock.now()).unwrap();
    url
}

#[test]
fn a_volume_is_opened_once_for_the_same_options() {
    let dir = tempfile::tempdir().unwrap();
    let url = made_in(dir.path());
    let options = VolumeOptions::default();
    let one = volume(&url, &options, &nothing).unwrap();
    assert!(Arc::ptr_eq(&one, &volume(&url, &options, &nothing).unwrap()));
    let read_only = VolumeOptions { read_only: true, ..options.clone() };
    let other = volume(&url, &read_only, &nothing).unwrap();
    assert!(!Arc::ptr_eq(&one, &other));

    let fs = one.fs(&User::root());
    fs.mkdir_all("/team/data", 0o755).unwrap();
    let file = fs.create("/team/data/f").unwrap();
    file.append(&vec![7; 3 << 20]).unwrap();
    file.close().unwrap();
    let subdir = VolumeOptions { subdir: "/team/data".into(), read_only: true, ..options.clone() };
    let below = volume(&url, &subdir, &nothing).unwrap().fs(&User::root());
    assert_eq!(below.open("f").unwrap().read_pieces(0, 4 << 20).unwrap().concat(), vec![7; 3 << 20]);
    assert_eq!(below.stat("/../..").unwrap().ino, fs.stat("/team/data").unwrap().ino);
    assert_eq!(below.create("g").unwrap_err().errno(), libc::EROFS);

    drop((fs, one));
    let again = volume(&url, &options, &nothing).unwrap();
    assert!(again.fs(&User::root()).exists("/team/data/f").unwrap());
}

#[test]
fn what_is_wrong_is_said() {
    let dir = tempfile::tempdir().unwrap();
    let url = made_in(dir.path());
    let fails = |url: &str, options: &VolumeOptions| volume(url, options, &nothing).map(drop).unwrap_err();
    let options = VolumeOptions::default();
    for wrong in ["", "/a/path", "ftp://host"] {
        assert!(matches!(fails(wrong, &options), OpenError::Invalid(_)), "{wrong}");
    }
    let empty = format!("sqlite3://{}/empty.db", dir.path().display());
    let error = fails(&empty, &options).to_string();
    assert!(error.contains("sluice format"), "{error}");
    for (subdir, why) in [("absent/x", "no such file"), ("..", "invalid")] {
        let error = fails(&url, &VolumeOptions { subdir: subdir.into(), ..options.clone() }).to_string();
        assert!(error.contains(subdir) && error.contains(why), "{error}");
    }
}
