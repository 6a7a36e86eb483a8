//! Many operations, few commits, few wakes; failures leave no trace.

use std::{
    sync::{Arc, Barrier},
    thread,
    time::Duration,
};

use sluice_meta::{batch::Interrupt, engine::Hold, mem::MemEngine};
use sluice_testkit::wrap::{Counting, Delayed, Delays, Hooked};
use sluice_types::FsError;

use crate::fixture::{
    Append, Create, DIRS, Increment, appended, assert_consistent, batcher, log, node, store,
};

#[test]
fn one_operation_takes_one_read_and_one_commit() {
    let counting = Counting::new(Arc::new(store()));
    let batcher = batcher(Arc::new(counting.clone()));
    let create = |ino: u64| Create { dir: 1, name: format!("f{ino}"), ino };
    // Two questions one after the other are two trips; a change needs one commit.
    counting.assert_trips("create", 2, 1, || batcher.submit(create(100), &Interrupt::never()).unwrap());
    counting.assert_trips("increment", 1, 1, || {
        batcher.submit(Increment { ino: 1, hold: Hold::Lock }, &Interrupt::never()).unwrap()
    });
    counting.assert_trips("append", 0, 1, || batcher.submit(Append::new(9, 1), &Interrupt::never()).unwrap());
    let again = counting.assert_trips("a name that exists", 2, 0, || {
        batcher.submit(Create { ino: 101, ..create(100) }, &Interrupt::never())
    });
    assert_eq!(again, Err(FsError::Exists));
    let many = (200..400).map(create).collect();
    let answers =
        counting.assert_trips("200 creates", 2, 1, || batcher.submit_all(many, &Interrupt::never()));
    assert_eq!(answers, (200..400).map(Ok).collect::<Vec<_>>());
}

#[test]
fn a_hundred_threads_share_commits() {
    let engine = store();
    let slow = Delayed::new(
        Arc::new(engine.clone()),
        Delays { commit: Duration::from_millis(3), ..Delays::default() },
    );
    let counting = Counting::new(Arc::new(slow));
    let batcher = batcher(Arc::new(counting.clone()));
    let (threads, each) = (100, 20);
    let start = Arc::new(Barrier::new(threads as usize));
    let crowd: Vec<_> = (0..threads)
        .map(|thread| {
            let (batcher, start) = (batcher.clone(), start.clone());
            thread::spawn(move || {
                start.wait();
                for at in 0..each {
                    let ino = 1000 + thread * 100 + at;
                    let create = Create { dir: 1 + thread % DIRS, name: format!("f{ino}"), ino };
                    assert_eq!(batcher.submit(create, &Interrupt::never()), Ok(ino));
                }
            })
        })
        .collect();
    for thread in crowd {
        thread.join().unwrap();
    }
    assert_consistent(&engine, "a hundred threads");
    let (ops, stats, trips) = (threads * each, batcher.stats(), counting.trips());
    assert_eq!(stats.ops, ops);
    assert!(trips.commits * 5 < ops, "{} commits for {ops} operations", trips.commits);
    // One wake for each operation but those whose callers ran the batch at once; a few meet a batch
    // that took their operation before they came.
    assert!(stats.wakes <= ops + ops / 10, "{} wakes for {ops} operations", stats.wakes);
}

#[test]
fn a_caller_alone_is_never_woken() {
    let batcher = batcher(Arc::new(store()));
    for ino in 100..300 {
        batcher.submit(Create { dir: 1, name: format!("f{ino}"), ino }, &Interrupt::never()).unwrap();
    }
    let stats = batcher.stats();
    assert_eq!((stats.batches, stats.ops, stats.wakes), (200, 200, 0));
}

#[test]
fn what_fails_leaves_no_trace_and_fails_alone() {
    let engine = store();
    let batcher = batcher(Arc::new(engine.clone()));
    let mut ops = Vec::new();
    for ino in 100..150 {
        ops.push(Create { dir: 1, name: format!("f{}", ino / 2), ino });
        ops.push(Create { dir: 404, name: format!("f{ino}"), ino: ino + 1000 });
        ops.push(Create { dir: 2, name: "bad/name".into(), ino: ino + 2000 });
    }
    let answers = batcher.submit_all(ops, &Interrupt::never());
    for (at, answer) in answers.iter().enumerate() {
        let ino = 100 + at as u64 / 3;
        let wanted = match at % 3 {
            0 if ino.is_multiple_of(2) => Ok(ino),
            0 => Err(FsError::Exists),
            1 => Err(FsError::NotFound),
            _ => Err(FsError::Invalid),
        };
        assert_eq!(answer, &wanted, "operation {at}");
    }
    assert_eq!(log(&engine), (100..150).step_by(2).collect::<Vec<_>>());
    assert_consistent(&engine, "after failures");
}

#[test]
fn each_operation_sees_those_before_it() {
    let engine = store();
    let batcher = batcher(Arc::new(engine.clone()));
    let ops = (0..500).map(|_| Increment { ino: 3, hold: Hold::Lock }).collect();
    let answers = batcher.submit_all(ops, &Interrupt::never());
    assert_eq!(answers, (3..503).map(Ok).collect::<Vec<_>>());
    assert_eq!(node(&engine, 3).unwrap().nlink, 502);
}

#[test]
fn more_than_a_batch_takes_several() {
    let engine = store();
    let counting = Counting::new(Arc::new(Hooked::new(Arc::new(engine.clone())).limited(2, 10)));
    let batcher = batcher(Arc::new(counting.clone()));
    let ops = (1..=95).map(|id| Append::new(700, id)).collect();
    assert!(batcher.submit_all(ops, &Interrupt::never()).iter().all(Result::is_ok));
    assert_eq!(appended(&engine, 700), (1..=95).collect::<Vec<_>>());
    assert_eq!(counting.trips().commits, 10);
    assert!(batcher.submit_all(Vec::<Append>::new(), &Interrupt::never()).is_empty());
    let _: MemEngine = engine;
}

#[test]
fn an_operation_after_another_runs_only_if_that_succeeds() {
    let never = Interrupt::never();
    for (limit, commits) in [(1, 2), (10, 1)] {
        let engine = store();
        let counting = Counting::new(Arc::new(Hooked::new(Arc::new(engine.clone())).limited(2, limit)));
        let batcher = batcher(Arc::new(counting.clone()));
        let increment = |ino| Increment { ino, hold: Hold::Lock };
        assert_eq!(batcher.submit_then(increment(3), Append::new(3, 1), &never), Ok((3, Ok(()))));
        assert_eq!(counting.trips().commits, commits);
        let failed = batcher.submit_then(increment(404), Append::new(404, 2), &never);
        assert_eq!((failed, appended(&engine, 404)), (Err(FsError::NotFound), vec![]));
        assert_eq!(counting.trips().commits, commits, "nothing to commit");
        let second = batcher.submit_then(increment(3), increment(404), &never);
        assert_eq!(second, Ok((4, Err(FsError::NotFound))), "the first stays");
        assert_eq!((node(&engine, 3).unwrap().nlink, appended(&engine, 3)), (4, vec![1]));
    }
}
