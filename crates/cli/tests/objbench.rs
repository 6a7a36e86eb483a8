//! `sluice objbench` on a folder and on an S3 server.

mod support;

use std::{fs, process::Stdio};

use futures::TryStreamExt as _;
use rustix::process::{Pid, Signal, kill_process};
use sluice_object::StoreConfig;
use sluice_testkit::server::s3::{ACCESS_KEY, BUCKET, Fault, S3, SECRET_KEY};
use support::{fails, ok, sluice, until};

/// Sizes with which it is quick.
const SMALL: [&str; 6] =
    ["--block-size=64K", "--big-object-size=1M", "--small-object-size=1K", "--small-objects=20", "-p", "3"];
const ITEMS: [&str; 7] = [
    "upload objects",
    "download objects",
    "put small objects",
    "get small objects",
    "list objects",
    "head objects",
    "delete objects",
];

#[test]
fn a_folder_is_tested_measured_and_left_empty() {
    let folder = tempfile::tempdir().expect("a folder");
    let bucket = folder.path().join("bucket");
    let said = ok(&[&["objbench", &bucket.display().to_string()], &SMALL[..]].concat());
    assert_eq!(said.matches("| pass").count(), 12, "{said}");
    for item in ITEMS {
        assert!(
            said.lines().any(|line| line.starts_with(&format!("| {item} ")) && line.contains("/s |")),
            "{said}"
        );
    }
    assert_eq!(fs::read_dir(&bucket).expect("listed").count(), 0, "all is gone");
    let said =
        ok(&[&["objbench", "--skip-functional-tests", &bucket.display().to_string()], &SMALL[..]].concat());
    assert!(!said.contains("pass"), "{said}");
    let shards = folder.path().join("shard%d");
    ok(&[&["objbench", "--shards", "3", &shards.display().to_string()], &SMALL[..]].concat());
    for number in 0..3 {
        let shard = folder.path().join(format!("shard{number}"));
        assert_eq!(fs::read_dir(shard).expect("listed").count(), 0, "shard {number}");
    }
    let said = fails(&["objbench", "--shards", "3", &bucket.display().to_string()]);
    assert!(said.contains("with 3 shards the bucket") && said.contains("%d"), "{said}");
    assert!(fails(&["objbench", "http://localhost/bucket"]).contains("--storage"));
    assert!(fails(&["objbench", "--threads", "0", "/tmp"]).contains("threads"));
}

#[test]
fn a_signal_ends_it_and_nothing_stays_behind() {
    let folder = tempfile::tempdir().expect("a folder");
    let child = sluice()
        .args([
            "objbench",
            "--skip-functional-tests",
            "--big-object-size",
            "1T",
            "--block-size",
            "64K",
            "-p",
            "1",
        ])
        .arg(folder.path())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the program starts");
    let entries = || fs::read_dir(folder.path()).expect("listed").flatten();
    until("the first objects", || {
        entries().any(|prefix| fs::read_dir(prefix.path()).is_ok_and(|of| of.count() > 1))
    });
    kill_process(Pid::from_child(&child), Signal::INT).expect("it runs");
    let output = child.wait_with_output().expect("it ends");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && said.contains("interrupted"), "{said}");
    assert_eq!(entries().count(), 0);
}

#[test]
fn an_s3_server_passes_and_one_that_fails_is_told() {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().expect("a runtime");
    let server = runtime.block_on(S3::start());
    let url = server.url(BUCKET);
    let keys = ["--storage", "s3", "--access-key", ACCESS_KEY, "--secret-key", SECRET_KEY];
    let said = ok(&[&["objbench", &url], &keys[..], &SMALL[..]].concat());
    assert_eq!(said.matches("| pass").count(), 12, "{said}");
    let everything = |said: &str| ITEMS.iter().all(|item| said.contains(item));
    assert!(everything(&said), "{said}");

    let config = StoreConfig {
        storage: "s3".into(),
        bucket: url.clone(),
        access_key: ACCESS_KEY.into(),
        secret_key: SECRET_KEY.into(),
        ..StoreConfig::default()
    };
    let store = sluice_object::open(&config).expect("a store");
    let left: Vec<_> = runtime.block_on(store.list("").try_collect()).expect("listed");
    assert!(left.is_empty(), "{left:?}");

    // One request of a test is refused, then all of them.
    server.inject("HEAD", Fault::Status(403));
    let said = fails(&[&["objbench", &url], &keys[..], &SMALL[..]].concat());
    assert_eq!(said.matches("| pass").count(), 11, "{said}");
    server.break_all(Fault::Status(403));
    let said = fails(&[&["objbench", &url], &keys[..], &SMALL[..]].concat());
    assert!(!said.contains("pass"), "{said}");
}
