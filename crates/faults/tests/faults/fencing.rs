//! A client that is cut off, fenced and comes back.

use std::time::Duration;

use sluice_faults::{
    check::{self, Records},
    volume::{Client, HEARTBEAT, Mount, engine},
};
use sluice_meta::{
    engine::{Found, Read},
    schema::{Key, Row},
};
use sluice_testkit::server::Behaviour;
use sluice_types::FsError;
use sluice_vfs::FlockKind;

use crate::{
    ROOT,
    answers::{Behind, behind},
    no_redis,
    objects::sqlite,
};

const DEAD: Behaviour = Behaviour {
    request_delay: Duration::ZERO,
    answer_delay: Duration::ZERO,
    drop_answers: false,
    partition: true,
    refuse: false,
    damage: false,
};

/// Cuts `one` off until `two` has cleaned up after it.
fn bury(behind: &Behind, one: &Client, two: &Client) {
    behind.proxy.set(DEAD);
    behind.volume.outlive(two).unwrap();
    let records = Records::load(engine(&behind.volume.url).as_ref());
    assert!(!records.sessions.contains(&one.vfs.meta().sid()), "{:?}", records.sessions);
}

fn heal(behind: &Behind) {
    behind.proxy.heal();
    behind.proxy.reset();
}

/// To others it is the same whether the engine was away or its clients were.
#[test]
fn after_an_outage_of_three_session_lifetimes_nobody_is_taken_for_dead() {
    let (_dir, volume) = sqlite();
    let clients = [volume.mount(), volume.mount()];
    let content = vec![5; 200_000];
    let held: Vec<_> = ["a", "b"]
        .iter()
        .zip(&clients)
        .map(|(name, client)| {
            let locked = client.put(ROOT, &format!("locked-{name}"), b"content").unwrap();
            client.lock(locked, 7).unwrap();
            let open = client.put(ROOT, name, &content).unwrap();
            let opened = client.open(open).unwrap();
            client.unlink(ROOT, name).unwrap();
            (locked, opened.fh)
        })
        .collect();
    volume.clock.advance(3 * 5 * HEARTBEAT);
    for _ in 0..12 {
        for client in &clients {
            client.beat().unwrap();
        }
        volume.clock.advance(HEARTBEAT);
    }
    let records = || Records::load(engine(&volume.url).as_ref());
    assert_eq!((records().sessions.len(), records().sustained.len()), (2, 2));
    for (at, client) in clients.iter().enumerate() {
        assert_eq!(client.vfs.meta().env().fences(), 0);
        assert_eq!(clients[1 - at].lock(held[at].0, 8), Err(FsError::Again), "the lock is held");
        assert_eq!(client.read(held[at].1, 0, 200_000).unwrap(), content);
        client.close(held[at].1).unwrap();
    }
    assert_eq!(records().sustained, []);
    // Who stays away is fenced still.
    let gone = clients[1].vfs.meta().sid();
    volume.outlive(&clients[0]).unwrap();
    assert!(!records().sessions.contains(&gone));
    assert_eq!(clients[0].lock(held[1].0, 8), Ok(()), "its lock is free");
    clients[1].beat().unwrap();
    for client in &clients {
        client.vfs.close(None).unwrap();
    }
    check::assert_sound(&volume, &volume.url, clients[0].vfs.data().layout(), "outage");
}

#[test]
fn a_client_that_was_taken_for_dead_goes_on_and_loses_nothing_it_acknowledged() {
    if no_redis() {
        return;
    }
    let behind = behind();
    let one = behind.volume.mount_with(&behind.url, &Mount::default());
    let two = behind.volume.mount();
    let kept = one.put(ROOT, "kept", b"acknowledged").unwrap();
    let (dirty, opened) = one.create(ROOT, "dirty").unwrap();
    one.write(opened.fh, 0, b"written before").unwrap();
    one.lock(kept, 7).unwrap();
    assert_eq!(two.lock(kept, 7), Err(FsError::Again));

    bury(&behind, &one, &two);
    assert_eq!(two.lock(kept, 7), Ok(()), "the lock of a dead client is free");
    assert_eq!(one.vfs.meta().env().fences(), 0);
    heal(&behind);

    one.vfs.fsync(&one.never, opened.fh).unwrap();
    assert!(one.vfs.meta().env().fences() > 0, "it knows");
    assert_eq!(one.lock(kept, 7), Err(FsError::Again), "somebody else holds it now");
    one.beat().unwrap();
    let records = Records::load(engine(&behind.volume.url).as_ref());
    assert!(records.sessions.contains(&one.vfs.meta().sid()), "its session is back");
    for number in 0..20 {
        one.put(ROOT, &format!("later{number}"), b"goes on").unwrap();
    }
    one.close(opened.fh).unwrap();
    assert_eq!(two.get(dirty).unwrap(), b"written before");
    assert_eq!(two.get(kept).unwrap(), b"acknowledged");
    assert_eq!(two.list(ROOT, true).unwrap().len(), 22);
    one.vfs.close(None).unwrap();
    two.vfs.close(None).unwrap();
    check::assert_sound(&behind.volume, &behind.volume.url, one.vfs.data().layout(), "fenced");
}

