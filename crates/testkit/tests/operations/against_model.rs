//! Random operations answer as the reference file system does, and leave the same tree.

use std::{collections::BTreeMap, sync::Arc};

use sluice_meta::{
    Interrupt, Meta,
    mem::MemEngine,
    ops::{
        link::Link,
        rename::{Rename, RenameMode},
        rmdir::Rmdir,
        unlink::Unlink,
    },
    schema::{Key, Row},
};
use sluice_testkit::model::{Inode, Model, Replace};
use sluice_types::{Caller, FileType, FsResult, Ino, Rng};

use crate::{at, create, volume};

/// One random operation on both; their answers.
fn step(rng: &mut Rng, meta: &Meta, model: &mut Model, ino: u64) -> (String, FsResult<()>, FsResult<()>) {
    let never = Interrupt::never();
    let caller = Caller::client();
    // Mostly directories that exist, sometimes a file or nothing.
    let dirs: Vec<u64> = model
        .inodes
        .iter()
        .filter(|(_, inode)| inode.kind == FileType::Dir || rng.below(20) == 0)
        .map(|(ino, _)| *ino)
        .chain([999_999])
        .collect();
    let mut dir = || dirs[rng.below(dirs.len() as u64) as usize];
    let (from, to) = (dir(), dir());
    let mut name = || format!("n{}", rng.below(4));
    let (old, new) = (name(), name());
    let kinds = [FileType::File, FileType::Dir, FileType::Dir, FileType::Symlink, FileType::Fifo];
    match rng.below(12) {
        0..5 => {
            let kind = kinds[rng.below(5) as usize];
            let answer = meta.run(create(from, &old, ino, kind), &never).map(drop);
            (format!("create {from}/{old} {kind:?} #{ino}"), answer, model.create((from, &old), ino, kind))
        }
        5 => {
            let all: Vec<u64> = model.inodes.keys().copied().collect();
            let node = all[rng.below(all.len() as u64) as usize];
            let answer = meta.run(Link { ino: Ino(node), at: at(to, &new), caller }, &never).map(drop);
            (format!("link #{node} {to}/{new}"), answer, model.link(node, (to, &new)))
        }
        6 => {
            let op = Unlink { at: at(from, &old), skip_trash: false, caller };
            (format!("unlink {from}/{old}"), meta.run(op, &never).map(drop), model.unlink((from, &old)))
        }
        7 => {
            let hint = (rng.below(2) == 0).then(|| model.lookup((from, &old)).ok().map(Ino)).flatten();
            let op = Rmdir { at: at(from, &old), hint, skip_trash: false, caller };
            (
                format!("rmdir {from}/{old} {hint:?}"),
                meta.run(op, &never).map(drop),
                model.rmdir((from, &old)),
            )
        }
        other => {
            let (mode, replace) = match other {
                8 | 9 => (RenameMode::Replace, Replace::Yes),
                10 => (RenameMode::NoReplace, Replace::No),
                _ => (RenameMode::Exchange, Replace::Exchange),
            };
            let op = Rename { from: at(from, &old), to: at(to, &new), mode, caller };
            let answer = meta.run(op, &never).map(drop);
            let wanted = model.rename((from, &old), (to, &new), replace);
            (format!("rename {from}/{old} {to}/{new} {mode:?}"), answer, wanted)
        }
    }
}

/// The tree that an engine holds.
fn stored(engine: &MemEngine) -> Model {
    let mut inodes: BTreeMap<u64, Inode> = BTreeMap::new();
    let records = engine.records();
    for row in records.values() {
        if let Row::Node(ino, attr) = row {
            inodes.insert(ino.0, Inode { kind: attr.kind, nlink: attr.nlink, entries: BTreeMap::new() });
        }
    }
    for row in records.values() {
        if let Row::Entry(dir, name, entry) = row {
            let name = String::from_utf8_lossy(name).into_owned();
            inodes.get_mut(&dir.0).expect("an entry in no directory").entries.insert(name, entry.ino.0);
        }
    }
    Model { inodes }
}

/// What the model does not know: parents point to a directory that has the node.
fn assert_parents(engine: &MemEngine, model: &Model, story: &str) {
    let records = engine.records();
    for (dir, inode) in &model.inodes {
        for child in inode.entries.values() {
            let Some(Row::Node(_, attr)) = records.get(&Key::Node(Ino(*child))) else {
                panic!("#{child} is missing: {story}");
            };
            if attr.parent == Ino::NONE {
                let names = inode.entries.values().filter(|other| *other == child).count() as i64;
                let link = records.get(&Key::Parents(Ino(*child), Ino(*dir)));
                assert_eq!(link, Some(&Row::Parents(Ino(*child), Ino(*dir), names)), "{story}");
            } else {
                assert_eq!(attr.parent, Ino(*dir), "parent of #{child}: {story}");
            }
        }
    }
}

#[test]
fn random_operations_do_what_the_model_does() {
    for seed in 0..60 {
        let engine = MemEngine::new();
        let meta = volume(Arc::new(engine.clone()));
        let (mut rng, mut model) = (Rng::seeded(seed), Model::default());
        let mut story = format!("seed {seed}\n");
        for at in 0..150 {
            let (line, answer, wanted) = step(&mut rng, &meta, &mut model, 100 + at);
            story.push_str(&format!("{line} -> {wanted:?}\n"));
            assert_eq!(answer, wanted, "{story}");
        }
        let tree = stored(&engine);
        assert!(tree == model, "stored {tree:#?}\nwanted {model:#?}\n{story}");
        assert_parents(&engine, &model, &story);
    }
}
