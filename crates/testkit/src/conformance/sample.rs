//! One record of every kind, in two states.
//!
//! [`ordinal`] is an exhaustive match: a new kind of record does not compile before it has a place
//! here, and a case fails before it has a sample.

use bytes::Bytes;
use sluice_meta::schema::{
    AclEntry, AclRule, Change, Counter, DirStat, Entry, Extra, FlockKind, Key, LockOwner, PlockRange, Quota,
    QuotaKey, Row, Session, SessionInfo, Tier, UNSET, VolumeFormat,
};
use sluice_types::{Attr, AttrFlags, FileType, Ino, Name, Slice, Time};

/// How many kinds of records there are.
pub const KINDS: usize = 22;

/// The place of a record's kind in the order of the schema.
pub fn ordinal(row: &Row) -> usize {
    match row {
        Row::Setting(_) => 0,
        Row::Counter(..) => 1,
        Row::Node(..) => 2,
        Row::Entry(..) => 3,
        Row::Parents(..) => 4,
        Row::Symlink(..) => 5,
        Row::Xattr(..) => 6,
        Row::Chunk(..) => 7,
        Row::SliceRef(..) => 8,
        Row::DelFile(..) => 9,
        Row::DelSlices(..) => 10,
        Row::Acl(..) => 11,
        Row::DirStat(..) => 12,
        Row::Quota(..) => 13,
        Row::Session(..) => 14,
        Row::Sustained(..) => 15,
        Row::Flock(..) => 16,
        Row::Plock(..) => 17,
        Row::Detached(..) => 18,
        Row::Writer(..) => 19,
        Row::Changes(..) => 20,
        Row::Extra(..) => 21,
    }
}

/// A record in two states. Those that have no value are the same in both.
pub struct Sample {
    /// As first stored.
    pub first: Row,
    /// Changed.
    pub then: Row,
}

/// Attributes with something in every field.
pub fn attr(kind: FileType) -> Attr {
    Attr {
        flags: AttrFlags(AttrFlags::APPEND | AttrFlags::SKIP_TRASH),
        rdev: if matches!(kind, FileType::Block | FileType::Char) { 0x0801_0203 } else { 0 },
        length: if kind == FileType::Dir { 4096 } else { 123_456_789_012 },
        nlink: if kind == FileType::Dir { 4 } else { 1 },
        access_acl: 3,
        default_acl: if kind == FileType::Dir { 4 } else { 0 },
        tier: 2,
        atime: Time { sec: 1_700_000_000, nsec: 1 },
        mtime: Time { sec: 1_700_000_001, nsec: 999_999_999 },
        ctime: Time { sec: 1_700_000_002, nsec: 123_456_789 },
        ..Attr::new(kind, 0o6755, 1000, 2000, Ino(77), Time::default())
    }
}

/// Plain attributes of a directory.
pub fn dir_attr() -> Attr {
    Attr::new(FileType::Dir, 0o755, 0, 0, Ino::ROOT, Time { sec: 1_700_000_000, nsec: 5 })
}

/// Plain attributes of a file.
pub fn file_attr() -> Attr {
    Attr::new(FileType::File, 0o644, 0, 0, Ino::ROOT, Time { sec: 1_700_000_000, nsec: 5 })
}

/// A node that is a plain directory.
pub fn dir_row(ino: u64) -> Row {
    Row::Node(Ino(ino), dir_attr())
}

/// A node that is a plain file.
pub fn file_row(ino: u64) -> Row {
    Row::Node(Ino(ino), file_attr())
}

/// An entry that names a file.
pub fn entry_row(dir: u64, name: &Name, ino: u64) -> Row {
    Row::Entry(Ino(dir), name.clone(), Entry { kind: FileType::File, ino: Ino(ino) })
}

fn name(text: &str) -> Name {
    Name::new(text.as_bytes()).expect("valid")
}

fn pair(first: Row, then: Row) -> Sample {
    assert_eq!(first.key(), then.key(), "a sample is one record");
    Sample { first, then }
}

