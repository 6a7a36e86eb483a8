//! What etcd refuses: large transactions, more than its quota, versions that were given up,
//! strangers.

use std::{
    sync::atomic::{AtomicBool, Ordering},
    time::{Duration, Instant},
};

use sluice_meta::{
    engine::{Commit, Engine, EngineError, Expect, Found, Hold, List, Read, Write},
    schema::{Entry, Key, Notice, Row},
};
use sluice_meta_kv::EtcdEngine;
use sluice_testkit::server::{Behaviour, Etcd, EtcdOptions, Proxy};
use sluice_types::{FileType, Ino, Name, Slice};

use super::server::{self, commit, compact, dir, get, step};

fn reason(outcome: Result<(), EngineError>) -> String {
    match outcome {
        Err(EngineError::Refused { reason, .. }) => reason,
        other => panic!("{other:?}"),
    }
}

/// What does not fit into one transaction is refused as a whole; what a server was told to take
/// goes through.
#[test]
fn a_commit_is_one_transaction_or_nothing() {
    let server = server::own(1, &["--max-txn-ops=512"]);
    let rows = |from: u64| (from..from + 400).map(|ino| Write::Insert(dir(ino))).collect::<Vec<_>>();
    let usual = server::open(&server.url("v"));
    let refused = reason(commit(&usual, rows(10)));
    assert!(refused.contains("--max-txn-ops") && refused.contains("400"), "{refused}");
    assert_eq!(get(&usual, Key::Node(Ino(10))), Ok(None));
    let larger = server::open(&format!("{}?max-txn-ops=512", server.url("v")));
    commit(&larger, rows(10)).expect("fits");
    assert_eq!(get(&usual, Key::Node(Ino(409))), Ok(Some(dir(409))));
    // A server that takes less than the URL says.
    let wrong = server::open(&format!("{}?max-txn-ops=4096", server.url("v")));
    let many = (1000..2000).map(|ino| Write::Insert(dir(ino))).collect();
    let refused = reason(commit(&wrong, many));
    assert!(refused.contains("too many operations") && refused.contains("--max-txn-ops"), "{refused}");
    assert_eq!(get(&usual, Key::Node(Ino(1000))), Ok(None));
}

/// Slices with one reference have no record: that all of a chunk's have none is one comparison. One
/// that has a record, and one that gets a record meanwhile, is noticed.
#[test]
fn what_is_absent_is_compared_as_a_range() {
    let engine = server::open(&server::fresh_url());
    let refer = |ids: std::ops::Range<u64>, by| ids.map(|id| Write::Refer(id, 4096, by)).collect::<Vec<_>>();
    let refs = |id| match get(&engine, Key::SliceRef(id, 4096)).expect("read") {
        Some(Row::SliceRef(_, _, refs)) => refs,
        _ => 1,
    };
    commit(&engine, vec![Write::Insert(Row::SliceRef(500, 4096, 7))]).expect("up");
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..5 {
                    while let Err(error) = commit(&engine, refer(0..3, 1)) {
                        assert!(matches!(error, EngineError::Conflict(_)), "{error}");
                    }
                }
            });
        }
        commit(&engine, refer(10..1000, 1)).expect("it fits");
    });
    assert_eq!([0, 2, 3, 10, 500, 999, 1000].map(refs), [21, 21, 1, 2, 8, 2, 1]);
    // Entries of one directory are neighbours, too; that one of them exists is noticed.
    let entries = |from: u32| {
        let entry = |n| {
            Row::Entry(
                Ino(1),
                Name::stored(format!("n{n}").as_bytes()),
                Entry { ino: Ino(9), kind: FileType::File },
            )
        };
        (from..from + 600).map(move |n| Write::Insert(entry(n))).collect::<Vec<_>>()
    };
    commit(&engine, entries(0)).expect("it fits");
    let outcome = commit(&engine, entries(599));
    assert!(matches!(&outcome, Err(EngineError::Conflict(keys)) if keys.len() == 1), "{outcome:?}");
}

