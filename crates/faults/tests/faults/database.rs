//! SQLite: another process that holds the database, and a disk that is full.

use std::{
    io::{BufRead, BufReader},
    process::{Command, Stdio},
    time::Duration,
};

use sluice_faults::{
    check,
    volume::{Mount, Volume},
};
use sluice_testkit::disk::SmallDisk;
use sluice_types::FsError;

use crate::{ROOT, objects::sqlite};

#[test]
fn another_process_that_holds_the_database_is_a_delay() {
    let (dir, mut volume) = sqlite();
    volume.url.push_str("?_timeout=100");
    let client = volume.mount();
    let ino = client.put(ROOT, "old", b"content").unwrap();
    let mut holder = Command::new(env!("CARGO_BIN_EXE_hold-lock"))
        .arg(dir.path().join("meta.db"))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    BufReader::new(holder.stdout.take().unwrap()).read_line(&mut line).unwrap();
    assert_eq!(line, "held\n");
    std::thread::scope(|scope| {
        let writing: Vec<_> = (0..4)
            .map(|number| {
                let client = &client;
                scope.spawn(move || client.put(ROOT, &format!("new{number}"), b"new"))
            })
            .collect();
        assert_eq!(client.get(ino).unwrap(), b"content", "who reads need not wait");
        // Longer than the engine itself waits.
        let begun = std::time::Instant::now();
        sluice_faults::eventually("the engine gave up", || begun.elapsed() > Duration::from_millis(1500));
        assert!(writing.iter().all(|thread| !thread.is_finished()));
        drop(holder.stdin.take());
        for thread in writing {
            thread.join().unwrap().unwrap();
        }
    });
    assert!(holder.wait().unwrap().success());
    // Another process makes the log change under the pages that are kept.
    assert_eq!(volume.mount().list(ROOT, true).unwrap().len(), 5);
    client.vfs.close(None).unwrap();
    check::assert_sound(&volume, &volume.url, client.vfs.data().layout(), "held");
}

#[test]
fn a_full_disk_under_the_database_is_told_and_nothing_is_half_done() {
    let Some(disk) = SmallDisk::mount("4m") else { return };
    let volume = Volume::format(format!("sqlite3://{}/meta.db", disk.path().display()));
    let client =
        volume.mount_with(&volume.url, &Mount { timeout: Duration::from_secs(3), ..Mount::default() });
    let dir = client.mkdir(ROOT, "dir").unwrap();
    client.put(dir, "old", b"content").unwrap();
    disk.fill();
    let mut made = vec!["old".to_owned()];
    let mut refused = 0;
    // The log may have room for some more.
    for number in 0..400 {
        let name = format!("file{number}");
        match client.mkdir(dir, &name) {
            Ok(_) => made.push(name),
            Err(error) => {
                assert_eq!(error, FsError::io(""));
                let context = error.to_string();
                assert!(context.contains("disk") && context.contains("full"), "{context}");
                refused += 1;
                if refused == 5 {
                    break;
                }
            }
        }
    }
    assert_eq!(refused, 5, "the disk is full");
    assert_eq!(client.get(client.lookup(dir, "old").unwrap().ino).unwrap(), b"content", "reading goes on");
    disk.empty();
    client.put(dir, "later", b"later").unwrap();
    made.push("later".into());
    made.sort();
    assert_eq!(client.list(dir, true).unwrap(), made, "what was acknowledged, and nothing else");
    client.vfs.close(None).unwrap();
    check::assert_sound(&volume, &volume.url, client.vfs.data().layout(), "full disk");
}
