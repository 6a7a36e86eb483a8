//! The change log of a volume: each operation writes its lines exactly once. Also tests how the log
//! is trimmed.

use std::{sync::Arc, thread};

use bytes::Bytes;
use sluice_meta::{
    Interrupt, Meta,
    engine::{Engine, LogLine, Write as Change},
    ops::{
        link::Link,
        rename::{Rename, RenameMode},
        setattr::{Changes, SetAttr},
        truncate::Truncate,
        unlink::Unlink,
        write::Write,
        xattr::{SetXattr, XattrMode},
    },
    schema::VolumeFormat,
};
use sluice_types::{Caller, FileType, Ino, Name, Slice};

use super::{
    Factory, SharedStore, at,
    clients::{NOW, create, options, seeds},
};
use crate::wrap::{Chances, Faulty};

const CHANCES: Chances =
    Chances { read: 5, unavailable: 20, conflict: 50, lost_applied: 50, lost: 50, late: 50 };

/// A volume with a change log, and what its operations said since it was opened; none where the
/// engine keeps none.
fn logged(store: &SharedStore, format: VolumeFormat) -> (Arc<Meta>, Arc<dyn Engine>) {
    let meta = store.format_as(VolumeFormat { change_log: true, ..format });
    (meta, store.open())
}

/// What the lines say, without times and who made them.
fn said(engine: &dyn Engine) -> Vec<String> {
    let Some(log) = engine.change_log() else { return Vec::new() };
    let lines = log.lines(0, 1000).expect("lines");
    let text = |text: &Bytes| String::from_utf8(text.to_vec()).expect("text");
    let said = |line: &LogLine| {
        let said = text(&line.text).split('|').nth(1).expect("three parts").to_owned();
        // The rest are times.
        match said.match_indices(',').nth(6) {
            Some((at, _)) if said.starts_with("SETATTR(") => format!("{},…)", &said[..at]),
            _ => said,
        }
    };
    lines.iter().map(said).collect()
}

/// Each operation says what it did.
pub fn operations_say_what_they_did(factory: &Factory<'_>) {
    let store = factory();
    let (meta, engine) = logged(&store, VolumeFormat { trash_days: 1, ..VolumeFormat::default() });
    let never = Interrupt::never();
    let caller = Caller::user(7, 8);
    let run = |done: Result<(), sluice_types::FsError>| done.expect("done");
    run(meta.run(create(1, "a,b", 100, FileType::File), &never).map(drop));
    let slice = Slice { pos: 5, id: 40, size: 10, off: 0, len: 10 };
    run(meta.run(Write { ino: Ino(100), index: 0, slices: vec![slice], mtime: NOW }, &never).map(drop));
    let truncate =
        Truncate { ino: Ino(100), length: 3, opened: true, kill_suid: false, caller: Caller::client() };
    run(meta.run(truncate, &never).map(drop));
    run(meta.run(Link { ino: Ino(100), at: at(1, "c"), caller: Caller::client() }, &never).map(drop));
    let changes = Changes { mode: Some(0o600), uid: Some(7), ..Changes::default() };
    run(meta.run(SetAttr { ino: Ino(100), changes, caller: Caller::client() }, &never).map(drop));
    let (name, value) = (Name::new(b"user.x").expect("valid"), Bytes::from_static(b"\0v"));
    let xattr = SetXattr { ino: Ino(100), name, value, mode: XattrMode::Create, caller: caller.clone() };
    run(meta.run(xattr, &never));
    let rename =
        Rename { from: at(1, "c"), to: at(1, "d"), mode: RenameMode::NoReplace, caller: Caller::client() };
    run(meta.run(rename, &never).map(drop));
    run(meta
        .run(Unlink { at: at(1, "d"), only: None, skip_trash: true, caller: Caller::client() }, &never)
        .map(drop));
    run(meta
        .run(Unlink { at: at(1, "a,b"), only: None, skip_trash: false, caller: Caller::client() }, &never)
        .map(drop));
    // One that fails says nothing.
    meta.run(Unlink { at: at(1, "d"), only: None, skip_trash: false, caller: Caller::client() }, &never)
        .expect_err("it is gone");
    meta.close().expect("close");
    if engine.change_log().is_none() {
        return;
    }
    let hour = Ino::TRASH.0 + 1;
    let said = said(engine.as_ref());
    assert_eq!(said[0], "INCR_COUNTER(nextSession,1)");
    assert!(said[1].starts_with("NEWSESSION(1,"), "{}", said[1]);
    let wanted = [
        "CREATE(1,a%2Cb,0,0,1,493,0,,linux,true):100".into(),
        "WRITE(100,0,5,40,10,1700000000,0):0".into(),
        "TRUNCATE(100,15,3,1)".into(),
        "LINK(100,1,c,true):2".into(),
        "SETATTR(100,3,0,7,0,384,0,…)".into(),
        "SETXATTR(100,user.x,%00v,1)".into(),
        "MOVE(1,c,1,d,1,0,0):100".into(),
        "UNLINK(1,d,0,false,true):100".into(),
        format!("CREATE({},2023-11-14-22,0,0,2,365,0,,linux,false):{hour}", Ino::TRASH),
        format!("UNLINK(1,a%2Cb,{hour},false,true):100"),
        "CLEANSESSION(1)".into(),
    ];
    assert_eq!(said[2..], wanted);
}