/// Neither what is emptied nor what is written without a read is limited by the number of
/// comparisons.
#[test]
fn chunks_of_a_large_file_go_and_come_at_once() {
    let engine = server::open(&server::fresh_url());
    let slice = Slice { pos: 0, id: 7, size: 8, off: 0, len: 8 };
    let chunks = |from: u32, to: u32| {
        (from..to).map(|index| Write::Put(Row::Chunk(Ino(5), index, vec![slice]))).collect::<Vec<_>>()
    };
    for from in (0..6000).step_by(2000) {
        commit(&engine, chunks(from, from + 2000)).expect("nothing is compared");
    }
    let all = List::Chunks(Ino(5), 0, u32::MAX);
    let count = || match engine.read(&[Read::All(all)]).expect("read").pop() {
        Some(Found::Rows(rows)) => rows.len(),
        other => panic!("{other:?}"),
    };
    assert_eq!(count(), 6000);
    let mut writes = vec![Write::Clear(List::Chunks(Ino(5), 10, u32::MAX))];
    writes.extend([5, 10, 500].map(|index| Write::Append(Ino(5), index, vec![slice])));
    commit(&engine, writes).expect("one range and what is written in it");
    assert_eq!(count(), 12);
    for (index, length) in [(5, 2), (10, 1), (11, 0), (500, 1)] {
        let found = get(&engine, Key::Chunk(Ino(5), index)).expect("read");
        let slices = if let Some(Row::Chunk(_, _, slices)) = found { slices.len() } else { 0 };
        assert_eq!(slices, length, "{index}");
    }
}

/// Chunks of one file and slices are compared as ranges where they are too many: a server that was
/// told nothing takes the truncation of a file of 400 GiB that shares its slices with clones. It
/// takes no more than 42 times 43 times 43 writes, which is more than one request may hold.
#[test]
fn a_large_truncation_fits_into_a_transaction_of_the_usual_size() {
    const CHUNKS: u32 = 6000;
    let server = server::own(1, &[]);
    let engine = server::open(&server.url("v"));
    let slice = |id| Slice { pos: 0, id, size: 8, off: 0, len: 8 };
    let chunk = |index: u32| Row::Chunk(Ino(5), index, vec![slice(100 + u64::from(index))]);
    let chunks = |count| (0..count).map(|index| Write::Put(chunk(index))).collect::<Vec<_>>();
    let refused = reason(commit(&engine, chunks(80_000)));
    assert!(refused.contains("80000") && refused.contains("--max-txn-ops"), "{refused}");
    let refused = reason(commit(&engine, chunks(60_000)));
    assert!(refused.contains("larger") && refused.contains("--max-request-bytes"), "{refused}");
    commit(&engine, chunks(CHUNKS + 1)).expect("nothing is compared");
    commit(&engine, vec![Write::Put(dir(5))]).expect("up");
    // Every second slice is shared.
    let stored = |index: u32| 100 + u64::from(index);
    let refs = |index| (index % 2 == 0).then(|| Row::SliceRef(stored(index), 8, 2));
    commit(&engine, (0..CHUNKS).filter_map(refs).map(Write::Put).collect()).expect("nothing is compared");
    let mut expects = vec![Expect::Row(dir(5), Hold::Lock)];
    expects.extend((0..CHUNKS).map(|index| Expect::Row(chunk(index), Hold::Lock)));
    expects.extend((0..CHUNKS).map(|index| match refs(index) {
        Some(row) => Expect::Row(row, Hold::Lock),
        None => Expect::Absent(Key::SliceRef(stored(index), 8)),
    }));
    let mut writes: Vec<Write> = (0..CHUNKS).map(|index| Write::Delete(Key::Chunk(Ino(5), index))).collect();
    writes.extend((0..CHUNKS).map(|index| Write::Refer(stored(index), 8, -1)));
    let truncation = Commit { expects, writes, step: None };
    // One reference more, which came after the expectations.
    commit(&engine, vec![Write::Refer(stored(8), 8, 1)]).expect("up");
    let outcome = engine.commit(&truncation);
    let shared = Key::SliceRef(stored(8), 8);
    assert!(matches!(&outcome, Err(EngineError::Conflict(keys)) if *keys == [shared]), "{outcome:?}");
    commit(&engine, vec![Write::Refer(stored(8), 8, -1)]).expect("up");
    engine.commit(&truncation).expect("it fits");
    assert_eq!(get(&engine, Key::Chunk(Ino(5), CHUNKS - 1)), Ok(None));
    assert_eq!(get(&engine, Key::Chunk(Ino(5), CHUNKS)), Ok(Some(chunk(CHUNKS))));
    assert_eq!(get(&engine, Key::SliceRef(stored(5998), 8)), Ok(None), "one reference is left");
    let dead = Key::SliceRef(stored(5999), 8);
    assert_eq!(get(&engine, dead.clone()), Ok(Some(Row::SliceRef(stored(5999), 8, 0))));
    let again = engine.commit(&truncation);
    assert!(matches!(&again, Err(EngineError::Conflict(keys)) if keys.len() >= 12_000), "{again:?}");
}

