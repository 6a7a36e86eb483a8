//! Two clients on one store: what one removes the other does not fill.

use std::{
    sync::{Arc, Barrier},
    thread,
};

use sluice_meta::{
    Interrupt, Meta, Options,
    mem::MemEngine,
    ops::rmdir::Rmdir,
    schema::{Key, Row},
};
use sluice_types::{Caller, FileType, FsError, Ino};

use crate::{at, create, volume};

#[test]
fn create_against_rmdir_leaves_no_orphan() {
    const ROUNDS: u64 = 2000;
    let engine = MemEngine::new();
    let creator = volume(Arc::new(engine.clone()));
    let remover = Meta::open(Arc::new(engine.clone()), Options::default()).expect("open");
    let never = Interrupt::never();
    for round in 0..ROUNDS {
        creator.run(create(1, &format!("d{round}"), 10_000 + round, FileType::Dir), &never).expect("mkdir");
    }
    let start = Arc::new(Barrier::new(2));
    let creating = {
        let start = start.clone();
        thread::spawn(move || {
            let mut done = Vec::new();
            for round in 0..ROUNDS {
                start.wait();
                let op = create(10_000 + round, "f", 20_000 + round, FileType::File);
                match creator.run(op, &Interrupt::never()) {
                    Ok(_) => done.push(round),
                    Err(FsError::NotFound) => {}
                    Err(error) => panic!("round {round}: {error}"),
                }
            }
            done
        })
    };
    let mut removed = Vec::new();
    for round in 0..ROUNDS {
        start.wait();
        let hint = (round % 2 == 0).then_some(Ino(10_000 + round));
        let op = Rmdir { at: at(1, &format!("d{round}")), hint, skip_trash: false, caller: Caller::client() };
        match remover.run(op, &never) {
            Ok(_) => removed.push(round),
            Err(FsError::NotEmpty) => {}
            Err(error) => panic!("round {round}: {error}"),
        }
    }
    let created = creating.join().unwrap();
    assert_eq!(created.len() + removed.len(), ROUNDS as usize, "each round has one winner");
    let records = engine.records();
    for row in records.values() {
        if let Row::Entry(dir, _, entry) = row {
            assert!(records.contains_key(&Key::Node(*dir)), "an orphan in {dir}");
            assert!(records.contains_key(&Key::Node(entry.ino)), "an entry without a node");
        }
    }
    eprintln!("{} creates and {} rmdirs won", created.len(), removed.len());
}
