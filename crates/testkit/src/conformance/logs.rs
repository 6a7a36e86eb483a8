//! The change log: every line comes once, with its commit and after those before it.

use sluice_meta::{
    engine::{ChangeLog, Commit, Engine, Expect, Write},
    schema::{Counter, Key, Row},
};

use super::{
    Factory,
    sample::file_row,
    store::{Store, assert_conflict, node},
};

fn line(text: impl Into<String>) -> Write {
    Write::Log(text.into())
}

/// All texts, in the order of their numbers, which are shown to rise.
fn texts(log: &dyn ChangeLog) -> Vec<String> {
    let (mut at, mut texts) = (0, Vec::new());
    loop {
        let page = log.lines(at, 100).expect("lines");
        let Some(last) = page.last() else { return texts };
        let rises = page.is_sorted_by(|a, b| a.number < b.number) && page[0].number > at;
        assert!(rises, "numbers that do not rise behind {at}: {page:?}");
        at = last.number;
        texts.extend(page.into_iter().map(|line| String::from_utf8(line.text.into()).expect("text")));
    }
}

/// Lines keep their order, in a commit and from commit to commit.
pub fn lines_are_kept_in_order(factory: &Factory<'_>) {
    let store = Store::new(factory);
    let odd = "it's 100 %25 `of` \"a\" \\ line?";
    store.write(vec![line("one"), line(odd), line("three")]);
    store.write(vec![Write::Put(file_row(5)), line("four"), line("five".repeat(2000))]);
    store.assert_row(&node(5), Some(&file_row(5)));
    let Some(log) = store.engine.change_log() else { return };
    assert_eq!(texts(log), ["one", odd, "three", "four", &"five".repeat(2000)]);
    assert_eq!(log.count().expect("count"), 5);
    let lines = log.lines(0, 100).expect("lines");
    assert_eq!(log.last().expect("last"), lines[4].number);
    assert_eq!(log.lines(lines[2].number, 100).expect("lines"), lines[3..]);
    assert_eq!(log.lines(lines[4].number, 100).expect("lines"), []);
    assert!(log.settled(lines[4].number) <= lines[4].number);
}

/// A commit that does not happen leaves no line.
pub fn a_line_is_undone_with_its_commit(factory: &Factory<'_>) {
    let store = Store::with(factory, vec![file_row(5)]);
    let refused = store.commit(vec![line("never"), Write::Insert(file_row(5))]);
    assert_conflict(&refused, &node(5));
    let expects = vec![Expect::Absent(node(5))];
    let refused = store.engine.commit(&Commit { step: None, expects, writes: vec![line("never")] });
    assert_conflict(&refused, &node(5));
    store.write(vec![line("once")]);
    let Some(log) = store.engine.change_log() else { return };
    assert_eq!(texts(log), ["once"]);
}

/// What is trimmed goes, and nothing else; numbers go on.
pub fn a_trimmed_log_goes_on(factory: &Factory<'_>) {
    let store = Store::new(factory);
    let Some(log) = store.engine.change_log() else { return };
    assert_eq!(log.last().expect("last"), 0, "before the first line");
    for commit in 0..30 {
        store.write((0..50).map(|at| line(format!("{commit} {at}"))).collect());
    }
    let lines = log.lines(0, 5000).expect("lines");
    assert!(!lines.is_empty() && lines.len() <= 1500);
    let [cut, at] = [700, 20].map(|at| lines.get(at).map_or(0, |line| line.number));
    if cut > 0 {
        log.trim(cut).expect("trim");
        // What is trimmed twice, or was before, is gone.
        log.trim(cut).expect("trim again");
        log.trim(at).expect("trim less");
        assert_eq!(texts(log)[..2], ["14 1", "14 2"]);
        assert_eq!(log.count().expect("count"), 1500 - 701);
    }
    let last = log.last().expect("last");
    log.trim(last).expect("trim all");
    assert_eq!((texts(log).len(), log.count().expect("count")), (0, 0));
    // TiKV keeps no number beside the lines.
    let kept = if store.engine.name() == "tikv" { 0 } else { last };
    assert_eq!(log.last().expect("last"), kept, "whoever follows goes on behind it");
    store.write(vec![line("after")]);
    assert!(log.last().expect("last") > last);
    assert_eq!(texts(log), ["after"]);
}

/// A removed volume takes its log with it.
pub fn a_removed_volume_has_no_log(factory: &Factory<'_>) {
    let store = Store::with(factory, vec![Row::Counter(Counter::NextInode, 100)]);
    store.write(vec![line("gone")]);
    store.engine.remove_volume().expect("remove");
    store.engine.prepare().expect("prepare");
    store.assert_row(&Key::Node(sluice_types::Ino(7)), None);
    let Some(log) = store.engine.change_log() else { return };
    assert_eq!((texts(log).len(), log.last().expect("last")), (0, 0));
}

/// Each of several volumes in one database has a log of its own.
///
/// # Panics
/// If the log of one shows the lines of another.
pub fn logs_are_apart(volumes: &[impl Engine]) {
    for (engine, lines) in volumes.iter().zip(1..) {
        let writes = vec![Write::Log("a line".into()); lines as usize];
        engine.commit(&Commit { writes, ..Commit::default() }).expect("lines");
    }
    for (engine, lines) in volumes.iter().zip(1..) {
        let log = engine.change_log().expect("a log");
        log.trim(lines).expect("trim");
        assert_eq!((log.last(), log.count()), (Ok(lines), Ok(0)));
    }
}