/// Clones of the same file that meet each other count every reference, however many there are.
#[test]
fn references_of_many_slices_that_meet_are_all_counted() {
    const SLICES: u64 = 300;
    let server = server::own(1, &[]);
    let engine = server::open(&server.url("v"));
    let refer = |by| (1..=SLICES).map(|id| Write::Refer(id, 8, by)).collect::<Vec<_>>();
    commit(&engine, refer(1)).expect("they are absent");
    std::thread::scope(|scope| {
        for by in [1, 1, 1, -1] {
            let (engine, refer) = (&engine, &refer);
            scope.spawn(move || {
                for _ in 0..5 {
                    while let Err(error) = commit(engine, refer(by)) {
                        assert!(matches!(error, EngineError::Conflict(_)), "{error}");
                    }
                }
            });
        }
    });
    for id in [1, 2, SLICES / 2, SLICES] {
        let expected = Row::SliceRef(id, 8, 2 + 5 + 5 + 5 - 5);
        assert_eq!(get(&engine, Key::SliceRef(id, 8)), Ok(Some(expected)));
    }
}

/// Of two changes of the same many chunks that meet, one sees what the other made.
#[test]
fn changes_of_many_chunks_that_meet_lose_nothing() {
    const CHUNKS: u32 = 200;
    let server = server::own(1, &[]);
    let engine = server::open(&server.url("v"));
    commit(&engine, vec![Write::Put(dir(5))]).expect("up");
    let read = || {
        let all = List::Chunks(Ino(5), 0, CHUNKS);
        match engine.read(&[Read::All(all)]).expect("up").pop() {
            Some(Found::Rows(rows)) => rows,
            other => panic!("{other:?}"),
        }
    };
    let chunk = |index, slices| Row::Chunk(Ino(5), index, slices);
    let slice = |id| Slice { pos: 0, id, size: 8, off: 0, len: 8 };
    let first = (0..CHUNKS).map(|index| Write::Put(chunk(index, vec![slice(0)])));
    commit(&engine, first.collect()).expect("up");
    std::thread::scope(|scope| {
        for id in 1..4 {
            let (engine, read, chunk, slice) = (&engine, &read, &chunk, &slice);
            scope.spawn(move || {
                for _ in 0..4 {
                    let changed = || {
                        let seen = read();
                        let longer = seen.iter().map(|row| match row {
                            Row::Chunk(_, index, slices) => {
                                Write::Put(chunk(*index, [&slices[..], &[slice(id)]].concat()))
                            }
                            other => panic!("{other:?}"),
                        });
                        let writes = longer.collect();
                        let mut expects = vec![Expect::Row(dir(5), Hold::Lock)];
                        expects.extend(seen.into_iter().map(|row| Expect::Row(row, Hold::Lock)));
                        engine.commit(&Commit { expects, writes, step: None })
                    };
                    while let Err(error) = changed() {
                        assert!(matches!(error, EngineError::Conflict(_)), "{error}");
                    }
                }
            });
        }
    });
    for row in read() {
        assert!(matches!(&row, Row::Chunk(_, _, slices) if slices.len() == 13), "{row:?}");
    }
}

/// A full database refuses what is written, says what to do, and goes on once that was done.
#[test]
fn a_full_database_says_what_to_do() {
    let server = server::own(1, &["--quota-backend-bytes=2000000"]);
    let engine = server::open(&server.url("v"));
    commit(&engine, vec![Write::Insert(Row::Writer(4, 0, 0))]).expect("room");
    let large = |n: u8| Write::Put(Row::Xattr(Ino(5), Name::stored(b"user.x"), vec![n; 60_000].into()));
    let outcome = (0..100).map(|n| commit(&engine, vec![large(n)])).find(Result::is_err);
    let refused = reason(outcome.expect("it is full"));
    for what in ["database space exceeded", "--quota-backend-bytes", "compact", "defrag", "alarm disarm"] {
        assert!(refused.contains(what), "{what}: {refused}");
    }
    reason(engine.commit(&step(0, 2)));
    assert_eq!(get(&engine, Key::Writer(4, 0)), Ok(Some(Row::Writer(4, 0, 0))), "it did not happen");
    compact(&server);
    server.ask(0, "maintenance/defragment", "{}").expect("it answers");
    let alarm = server.ask(0, "maintenance/alarm", r#"{"action":"GET"}"#).expect("it answers");
    let member = alarm["alarms"][0]["memberID"].as_str().expect("an alarm");
    let disarm = format!(r#"{{"action":"DEACTIVATE","memberID":"{member}","alarm":"NOSPACE"}}"#);
    server.ask(0, "maintenance/alarm", &disarm).expect("it answers");
    engine.commit(&step(0, 2)).expect("there is room again");
    assert_eq!(get(&engine, Key::Writer(4, 0)), Ok(Some(Row::Writer(4, 0, 1))));
}

/// A read that takes several requests is right or begins anew when the versions it began with are
/// given up meanwhile.
#[test]
fn versions_that_are_given_up_are_read_anew() {
    let server = server::own(1, &[]);
    let engine = server::open(&server.url("v"));
    let entry = |n: u32| {
        let name = Name::stored(format!("n{n:05}").as_bytes());
        Write::Put(Row::Entry(Ino(1), name, Entry { ino: Ino(9), kind: FileType::File }))
    };
    for from in (0..9000).step_by(1000) {
        commit(&engine, (from..from + 1000).map(entry).collect()).expect("room");
    }
    let ended = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !ended.load(Ordering::Relaxed) {
                for _ in 0..20 {
                    commit(&engine, vec![Write::Put(dir(1))]).expect("up");
                }
                compact(&server);
            }
        });
        let (mut right, mut wrong) = (0, None);
        let until = Instant::now() + Duration::from_mins(1);
        while right < 20 && wrong.is_none() && Instant::now() < until {
            match engine.read(&[Read::Names { dir: Ino(1), limit: 20_000 }]).as_deref() {
                Ok([Found::Names(names)]) if names.len() == 9000 => right += 1,
                Err(EngineError::Unavailable { reason, .. }) if reason.contains("compacted") => {}
                other => wrong = Some(format!("{other:?}")),
            }
        }
        ended.store(true, Ordering::Relaxed);
        assert_eq!((right, wrong), (20, None));
    });
}