/// Settings with secrets, tiers and a member that nobody knows.
pub fn setting(name: &str) -> VolumeFormat {
    let mut format = VolumeFormat {
        name: name.into(),
        uuid: "9d6d5a4e-6a86-4d3c-8a5f-2f2b1f7c0a11".into(),
        bucket: "/var/jfs/".into(),
        secret_key: "sealed+/=".into(),
        capacity: 1 << 50,
        trash_days: 1,
        meta_version: 1,
        enable_acl: true,
        ..VolumeFormat::default()
    };
    format.tiers.insert("1".into(), Tier { id: 1, storage_class: "COLD".into(), tag: "t".into() });
    format.unknown.insert("FromTheFuture".into(), serde_json::json!({"list": [1, "two", null]}));
    format
}

/// Every kind, some in several forms. [`Row::Parents`] is left out: engines that derive it from the
/// entries cannot store it by itself.
pub fn samples() -> Vec<Sample> {
    let mut all = nodes();
    all.extend(content());
    all.extend(bookkeeping());
    all.extend(locks());
    all
}

fn nodes() -> Vec<Sample> {
    let kinds = [
        FileType::File,
        FileType::Dir,
        FileType::Symlink,
        FileType::Fifo,
        FileType::Block,
        FileType::Char,
        FileType::Socket,
    ];
    let mut all: Vec<Sample> = kinds
        .into_iter()
        .map(|kind| {
            let ino = Ino(100 + kind as u64);
            let plain = Attr::new(kind, 0o600, 5, 6, Ino(9), Time { sec: 1_600_000_000, nsec: 0 });
            pair(Row::Node(ino, attr(kind)), Row::Node(ino, plain))
        })
        .collect();
    for (at, kind) in kinds.into_iter().enumerate() {
        let to = |ino| Entry { kind, ino: Ino(ino) };
        let called = name(&format!("entry {at} é"));
        all.push(pair(
            Row::Entry(Ino(5), called.clone(), to(200 + at as u64)),
            Row::Entry(Ino(5), called, to(1 << 54)),
        ));
    }
    all
}

fn content() -> Vec<Sample> {
    let long = Slice { pos: 7, id: (1 << 53) + 1, size: 1 << 26, off: 9, len: 4096 };
    vec![
        pair(
            Row::Symlink(Ino(300), Bytes::from_static(b"../some/where \xff\x01")),
            Row::Symlink(Ino(300), Bytes::from_static(b"/")),
        ),
        pair(
            Row::Xattr(Ino(301), name("user.a"), Bytes::from_static(b"\0bytes\xfe")),
            Row::Xattr(Ino(301), name("user.a"), Bytes::new()),
        ),
        pair(
            Row::Xattr(Ino(303), name("user.empty"), Bytes::new()),
            Row::Xattr(Ino(303), name("user.empty"), Bytes::from_static(b"x")),
        ),
        pair(
            Row::Chunk(Ino(302), 0, vec![Slice::whole(0, 1, 100), Slice::hole(50, 10), long]),
            Row::Chunk(Ino(302), 0, vec![Slice::whole(0, 2, 100)]),
        ),
        pair(
            Row::Chunk(Ino(302), 1 << 30, vec![Slice::whole(0, 3, 5)]),
            Row::Chunk(Ino(302), 1 << 30, vec![Slice::whole(0, 3, 5), long]),
        ),
        pair(Row::SliceRef(7, 100, 3), Row::SliceRef(7, 100, 9)),
        pair(Row::SliceRef((1 << 53) + 1, 1 << 26, 2), Row::SliceRef((1 << 53) + 1, 1 << 26, 3)),
        pair(Row::DelFile(Ino(310), 1 << 40, 1_700_000_000), Row::DelFile(Ino(310), 1 << 40, 1_700_000_999)),
        pair(
            Row::DelSlices(320, 1_700_000_000, vec![(5, 6), ((1 << 53) + 1, 1 << 26)]),
            Row::DelSlices(320, 1_700_000_000, vec![(8, 9)]),
        ),
    ]
}

