//! JSON dumps that JuiceFS 1.4.1 wrote, read and written again.

use std::io::Read;

use flate2::read::GzDecoder;
use sluice_dump::{
    DumpError,
    json::{Event, Head, Reader, Tree, Writer},
};
use sluice_meta::{
    engine::LogLine,
    schema::{Counter, QuotaKey},
};
use sluice_types::{Ino, Name, Slice};

fn fixture(packed: &[u8]) -> String {
    let mut text = String::new();
    GzDecoder::new(packed).read_to_string(&mut text).expect("gzip");
    text
}

fn tree() -> String {
    fixture(include_bytes!("fixtures/tree.json.gz"))
}

fn read(dump: &str) -> Result<(Head, Vec<Event>), DumpError> {
    let (mut reader, head) = Reader::new(dump.as_bytes())?;
    let mut events = Vec::new();
    while let Some(event) = reader.event()? {
        events.push(event);
    }
    Ok((head, events))
}

fn write(head: &Head, events: &[Event]) -> String {
    let mut writer = Writer::new(Vec::new(), head);
    for event in events {
        match event {
            Event::Begin(tree, root) => writer.begin(*tree, root),
            Event::Directory(name, node) => writer.directory(name, node).expect("written"),
            Event::File(name, node) => writer.file(name, node).expect("written"),
            Event::Close => writer.close(),
        }
    }
    String::from_utf8(writer.finish().expect("written")).expect("UTF-8")
}

#[test]
fn what_juicefs_wrote_is_read() {
    let (head, events) = read(&tree()).expect("read");
    assert!(head.counters.contains(&(Counter::NextInode, 1026)));
    assert!(head.quotas.iter().any(|(key, quota)| *key == QuotaKey::Dir(Ino(30)) && quota.max_inodes == 100));
    assert!(head.quotas.iter().any(|(key, quota)| *key == QuotaKey::User(1000) && quota.max_inodes == 50));
    assert!(matches!(&events[0], Event::Begin(Tree::Files, root) if root.ino == Ino(1)));
    assert!(events.iter().any(|event| matches!(event, Event::Begin(Tree::Trash, _))));
    let node = |ino: u64| {
        events.iter().find_map(|event| match event {
            Event::File(_, node) | Event::Directory(_, node) if node.ino == Ino(ino) => Some(node),
            _ => None,
        })
    };
    let file = node(34).expect("a file with an ACL");
    assert_eq!(file.access_acl.as_ref().map(|rule| rule.users.len()), Some(2));
    assert_eq!(file.chunks, [(0, vec![Slice { pos: 0, id: 29, size: 9, off: 0, len: 9 }])]);
    let closed = events.iter().filter(|event| **event == Event::Close).count();
    let opened =
        events.iter().filter(|event| matches!(event, Event::Begin(..) | Event::Directory(..))).count();
    assert_eq!(opened, closed);
    let (head, _) = read(&fixture(include_bytes!("fixtures/deleted.json.gz"))).expect("read");
    assert_eq!((head.del_files.len(), head.sustained.len()), (296, 1));
}

#[test]
fn what_is_written_is_read_again() {
    for text in [tree(), fixture(include_bytes!("fixtures/deleted.json.gz"))] {
        let (head, events) = read(&text).expect("read");
        let written = write(&head, &events);
        assert_eq!(read(&written).expect("read"), (head, events));
        // Not only our own reader takes it for JSON.
        serde_json::from_str::<serde_json::Value>(&written).expect("JSON");
    }
}

#[test]
fn what_is_written_has_the_values_that_juicefs_wrote() {
    let (head, events) = read(&tree()).expect("read");
    let value = |text: &str| {
        let mut value: serde_json::Value = serde_json::from_str(text).expect("JSON");
        normalize(&mut value);
        value
    };
    assert_eq!(value(&write(&head, &events)), value(&tree()));
}

/// `null` and nothing are the same as an empty list or object.
fn normalize(value: &mut serde_json::Value) {
    match value {
        serde_json::Value::Object(members) => {
            members.values_mut().for_each(normalize);
            members.retain(|_, value| {
                !(value.is_null()
                    || value.as_array().is_some_and(Vec::is_empty)
                    || value.as_object().is_some_and(serde_json::Map::is_empty))
            });
        }
        serde_json::Value::Array(items) => items.iter_mut().for_each(normalize),
        _ => {}
    }
}

#[test]
fn a_dump_that_is_cut_off_is_refused_wherever_it_ends() {
    let text = tree();
    for end in (0..text.trim_end().len()).step_by(7) {
        assert!(read(&text[..end]).is_err(), "cut off after {end} bytes");
    }
}

