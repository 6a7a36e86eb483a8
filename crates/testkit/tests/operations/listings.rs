//! Whole trees over an engine whose listings show names twice, as Redis may while it resizes a
//! table.

use std::sync::Arc;

use sluice_meta::{
    Interrupt,
    engine::{ChangeLog, Commit, Cursor, Engine, EngineError, Found, Limits, Page, Read, Scan, Watch},
    mem::MemEngine,
    tree::CloneTree,
};
use sluice_testkit::operations::{SharedStore, at, create, state::State};
use sluice_types::{Caller, FileType, Ino};

/// An engine that shows each directory twice, in two pages.
struct Twice(MemEngine);

impl Engine for Twice {
    fn name(&self) -> &'static str {
        self.0.name()
    }

    fn limits(&self) -> Limits {
        self.0.limits()
    }

    fn prepare(&self) -> Result<(), EngineError> {
        self.0.prepare()
    }

    fn commit(&self, commit: &Commit) -> Result<(), EngineError> {
        self.0.commit(commit)
    }

    fn read(&self, reads: &[Read]) -> Result<Vec<Found>, EngineError> {
        self.0.read(reads)
    }

    fn scan(&self, scan: Scan, from: Option<&Cursor>, limit: usize) -> Result<Page, EngineError> {
        let page = self.0.scan(scan, None, limit)?;
        assert!(page.next.is_none(), "the directories of this test fit a page");
        let first = matches!(scan, Scan::Entries { .. }) && from.is_none();
        Ok(Page { next: first.then(|| Cursor(b"once more".to_vec())), ..page })
    }

    fn sync(&self) -> Result<(), EngineError> {
        self.0.sync()
    }

    fn harden(&self) -> Result<(), EngineError> {
        self.0.harden()
    }

    fn remove_volume(&self) -> Result<(), EngineError> {
        self.0.remove_volume()
    }

    fn watch(&self) -> Result<Box<dyn Watch>, EngineError> {
        self.0.watch()
    }

    fn change_log(&self) -> Option<&dyn ChangeLog> {
        self.0.change_log()
    }
}

#[test]
fn a_name_shown_twice_is_cloned_and_removed_once() {
    let engine = MemEngine::new();
    let shared = engine.clone();
    let store = SharedStore::new(move || Arc::new(Twice(shared.clone())));
    let meta = store.format(0);
    let never = Interrupt::never();
    let make = |dir, name: &str, ino, kind| meta.run(create(dir, name, ino, kind), &never).unwrap();
    make(1, "source", 100, FileType::Dir);
    make(100, "below", 110, FileType::Dir);
    for n in 0..50 {
        make(100, &format!("f{n}"), 200 + n, FileType::File);
        make(110, &format!("f{n}"), 300 + n, FileType::File);
    }
    let before = State::of(&engine);
    let (source, at_copy) = (Ino(100), at(1, "copy"));
    let clone = CloneTree { source, at: at_copy.clone(), preserve: true, umask: 0, caller: Caller::client() };
    meta.clone_tree(&clone, &never, &|_| {}).unwrap();
    let cloned = State::of(&engine);
    cloned.assert_tree("clone");
    assert_eq!(cloned.nodes().len(), before.nodes().len() + 102, "the copy has 2 directories and 100 files");
    meta.remove_tree(&at_copy, true, &Caller::client(), &never, &|_| {}).unwrap();
    State::of(&engine).assert_tree("rmr");
    assert_eq!(State::of(&engine).nodes().len(), before.nodes().len());
}
