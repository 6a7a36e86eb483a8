//! Records that break the format: told about the file they belong to, and no harm to others.

use std::thread;

use sluice_faults::volume::{Client, Volume};
use sluice_meta::{
    op::At,
    ops::{create::Create, unlink::Unlink},
};
use sluice_testkit::server::{Redis, redis};
use sluice_types::{Caller, FileType, FsError, FsResult, Ino, Name};

use crate::{ROOT, no_redis, objects::sqlite};

/// Files: the second has damaged slices, the third a node of an unknown type, the fourth no node at
/// all.
const FILES: [&str; 6] = ["a-good", "b-slices", "c-kind", "d-missing", "e-good", "f-good"];

fn files(client: &Client) -> (Ino, Vec<Ino>) {
    let dir = client.mkdir(ROOT, "dir").unwrap();
    (dir, FILES.map(|name| client.put(dir, name, name.as_bytes()).unwrap()).into())
}

/// Fails unless it is an error that says what is damaged and what to do.
fn assert_reported<T: std::fmt::Debug>(what: &str, outcome: FsResult<T>) {
    let error = outcome.expect_err(what);
    assert_eq!(error, FsError::io(""), "{what}");
    assert!(error.to_string().contains("fsck"), "{what}: {error}");
}

fn check(volume: &Volume, dir: Ino, inos: &[Ino]) {
    let client = &volume.mount();
    let good = [0, 4, 5];
    for at in good {
        assert_eq!(client.lookup(dir, FILES[at]).unwrap().ino, inos[at]);
        assert_eq!(client.get(inos[at]).unwrap(), FILES[at].as_bytes());
    }
    assert_eq!(client.lookup(dir, "b-slices").unwrap().ino, inos[1]);
    assert_reported("slices", client.get(inos[1]));
    assert_reported("kind", client.lookup(dir, "c-kind"));
    assert_reported("kind", client.open(inos[2]).map(drop));
    let missing = client.lookup(dir, "d-missing").unwrap_err();
    assert!(missing == FsError::NotFound || missing == FsError::io(""), "{missing}");
    assert_eq!(client.list(dir, false).unwrap(), FILES);

    // Whoever writes to the damaged file harms no neighbour in a batch.
    let opened = client.open(inos[1]).unwrap();
    client.write(opened.fh, 0, b"more").unwrap();
    thread::scope(|scope| {
        let neighbours: Vec<_> = (0..4)
            .map(|number| scope.spawn(move || client.put(dir, &format!("new{number}"), b"new")))
            .collect();
        // Nobody could say what the file holds then.
        assert_reported("append", client.vfs.fsync(&client.never, opened.fh));
        for neighbour in neighbours {
            neighbour.join().unwrap().unwrap();
        }
    });
    let _ = client.close(opened.fh);
    assert_reported("slices", client.get(inos[1]));

    // All in one batch.
    let at = |name: &str| At::new(dir, Name::new(name.as_bytes()).unwrap());
    let unlink =
        |name: &&str| Unlink { at: at(name), only: None, skip_trash: true, caller: Caller::client() };
    let meta = client.vfs.meta();
    let unlinked = meta.run_all(FILES[2..].iter().map(unlink).collect(), &client.never);
    assert_reported("unlink", unlinked[0].clone().map(drop));
    assert!(unlinked[1].is_ok(), "an entry without a node can be removed: {:?}", unlinked[1]);
    assert!(unlinked[2].is_ok() && unlinked[3].is_ok(), "{unlinked:?}");
    let made = meta.run_all(
        (0..3)
            .map(|number| Create {
                at: at(&format!("made{number}")),
                ino: meta.new_ino(&client.never).unwrap(),
                kind: FileType::File,
                mode: 0o644,
                umask: 0,
                rdev: 0,
                target: None,
                caller: Caller::client(),
            })
            .collect(),
        &client.never,
    );
    assert!(made.iter().all(Result::is_ok), "{made:?}");
}

#[test]
fn damaged_rows_of_sqlite_harm_no_neighbours() {
    let (folder, volume) = sqlite();
    let client = volume.mount();
    let (dir, inos) = files(&client);
    client.vfs.close(None).unwrap();
    let database = rusqlite::Connection::open(folder.path().join("meta.db")).unwrap();
    let change = |sql: &str, ino: Ino| assert_eq!(database.execute(sql, [ino.0 as i64]).unwrap(), 1, "{sql}");
    change("UPDATE jfs_chunk SET slices = x'010203' WHERE inode = ?1", inos[1]);
    change("UPDATE jfs_node SET type = 99 WHERE inode = ?1", inos[2]);
    change("DELETE FROM jfs_node WHERE inode = ?1", inos[3]);
    drop(database);
    check(&volume, dir, &inos);
}

fn change(redis: &Redis, words: &[&str]) {
    let answer = redis.command(words).unwrap();
    assert!(!answer.starts_with(b"-") && answer != b":0\r\n", "{words:?}: {}", answer.escape_ascii());
}

#[test]
fn damaged_keys_of_redis_harm_no_neighbours() {
    if no_redis() {
        return;
    }
    let redis = redis().unwrap();
    let volume = Volume::format(redis.url(0));
    let client = volume.mount();
    let (dir, inos) = files(&client);
    client.vfs.close(None).unwrap();
    change(&redis, &["LSET", &format!("c{}_0", inos[1]), "0", "short"]);
    change(&redis, &["SET", &format!("i{}", inos[2]), "no node"]);
    change(&redis, &["DEL", &format!("i{}", inos[3])]);
    check(&volume, dir, &inos);
}
