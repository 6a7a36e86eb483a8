//! Each event, and what is left after it.

use sluice_types::{FileType, Name, Slice, Time};

use super::*;
use crate::entry::Entry;

const TTL: Duration = Duration::from_hours(1);
const INO: Ino = Ino(5);

fn attr(length: u64) -> Attr {
    Attr { length, ..Attr::new(FileType::File, 0o644, 0, 0, Ino::ROOT, Time::default()) }
}

fn dir_attr() -> Attr {
    Attr::new(FileType::Dir, 0o755, 0, 0, Ino::ROOT, Time::default())
}

fn run(cache: &MetaCache, ino: Ino, attr: Attr) {
    cache.change(ino, || Ok::<_, ()>(attr), |attr| *attr).unwrap();
}

#[test]
fn another_clients_change_waits_for_none_that_is_under_way() {
    let cache = Arc::new(MetaCache::default());
    let file = cache.opened(INO);
    let during = Arc::clone(&cache);
    let (send, receive) = std::sync::mpsc::channel();
    let commit = move || {
        std::thread::spawn(move || {
            during.changed_elsewhere(&Change::Node(INO));
            send.send(())
        });
        // The commit lasts until the other change was announced.
        receive.recv_timeout(Duration::from_mins(1))
    };
    cache.change(INO, commit, |()| attr(0)).unwrap();
    assert_eq!(file.attr(), None, "which of both came last nobody knows");
    run(&cache, INO, attr(0));
    assert_eq!(file.attr(), Some(attr(0)));
}

#[test]
fn answers_from_before_a_change_do_not_count() {
    let cache = MetaCache::default();
    let file = cache.opened(INO);
    let asked = cache.moment();
    run(&cache, INO, attr(100));
    assert_eq!(cache.learn(INO, attr(0), asked), Some(attr(100)));
    assert_eq!(file.attr().unwrap().length, 100);
    assert_eq!(cache.learn(INO, attr(7), cache.moment()), Some(attr(7)), "another client cut it since");
}

#[test]
fn a_change_that_outlasts_the_last_close_is_seen_by_who_opens_next() {
    let cache = MetaCache::default();
    cache.opened(INO);
    let reopened = || {
        cache.closed(INO);
        let file = cache.opened(INO);
        // Answered before the change was committed.
        cache.learn(INO, attr(0), cache.moment());
        Ok::<_, ()>(file)
    };
    let before = cache.moment();
    let file = cache.change(INO, reopened, |_| attr(100)).unwrap();
    assert_eq!(file.attr(), None, "whether others changed it since is unknown");
    assert_eq!(cache.learn(INO, attr(100), before), None, "nobody knows what the newest is");
}

#[test]
fn of_two_answers_the_one_that_was_asked_for_later_counts() {
    let cache = MetaCache::default();
    let file = cache.opened(INO);
    let (one, other) = (cache.moment(), cache.moment());
    // It came first, and says what was so before others went on.
    assert_eq!(cache.learn(INO, attr(10), one), Some(attr(10)));
    cache.answered(INO);
    assert_eq!(cache.learn(INO, attr(20), other), Some(attr(20)));
    assert_eq!(cache.learn(INO, attr(10), one), Some(attr(20)), "it came last");
    assert_eq!(file.attr().unwrap().length, 20);
}

#[test]
fn answers_from_before_the_file_was_open_do_not_count() {
    let cache = MetaCache::default();
    let asked = cache.moment();
    run(&cache, INO, attr(100));
    let file = cache.opened(INO);
    cache.learn(INO, attr(0), asked);
    assert!(file.attr().is_none());
}

/// Everything that a cache may know of a directory and an open file in it.
struct Filled {
    cache: MetaCache,
    file: Arc<OpenFile>,
    before: Moment,
}

/// What is left of that.
#[allow(clippy::struct_excessive_bools, reason = "each says whether one part forgot")]
#[derive(Debug, PartialEq, Eq)]
struct Remaining {
    /// The file's answers from before still count; the directory's do.
    marked: [bool; 2],
    file: bool,
    chunks: usize,
    dir: bool,
    prefetched: bool,
    /// Another client's change of the names of the directory was announced.
    names: bool,
}

const DIR: Ino = Ino(2);
const OTHER: Ino = Ino(9);

impl Filled {
    fn new() -> Self {
        let cache = MetaCache::default();
        cache.serve(Ino::ROOT, Some(TTL));
        let file = cache.opened(INO);
        let before = cache.moment();
        cache.begin_chunk_read(INO);
        cache.learn(INO, attr(1), before);
        for index in 0..2 {
            let asked = cache.begin_chunk_read(INO);
            cache.keep_chunk(INO, index, asked, vec![Slice::whole(0, 1, 1)]);
        }
        cache.entry_changed(DIR, &dir_attr(), before);
        cache.count_lookup(DIR);
        let before = cache.moment();
        let nodes = [(name(), (OTHER, attr(1)))].into_iter().collect();
        cache.keep_prefetched(DIR, Some(Page { nodes, at: std::time::Instant::now(), moment: before }));
        Self { cache, file, before }
    }