#[test]
fn an_open_file_without_a_name_is_stale_once_its_client_was_taken_for_dead() {
    if no_redis() {
        return;
    }
    let behind = behind();
    let one = behind.volume.mount_with(&behind.url, &Mount::default());
    let two = behind.volume.mount();
    let content = vec![5; 200_000];
    let ino = one.put(ROOT, "f", &content).unwrap();
    let opened = one.open(ino).unwrap();
    one.unlink(ROOT, "f").unwrap();
    let fresh = behind.volume.mount();
    assert_eq!(one.read(opened.fh, 0, 200_000).unwrap(), content);

    bury(&behind, &one, &two);
    // Its blocks go with the next cleaning of deleted files.
    behind.volume.clock.advance(Duration::from_hours(2));
    two.vfs.meta().clean(&Sink(&two), &two.never).unwrap();
    assert_eq!(behind.volume.store.keys(), [""; 0]);
    heal(&behind);

    one.write(opened.fh, 0, b"late").unwrap();
    assert_eq!(one.vfs.fsync(&one.never, opened.fh), Err(FsError::Stale));
    match one.read(opened.fh, 100_000, 100_000) {
        Ok(read) => assert!(read == content[100_000..], "what is cached is right"),
        Err(error) => assert_eq!(error, FsError::Stale),
    }
    one.close(opened.fh).unwrap();
    one.beat().unwrap();
    for client in [one, two, fresh] {
        client.vfs.close(None).unwrap();
    }
    let layout = behind.volume.mount().vfs.data().layout();
    sluice_faults::eventually("the late block goes", || behind.volume.store.keys().is_empty());
    check::assert_sound(&behind.volume, &behind.volume.url, layout, "stale");
}

#[test]
fn locks_that_were_lost_are_told_and_each_death_counts_once() {
    if no_redis() {
        return;
    }
    let behind = behind();
    let one = behind.volume.mount_with(&behind.url, &Mount::default());
    let two = behind.volume.mount();
    let ino = one.put(ROOT, "f", b"content").unwrap();
    let lock =
        |client: &Client, fh| client.vfs.flock(&client.never, (ino, fh), 7, Some(FlockKind::Write), false);
    for death in 1..=2 {
        let (locked, free) = (one.open(ino).unwrap().fh, one.open(ino).unwrap().fh);
        lock(&one, locked).unwrap();
        one.write(locked, 0, b"content").unwrap();
        bury(&behind, &one, &two);
        lock(&two, 0).unwrap();
        heal(&behind);
        one.beat().unwrap();
        assert_eq!(one.read(locked, 0, 7), Err(FsError::io("")));
        assert_eq!(lock(&one, locked), Err(FsError::io("")));
        assert_eq!(one.read(free, 0, 7).unwrap(), b"content");
        two.vfs.flock(&two.never, (ino, 0), 7, None, false).unwrap();

        // A new lock is held, whichever lanes have not noticed yet.
        let fresh = one.open(ino).unwrap().fh;
        lock(&one, fresh).unwrap();
        std::thread::scope(|scope| {
            for thread in 0..8 {
                let one = &one;
                scope.spawn(move || {
                    for turn in 0..20 {
                        one.mkdir(ROOT, &format!("d{death}-{thread}-{turn}")).unwrap();
                    }
                });
            }
        });
        assert_eq!(one.read(fresh, 0, 7).unwrap(), b"content");
        assert_eq!(lock(&two, 0), Err(FsError::Again));
        assert_eq!(one.vfs.meta().env().fences(), death);
        let stored = one.vfs.flush(locked, 0);
        assert_eq!(stored, Err(FsError::io("")), "not what was written under the lost lock");
        for (fh, owner) in [(locked, Some(7)), (free, None), (fresh, Some(7))] {
            // All who have the file open are told.
            let _ = one.vfs.flush(fh, 0);
            let _ = one.vfs.release(fh, owner);
        }
    }
    one.vfs.close(None).unwrap();
    two.vfs.close(None).unwrap();
    check::assert_sound(&behind.volume, &behind.volume.url, one.vfs.data().layout(), "locks lost");
}

