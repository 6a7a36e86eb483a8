//! Volumes that programs open.

#![allow(clippy::unwrap_used, reason = "a test panics when it fails")]

use std::{path::Path, sync::Arc};

use sluice_fs::User;
use sluice_meta::{
    Interrupt, Meta,
    schema::{Member, VolumeFormat},
};
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
fn the_machines_of_a_cache_group_are_named_and_may_be_away() {
    let dir = tempfile::tempdir().unwrap();
    let url = made_in(dir.path());
    let member_of = |purpose: &str, host: &str, address: &str| {
        let options = VolumeOptions { purpose: purpose.into(), ..VolumeOptions::default() };
        let volume = volume(&url, &options, &nothing).unwrap();
        let member = Member {
            group: "g".into(),
            name: purpose.into(),
            address: address.into(),
            host: host.into(),
            weight: 100,
            ..Member::default()
        };
        volume.vfs().meta().join_group(member, &Interrupt::never()).unwrap();
        volume
    };
    // Nobody listens there.
    let named = member_of("one", "node-1", "127.0.0.1:1");
    let unnamed = member_of("two", "", "127.0.0.1:2");
    let fs = named.fs(&User::root());
    let content: Vec<u8> = (0..9 << 20).map(|at| (at % 251) as u8).collect();
    let file = fs.create("/f").unwrap();
    file.append(&content).unwrap();
    file.close().unwrap();
    fs.set_mode("/f", 0o600).unwrap();

    let options = VolumeOptions { cache_group: "g".into(), ..VolumeOptions::default() };
    let client = volume(&url, &options, &nothing).unwrap();
    let view = client.fs(&User::root());
    let blocks = view.block_hosts("/f", &(0..u64::MAX), 1 << 20).unwrap();
    assert_eq!(blocks.len(), 9);
    let count = |host: &str| blocks.iter().filter(|hosts| **hosts == [host]).count();
    let (one, two) = (count("node-1"), count("127.0.0.1"));
    assert_eq!(one + two, 9, "{blocks:?}");
    let mut most = vec![(one, "node-1"), (two, "127.0.0.1")];
    most.retain(|(count, _)| *count > 0);
    most.sort_unstable_by(|a, b| b.cmp(a));
    let most: Vec<&str> = most.into_iter().map(|(_, host)| host).collect();
    assert_eq!(view.block_hosts("/f", &(0..1), 16 << 20).unwrap(), [most]);
    assert_eq!(view.block_hosts("/f", &((5 << 20)..(7 << 20)), 1 << 20).unwrap(), blocks[5..7]);
    assert!(view.block_hosts("/f", &((9 << 20)..(10 << 20)), 1 << 20).unwrap().is_empty());
    let refused = client.fs(&User::new(5, 5)).block_hosts("/f", &(0..1), 1).unwrap_err();
    assert_eq!(refused.errno(), libc::EACCES);
    // Without a group, nobody is named.
    assert_eq!(fs.block_hosts("/f", &(0..1), 16 << 20).unwrap(), [Vec::<String>::new()]);
    // The object store has what no member gives.
    assert_eq!(view.open("/f").unwrap().read_pieces(0, 9 << 20).unwrap().concat(), content);
    drop((named, unnamed));

    let odd = VolumeOptions { cache_group: "a\nb".into(), ..VolumeOptions::default() };
    assert!(matches!(volume(&url, &odd, &nothing).map(drop), Err(OpenError::Invalid(_))));
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