    fn left(self) -> Remaining {
        let Self { cache, file, before } = self;
        Remaining {
            marked: [INO, DIR].map(|ino| cache.changed_since(ino, before)),
            file: file.attr().is_some(),
            chunks: (0..2).filter(|index| cache.chunk(INO, *index).is_some()).count(),
            dir: cache.dir_attr(DIR, TTL).is_some(),
            prefetched: cache.prefetch.find(DIR, &name(), TTL, |_| true).is_some(),
            names: cache.names_changed_since(DIR, before),
        }
    }
}

fn name() -> Name {
    Name::new(b"a").unwrap()
}

/// What is left after nothing happened.
const ALL: Remaining =
    Remaining { marked: [false, false], file: true, chunks: 2, dir: true, prefetched: true, names: false };

#[test]
fn each_event_makes_the_cache_forget_what_the_table_says() {
    type Event = fn(&MetaCache);
    let elsewhere = Remaining { prefetched: false, names: true, ..ALL };
    let nothing = Remaining { marked: [true, true], file: false, dir: false, prefetched: false, ..ALL };
    let events: [(&str, Event, Remaining); 16] = [
        ("nothing", |_| {}, ALL),
        ("change", |cache| run(cache, INO, attr(2)), Remaining { marked: [true, false], ..ALL }),
        (
            "change of a directory",
            |cache| run(cache, DIR, dir_attr()),
            Remaining { marked: [false, true], ..ALL },
        ),
        ("changed", |cache| cache.changed(DIR), Remaining { marked: [false, true], dir: false, ..ALL }),
        (
            "entry_changed",
            |cache| cache.entry_changed(DIR, &dir_attr(), cache.moment()),
            Remaining { marked: [false, true], ..ALL },
        ),
        ("renamed", |cache| cache.renamed(INO, &attr(0)), Remaining { marked: [true, false], ..ALL }),
        (
            "renamed directory",
            |cache| cache.renamed(DIR, &dir_attr()),
            Remaining { marked: [false, true], dir: false, ..ALL },
        ),
        ("removed", |cache| cache.removed(INO, None), Remaining { marked: [true, false], chunks: 0, ..ALL }),
        ("content_changed", |cache| cache.content_changed(INO), Remaining { chunks: 0, ..ALL }),
        ("chunk_changed", |cache| cache.chunk_changed(INO, 1), Remaining { chunks: 1, ..ALL }),
        (
            "names_changed",
            |cache| cache.names_changed(DIR),
            Remaining { marked: [false, true], dir: false, prefetched: false, ..ALL },
        ),
        ("everything_changed", MetaCache::everything_changed, Remaining { ..nothing }),
        (
            "another's Node",
            |cache| drop(cache.changed_elsewhere(&Change::Node(INO))),
            Remaining { marked: [true, false], file: false, ..ALL },
        ),
        (
            "another's Node of a directory",
            |cache| drop(cache.changed_elsewhere(&Change::Node(DIR))),
            Remaining { marked: [false, true], dir: false, ..ALL },
        ),
        (
            "another's Entry",
            |cache| drop(cache.changed_elsewhere(&Change::Entry(DIR, name()))),
            Remaining { ..elsewhere },
        ),
        ("another's Names", |cache| drop(cache.changed_elsewhere(&Change::Names(DIR))), elsewhere),
    ];
    for (event, run, left) in events {
        let filled = Filled::new();
        run(&filled.cache);
        assert_eq!(filled.left(), left, "{event}");
    }
    let filled = Filled::new();
    filled.cache.changed_elsewhere(&Change::Any);
    assert_eq!(filled.left(), Remaining { names: true, ..nothing });
}

#[test]
fn a_prefetched_name_is_not_answered_if_its_node_changed_or_is_open() {
    let answered = |event: fn(&MetaCache)| {
        let Filled { cache, .. } = Filled::new();
        event(&cache);
        cache.prefetched(DIR, &name(), TTL).is_some()
    };
    assert!(answered(|_| {}));
    assert!(!answered(|cache| cache.answered(OTHER)));
    assert!(!answered(|cache| cache.changed(OTHER)));
    assert!(!answered(|cache| drop(cache.opened(OTHER))));
    assert!(!answered(|cache| drop(cache.kernel.changed_elsewhere(&Change::Names(DIR)))));
}

#[test]
fn a_removed_directory_is_remembered_and_no_longer_shown_as_changed() {
    let filled = Filled::new();
    filled.cache.removed(DIR, Some(dir_attr()));
    assert_eq!(filled.cache.removed_attr(DIR), Some(dir_attr()));
    assert_eq!(filled.cache.dir_attr(DIR, TTL), None);
    filled.cache.removed(INO, Some(attr(1)));
    assert_eq!(filled.cache.removed_attr(INO), None, "files are asked for by their handles");
}

#[test]
fn only_lookups_leave_hints() {
    let cache = MetaCache::default();
    let entry = Entry { ino: DIR, attr: dir_attr(), attr_ttl: TTL, entry_ttl: TTL };
    cache.listed(Ino::ROOT, b"a", cache.moment(), entry);
    assert_eq!(cache.child_hint(Ino::ROOT, &name()), None);
    cache.looked_up(Ino::ROOT, b"a", cache.moment(), entry);
    assert_eq!(cache.child_hint(Ino::ROOT, &name()), Some(DIR));
    assert_eq!(cache.parent_hint(DIR), Some(Ino::ROOT));
}