/// Deletes blocks through a client's data path.
pub(crate) struct Sink<'a>(pub(crate) &'a Client);

impl sluice_meta::BlockSink for Sink<'_> {
    fn delete_slices(&self, slices: &[(u64, u32)]) -> Vec<Result<(), FsError>> {
        let deleted = self.0.vfs.data().delete_slices(slices);
        deleted.into_iter().map(|deleted| deleted.map_err(FsError::io)).collect()
    }
}

/// Does something whose commit happens while its client is fenced before the answer comes.
fn lose_and_bury(
    behind: &Behind,
    two: &Client,
    happened: impl FnMut() -> bool,
    work: impl FnOnce() -> Result<(), FsError> + Send,
) {
    behind.proxy.set(Behaviour { answer_delay: Duration::from_mins(1), ..Behaviour::default() });
    std::thread::scope(|scope| {
        let working = scope.spawn(work);
        sluice_faults::eventually("the commit has happened", happened);
        // Its answer is on the way still, and ends there. In a partition it might not even arrive
        // there.
        behind.proxy.set(Behaviour { drop_answers: true, ..Behaviour::default() });
        sluice_faults::eventually("its answer is lost", || behind.proxy.swallowed() > 0);
        behind.proxy.set(Behaviour { drop_answers: true, ..DEAD });
        behind.volume.outlive(two).unwrap();
        heal(behind);
        // Nobody knows any more; to say that it exists already would be a lie.
        match working.join().unwrap() {
            Ok(()) => {}
            Err(error) => assert_eq!(error, FsError::io(""), "{error}"),
        }
    });
}

/// A client that waits long for its answers, and one that nothing stands before.
fn with_long_timeouts(behind: &Behind) -> (Client, Client) {
    let url = behind.url.replace("read-timeout=200ms", "read-timeout=2m");
    (behind.volume.mount_with(&url, &Mount::default()), behind.volume.mount())
}

#[test]
fn a_commit_whose_answer_was_lost_before_its_client_was_taken_for_dead_is_not_repeated() {
    if no_redis() {
        return;
    }
    let behind = behind();
    let (one, two) = with_long_timeouts(&behind);
    // Numbers are fetched beforehand, so that the only commit is that of the directory.
    one.mkdir(ROOT, "before").unwrap();
    let engine = engine(&behind.volume.url);
    let there = || Records::load(engine.as_ref()).entries.contains_key(&(ROOT, b"d".to_vec()));
    lose_and_bury(&behind, &two, there, || one.mkdir(ROOT, "d").map(drop));
    one.mkdir(ROOT, "after").unwrap();
    one.vfs.close(None).unwrap();
    check::assert_sound(&behind.volume, &behind.volume.url, one.vfs.data().layout(), "lost and fenced");
}

#[test]
fn a_write_whose_answer_was_lost_before_its_client_was_taken_for_dead_is_not_repeated() {
    if no_redis() {
        return;
    }
    let behind = behind();
    let (one, two) = with_long_timeouts(&behind);
    let (ino, opened) = one.create(ROOT, "f").unwrap();
    let write = |pos: u64| {
        one.write(opened.fh, pos, b"content")?;
        one.vfs.fsync(&one.never, opened.fh)
    };
    // So that there are numbers for the next slice.
    write(0).unwrap();
    let engine = engine(&behind.volume.url);
    let chunk = [Read::Get(Key::Chunk(ino, 0))];
    let records = || match engine.read(&chunk).unwrap().pop() {
        Some(Found::Row(Some(Row::Chunk(_, _, records)))) => records.len(),
        _ => 0,
    };
    lose_and_bury(&behind, &two, || records() > 1, || write(4096));
    assert_eq!(records(), 2);
    // What may be lost was said, and is said once more.
    let _ = one.close(opened.fh);
    assert_eq!(&two.get(ino).unwrap()[4096..], b"content");
    one.vfs.close(None).unwrap();
    check::assert_sound(&behind.volume, &behind.volume.url, one.vfs.data().layout(), "lost and fenced");
}
