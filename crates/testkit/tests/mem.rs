//! The in-memory engine keeps the contract, and promises no more.

use std::{sync::Arc, thread};

use parking_lot::Mutex;
use sluice_meta::{
    engine::{Commit, Engine, Found, List, Read, Write},
    mem::MemEngine,
    schema::Row,
};
use sluice_types::{Ino, Rng};

fn fresh() -> Arc<dyn Engine> {
    Arc::new(MemEngine::new())
}

sluice_testkit::conformance_tests!(fresh);

#[test]
fn anomalies_are_forbidden_or_shown_as_the_scripts_say() {
    sluice_testkit::anomaly::run_all(&fresh, true);
}

/// One that looks records up in a drawn order.
mod drawn {
    use super::*;

    pub(crate) fn fresh() -> Arc<dyn Engine> {
        Arc::new(engine())
    }

    pub(crate) fn engine() -> MemEngine {
        let rng = Mutex::new(Rng::seeded(7));
        MemEngine::drawn(move |bound| rng.lock().below(bound as u64) as usize)
    }

    sluice_testkit::conformance_tests!(fresh);
}

/// Two records that are always made and removed together, in one commit each: whoever lists them
/// may see one without the other, whichever it is.
#[test]
fn a_list_is_no_moment() {
    let engine = drawn::engine();
    let parents = [Row::Parents(Ino(2), Ino(3), 1), Row::Parents(Ino(2), Ino(4), 1)];
    let commit = |write: fn(&Row) -> Write| {
        let writes = parents.iter().map(write).collect();
        engine.commit(&Commit { writes, ..Commit::default() }).unwrap();
    };
    let mut seen = [false; 2];
    thread::scope(|scope| {
        let writer = scope.spawn(|| {
            for _ in 0..20_000 {
                commit(|row| Write::Put(row.clone()));
                commit(|row| Write::Delete(row.key()));
            }
        });
        while !writer.is_finished() && seen != [true; 2] {
            let found = engine.read(&[Read::All(List::Parents(Ino(2)))]).unwrap();
            let [Found::Rows(rows)] = &found[..] else { panic!("{found:?}") };
            if let [Row::Parents(_, dir, _)] = rows[..] {
                seen[usize::from(dir == Ino(4))] = true;
            }
        }
    });
    assert_eq!(seen, [true; 2], "one without the other");
}