#[test]
fn directories_may_be_nested_as_deep_as_they_like() {
    let (head, events) = read(&tree()).expect("read");
    let dir = events.iter().find_map(|event| match event {
        Event::Directory(name, node) => Some(Event::Directory(name.clone(), node.clone())),
        _ => None,
    });
    let dir = dir.expect("a directory");
    let mut deep = vec![events[0].clone()];
    deep.extend(std::iter::repeat_n(dir, 20_000));
    deep.extend(std::iter::repeat_n(Event::Close, 20_001));
    assert_eq!(read(&write(&head, &deep)).expect("read").1.len(), deep.len());
}

#[test]
fn other_files_are_named_as_such() {
    for text in
        ["", "[]", "{}", "{\"FSTree\": {}}", "{\"Setting\": {}, \"FSTree\": {\"attr\": {\"inode\": 1}}}"]
    {
        let error = read(text).expect_err("refused").to_string();
        assert!(error.contains("JSON dump"), "{text}: {error}");
    }
}

#[test]
fn lines_of_the_change_log_are_written_and_passed_over() {
    let (mut head, events) = read(&tree()).expect("read");
    let without = head.clone();
    head.last_logged = 12;
    head.lines = vec![LogLine { number: 12, text: "1.000000000|RMDIR(1,a\"b,0):7|(1,2)".into() }];
    let text = write(&head, &events);
    let dump: serde_json::Value = serde_json::from_str(&text).expect("JSON");
    assert_eq!(dump["Counters"]["lastChangelog"], 12);
    let line = serde_json::json!({"version": 12, "entry": "1.000000000|RMDIR(1,a\"b,0):7|(1,2)"});
    assert_eq!(dump["ChangeLog"], serde_json::json!([line]));
    assert_eq!(read(&text).expect("read"), (without, events));
}

/// Names of extended attributes, and how JuiceFS writes them.
const XATTRS: [(&[u8], &str); 6] = [
    (b"user.50%", r#"{"name":"user.50%","value":""}"#),
    (b"user.%41", r#"{"name":"user.%41","value":""}"#),
    (b"user.\"q\\", r#"{"name":"user.\"q\\","value":""}"#),
    (b"user.a b\n", r#"{"name":"user.a b\u000a","value":""}"#),
    (b"user.\xC3\xBC\xEF\xBF\xBD", "{\"name\":\"user.\u{FC}\u{FFFD}\",\"value\":\"\"}"),
    (b"user.<&>", r#"{"name":"user.\u003c\u0026\u003e","value":""}"#),
];

/// The dump with these extended attributes at the root.
fn with_xattrs(names: &[&[u8]]) -> String {
    let (head, mut events) = read(&tree()).expect("read");
    let Event::Begin(_, root) = &mut events[0] else { panic!("no root") };
    root.xattrs = names.iter().map(|name| (Name::stored(name), "".into())).collect();
    write(&head, &events)
}

fn xattrs(dump: &str) -> Vec<Name> {
    let (_, events) = read(dump).expect("read");
    let Event::Begin(_, root) = &events[0] else { panic!("no root") };
    root.xattrs.iter().map(|(name, _)| name.clone()).collect()
}

#[test]
fn names_of_xattrs_are_plain_strings() {
    for (name, theirs) in XATTRS {
        let ours = with_xattrs(&[name]);
        let value = |text: &str| serde_json::from_str::<serde_json::Value>(text).expect("JSON");
        assert_eq!(value(&ours)["FSTree"]["xattrs"], serde_json::json!([value(theirs)]));
        let written = &ours[ours.find("{\"name\"").expect("a name")..];
        let theirs = ours.replacen(&written[..=written.find('}').expect("an end")], theirs, 1);
        for dump in [ours, theirs] {
            assert_eq!(xattrs(&dump), [Name::stored(name)]);
        }
    }
}

#[test]
fn a_name_of_an_xattr_that_is_not_utf_8_comes_back() {
    let names: [&[u8]; 4] = [b"user.\xFF", b"user.\xFE", b"user.%FF", b"user.50%\xC3(\""];
    let dump = with_xattrs(&names);
    assert_eq!(xattrs(&dump), names.map(Name::stored));
    // Whoever does not know the mark reads different names.
    let value: serde_json::Value = serde_json::from_str(&dump).expect("JSON");
    let read = |at: usize| value["FSTree"]["xattrs"][at]["name"].as_str().expect("a name");
    assert_eq!([read(0), read(1), read(3)], ["user.%FF", "user.%FE", "user.50%25%C3(%22"]);
}