fn bookkeeping() -> Vec<Sample> {
    let rule = AclRule {
        owner: 7,
        group: 5,
        mask: 6,
        other: 0,
        users: vec![AclEntry { id: 1, perm: 7 }, AclEntry { id: u32::MAX - 1, perm: 0 }],
        groups: vec![AclEntry { id: 3, perm: 4 }],
    };
    let plain = AclRule { mask: UNSET, ..AclRule::empty() };
    let stat = |n| DirStat { length: n, space: n * 4096, inodes: -n };
    let quota = |n| Quota { max_space: n << 40, max_inodes: n, used_space: n * 3, used_inodes: n - 2 };
    let info = SessionInfo {
        version: "1.4.1".into(),
        host_name: "höst".into(),
        ip_addrs: vec!["10.0.0.1".into(), "::1".into()],
        mount_point: "/mnt/with space".into(),
        mount_time: "2026-01-02T03:04:05+01:00".into(),
        process_id: 4_000_000,
        metrics_addr: "10.0.0.1:9567".into(),
        console_url: "https://console.example.com/".into(),
    };
    let session = |expire, info| Row::Session(40, Session { expire, info });
    let mut all = vec![
        pair(Row::setting(&setting("one")), Row::setting(&setting("other"))),
        pair(Row::Acl(1, rule.clone()), Row::Acl(1, plain)),
        pair(Row::DirStat(Ino(330), stat(5)), Row::DirStat(Ino(330), stat(0))),
        pair(session(1_700_000_060, Some(info.to_json())), session(1_700_000_120, Some(info.to_json()))),
        pair(Row::Sustained(40, Ino(341)), Row::Sustained(40, Ino(341))),
        pair(Row::Detached(Ino(350), 1_700_000_000), Row::Detached(Ino(350), 1_700_000_009)),
        pair(Row::Writer(40, 3, 0), Row::Writer(40, 3, u64::from(u32::MAX) + 7)),
        pair(
            Row::Changes(40, 3, 9, 9, vec![]),
            Row::Changes(40, 3, 9, u64::from(u32::MAX) + 7, vec![Change::Node(Ino(1)), Change::Any]),
        ),
    ];
    for kind in Extra::ALL {
        for number in [0, 40, (1 << 53) + 1, u64::MAX] {
            let row = |value: &[u8]| Row::Extra(kind, number, value.to_vec().into());
            all.push(pair(row(&[0, kind.code(), 0xFE]), row(b"{\"a\":'\\\xff'}\n\0 ")));
        }
    }
    for key in [QuotaKey::Dir(Ino(6)), QuotaKey::User(6), QuotaKey::Group(6)] {
        all.push(pair(Row::Quota(key, quota(1)), Row::Quota(key, quota(2))));
    }
    for (counter, n) in Counter::ALL.into_iter().zip(5..) {
        // SQL tables number ACL rules themselves; where the last inode and slice id given out are
        // stored, a missing record answers that the next is the first.
        if !matches!(counter, Counter::AclMaxId | Counter::NextInode | Counter::NextChunk) {
            all.push(pair(Row::Counter(counter, n), Row::Counter(counter, n + (1 << 53))));
        }
    }
    all
}

fn locks() -> Vec<Sample> {
    let low = LockOwner { sid: 40, owner: 1 };
    let high = LockOwner { sid: 41, owner: u64::MAX - 4 };
    let range = |write, start, end| PlockRange { write, pid: 99, start, end };
    let to_end = 0x7FFF_FFFF_FFFF_FFFF;
    let mut all = Vec::new();
    for owner in [low, high] {
        all.push(pair(
            Row::Flock(Ino(360), owner, FlockKind::Read),
            Row::Flock(Ino(360), owner, FlockKind::Write),
        ));
        all.push(pair(
            Row::Plock(Ino(360), owner, vec![range(true, 0, 9), range(false, 20, to_end)]),
            Row::Plock(Ino(360), owner, vec![range(false, 5, 5)]),
        ));
    }
    all
}

/// Whether a record of this key has no value that could change.
pub fn is_bare(key: &Key) -> bool {
    matches!(key, Key::Sustained(..))
}