/// What is done once is said once, whatever becomes of the answers.
pub fn lost_answers_make_no_line_twice(factory: &Factory<'_>) {
    for seed in seeds(3) {
        let store = factory();
        logged(&store, VolumeFormat::default()).0.close().expect("close");
        let faulty = Faulty::new(store.open(), seed, Chances::default());
        let meta = Meta::open(Arc::new(faulty.clone()), options()).expect("open");
        faulty.set(CHANCES);
        let mut wanted: Vec<String> = thread::scope(|scope| {
            let threads: Vec<_> = (0..4)
                .map(|thread| {
                    let meta = &meta;
                    scope.spawn(move || {
                        let name = |at: u64| format!("f{thread}-{at}");
                        let make = |at| {
                            let made = create(1, &name(at), 1000 * (thread + 1) + at, FileType::File);
                            meta.run(made, &Interrupt::never()).expect("create");
                            name(at)
                        };
                        (0..60).map(make).collect::<Vec<_>>()
                    })
                })
                .collect();
            threads.into_iter().flat_map(|thread| thread.join().expect("no panic")).collect()
        });
        faulty.set(Chances::default());
        let engine = store.open();
        if engine.change_log().is_none() {
            return;
        }
        let name = |line: &str| line.strip_prefix("CREATE(1,")?.split(',').next().map(str::to_owned);
        let mut found: Vec<String> = said(engine.as_ref()).iter().filter_map(|line| name(line)).collect();
        found.sort_unstable();
        wanted.sort_unstable();
        assert_eq!(found, wanted, "seed {seed}, {:?}", faulty.injected());
    }
}

/// A volume without a log gets no lines.
pub fn without_a_log_nothing_is_said(factory: &Factory<'_>) {
    let store = factory();
    let meta = store.format(0);
    meta.run(create(1, "a", 100, FileType::File), &Interrupt::never()).expect("create");
    meta.close().expect("close");
    assert_eq!(said(store.open().as_ref()), [""; 0]);
}

/// Old lines go, and those that are too many.
pub fn old_lines_are_trimmed(factory: &Factory<'_>) {
    for (age, most, left) in [(60, 0, 13), (0, 9, 9), (60, 9, 9), (60, 20, 13), (0, 0, 2513)] {
        let store = factory();
        let settings =
            VolumeFormat { change_log_max_age: age, change_log_max_lines: most, ..VolumeFormat::default() };
        let (meta, engine) = logged(&store, settings);
        let Some(log) = engine.change_log() else { return };
        log.trim(log.last().expect("last")).expect("trim");
        let line = |time: i64, at: usize| Change::Log(format!("{time}.000000000|X({at})|(1,{at})"));
        for first in (0..2500).step_by(500) {
            let lines = (first..first + 500).map(|at| line(NOW.sec - 100, at)).collect();
            commit(engine.as_ref(), lines);
        }
        commit(engine.as_ref(), (0..12).map(|at| line(NOW.sec, at)).collect());
        meta.trim_log(&Interrupt::never()).expect("trim");
        let wanted = if age == 0 && most == 0 { left - 1 } else { left };
        assert_eq!(log.count().expect("count"), wanted as u64, "kept {age} s, {most} lines");
        // Not twice in a short time.
        commit(engine.as_ref(), (0..20).map(|at| line(NOW.sec - 100, at)).collect());
        meta.trim_log(&Interrupt::never()).expect("trim");
        assert_eq!(log.count().expect("count"), wanted as u64 + 20);
        meta.close().expect("close");
    }
}

fn commit(engine: &dyn Engine, writes: Vec<Change>) {
    engine.commit(&sluice_meta::engine::Commit { writes, ..Default::default() }).expect("commit");
}