/// Who was cut off hears what was committed meanwhile, or that something was if it was given up.
#[test]
fn a_listener_that_was_cut_off_misses_nothing() {
    let server = server::own(1, &[]);
    let engine = server::open(&server.url("v"));
    commit(&engine, vec![Write::Insert(Row::Writer(4, 0, 0))]).expect("up");
    let proxy = Proxy::start(server.addrs()[0]).expect("a proxy");
    let other = server::open(&format!("etcd://{}/v", proxy.addr()));
    let mut listener = other.watch().expect("up");
    let mut hear = |wanted: fn(&Notice) -> bool| {
        let until = Instant::now() + Duration::from_mins(1);
        while Instant::now() < until {
            if listener.next(Duration::from_secs(1)).expect("it goes on").iter().any(wanted) {
                return true;
            }
        }
        false
    };
    engine.commit(&step(0, 2)).expect("up");
    assert!(hear(|notice| (notice.writer, notice.lane, notice.n) == (4, 0, 1)));
    for (n, given_up) in [(1, false), (2, true)] {
        proxy.set(Behaviour { refuse: true, ..Behaviour::default() });
        proxy.reset();
        engine.commit(&step(n, 10 + n)).expect("up");
        if given_up {
            commit(&engine, vec![Write::Put(dir(1))]).expect("up");
            compact(&server);
        }
        proxy.heal();
        assert!(if given_up {
            hear(|notice| *notice == Notice::anything())
        } else {
            hear(|notice| notice.n == 2)
        });
    }
    engine.commit(&step(3, 20)).expect("up");
    assert!(hear(|notice| notice.n == 4));
}

#[test]
fn users_show_who_they_are() {
    let server = server::own(1, &[]);
    for (what, question) in [
        ("auth/user/add", r#"{"name":"root","password":"r@t"}"#),
        ("auth/role/add", r#"{"name":"root"}"#),
        ("auth/user/grant", r#"{"user":"root","role":"root"}"#),
        ("auth/enable", "{}"),
    ] {
        server.ask(0, what, question).expect(what);
    }
    let url = |user: &str| server.url("v").replace("etcd://", &format!("etcd://{user}"));
    let engine = server::open(&url("root:r%40t@"));
    commit(&engine, vec![Write::Put(dir(1))]).expect("known");
    let mut listener = engine.watch().expect("known");
    commit(&engine, vec![Write::Insert(Row::Writer(4, 0, 0))]).expect("known");
    engine.commit(&step(0, 2)).expect("known");
    assert!(!listener.next(Duration::from_secs(30)).expect("it listens").is_empty());
    for (user, words) in [("root:wrong@", "authentication failed"), ("", "user name is empty")] {
        let engine = EtcdEngine::open(&url(user)).expect("a valid URL");
        let refused = reason(engine.prepare());
        assert!(refused.contains(words) && !refused.contains("wrong"), "{refused}");
    }
}

#[test]
fn connections_are_encrypted() {
    let server = Etcd::start(&EtcdOptions { tls: true, ..EtcdOptions::default() }).expect("etcd starts");
    let engine = server::open(&server.url("v"));
    commit(&engine, vec![Write::Put(dir(1))]).expect("trusted");
    assert_eq!(get(&engine, Key::Node(Ino(1))), Ok(Some(dir(1))));
    let plain = server.url("v").split('?').next().expect("a URL").to_owned();
    let outcome = EtcdEngine::open(&plain).expect("a valid URL").prepare();
    assert!(matches!(outcome, Err(EngineError::Unavailable { .. })), "{outcome:?}");
}
