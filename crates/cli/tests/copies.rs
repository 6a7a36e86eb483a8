//! Backups by way of a copy: they hold what a dump of the volume itself holds.

mod support;

use std::{
    collections::BTreeSet,
    fs::{self, File},
    io::Read,
    path::{Path, PathBuf},
    process::Output,
};

use bytes::Bytes;
use sluice_dump::{DumpOptions, LoadOptions, LocalCopy, Packing, dump_json, has_snapshots, load_binary};
use sluice_meta::{
    Meta,
    engine::{Commit, Engine, Write},
    mem::MemEngine,
    schema::{AclEntry, AclRule, Counter, Entry, Quota, QuotaKey, Row, Session, VolumeFormat},
};
use sluice_meta_sql::{MysqlEngine, PostgresEngine, SqliteEngine};
use sluice_testkit::server;
use sluice_types::{Attr, AttrFlags, FileType, Ino, Name, Rng, Slice, Time};
use support::{Volume, ok, sluice};
use tempfile::TempDir;

/// Entries of the largest directory: several parts of a dump.
const ENTRIES: u64 = 2600;
const SEED: u64 = 20_261_126;

/// What is in a volume, of every kind and in every damaged way that a dump passes over.
struct Filling {
    rng: Rng,
    rows: Vec<Row>,
    next: u64,
}

impl Filling {
    fn node(&mut self, kind: FileType, parent: Ino) -> (Ino, Attr) {
        self.next += 1;
        let now =
            |rng: &mut Rng| Time { sec: rng.below(1 << 31) as i64, nsec: rng.below(1_000_000_000) as u32 };
        let mut attr = Attr::new(kind, self.rng.below(0o10000) as u16, 7, 8, parent, now(&mut self.rng));
        (attr.mtime, attr.ctime) = (now(&mut self.rng), now(&mut self.rng));
        attr.nlink = if kind == FileType::Dir { 2 } else { 1 };
        (attr.access_acl, attr.default_acl) = (self.rng.below(3) as u32, self.rng.below(3) as u32);
        attr.flags = AttrFlags(self.rng.below(4) as u8);
        (Ino(self.next), attr)
    }

    fn name(&mut self, dir: Ino, name: &[u8], kind: FileType, ino: Ino) {
        self.rows.push(Row::Entry(dir, Name::stored(name), Entry { kind, ino }));
    }

    fn dir(&mut self, parent: Ino, name: &[u8]) -> Ino {
        let (ino, attr) = self.node(FileType::Dir, parent);
        self.rows.push(Row::Node(ino, attr));
        self.name(parent, name, FileType::Dir, ino);
        ino
    }

    /// A file, symbolic link or device.
    fn other(&mut self, dir: Ino, name: &[u8]) -> Ino {
        let kinds = [FileType::File, FileType::File, FileType::File, FileType::Symlink, FileType::Char];
        let kind = kinds[self.rng.below(5) as usize];
        let (ino, mut attr) = self.node(kind, dir);
        match kind {
            FileType::File => {
                // Up to four chunks, and what a damaged volume has behind them.
                let chunks = self.rng.below(5);
                attr.length = (chunks << 26).saturating_sub(self.rng.below(1 << 26));
                for index in 0..chunks + self.rng.below(2) {
                    let slice =
                        |rng: &mut Rng| Slice { id: rng.below(1 << 40), size: 9, pos: 1, off: 2, len: 3 };
                    let slices = (0..=self.rng.below(2)).map(|_| slice(&mut self.rng)).collect();
                    self.rows.push(Row::Chunk(ino, index as u32, slices));
                }
            }
            FileType::Symlink => self.rows.push(Row::Symlink(ino, Bytes::from(format!("../{ino}\u{7}\"")))),
            _ => attr.rdev = 0x0105,
        }
        for name in ["user.z", "user.a", "trusted.m"].into_iter().take(self.rng.below(8) as usize) {
            let value: Vec<u8> = (0..self.rng.below(40)).map(|_| self.rng.below(256) as u8).collect();
            self.rows.push(Row::Xattr(ino, Name::stored(name.as_bytes()), value.into()));
        }
        self.rows.push(Row::Node(ino, attr));
        self.name(dir, name, kind, ino);
        ino
    }

    fn names(&mut self, count: u64) -> BTreeSet<Vec<u8>> {
        let mut names = BTreeSet::new();
        while (names.len() as u64) < count {
            let length = 1 + self.rng.below(12);
            // A few letters, so that many names begin with others; and bytes that are no text.
            let letter = |rng: &mut Rng| b"aab\x01\x02\xFF\xC3~ \"\\"[rng.below(11) as usize];
            names.insert((0..length).map(|_| letter(&mut self.rng)).collect());
        }
        names
    }
}

/// Records of a volume with `format`, without the root.
fn records(format: &VolumeFormat) -> Vec<Row> {
    let mut all = Filling { rng: Rng::seeded(SEED), rows: vec![Row::setting(format)], next: 1 };
    let large = all.dir(Ino::ROOT, b"large");
    for (at, name) in all.names(ENTRIES).into_iter().enumerate() {
        if at % 100 == 0 {
            let dir = all.dir(large, &name);
            for name in all.names(all.next % 7) {
                all.other(dir, &name);
            }
        } else {
            all.other(large, &name);
        }
    }
    let mut deep = all.dir(Ino::ROOT, b"deep");
    for level in 0..60 {
        all.other(deep, format!("file {level}").as_bytes());
        deep = all.dir(deep, b"d");
    }
    // A file with three names.
    let (linked, mut attr) = all.node(FileType::File, Ino::NONE);
    attr.nlink = 3;
    all.rows.push(Row::Node(linked, attr));
    for (dir, name) in [(large, &b"one"[..]), (large, b"two"), (deep, b"three")] {
        all.name(dir, name, FileType::File, linked);
    }
    // A name of nothing; a chunk, attributes and a file of no name.
    all.name(deep, b"nowhere", FileType::File, Ino(1 << 40));
    all.name(deep, b"nothing but a chunk", FileType::File, Ino(1 << 41));
    all.rows.push(Row::Chunk(Ino(1 << 41), 0, Vec::new()));
    for _ in 0..3 {
        let (ino, attr) = all.node(FileType::File, large);
        all.rows.push(Row::Node(ino, attr));
        all.rows.push(Row::DelFile(Ino(ino.0 + 5000), 1 << 30, 1_700_000_000 + ino.0 as i64));
        all.rows.push(Row::Sustained(1 + ino.0 % 2, ino));
    }
    // What was deleted in two hours.
    all.rows.push(Row::Node(Ino::TRASH, Attr::new(FileType::Dir, 0o555, 0, 0, Ino::ROOT, Time::default())));
    for hour in 1..3 {
        let ino = Ino(Ino::TRASH.0 + hour);
        let name = format!("2026-03-01-0{hour}");
        all.rows.push(Row::Node(ino, Attr::new(FileType::Dir, 0o555, 0, 0, Ino::TRASH, Time::default())));
        all.name(Ino::TRASH, name.as_bytes(), FileType::Dir, ino);
        for file in 0..5 {
            all.other(ino, format!("2-{file}-name").as_bytes());
        }
    }
    for id in 1..3 {
        let users = vec![AclEntry { id: 100 * id, perm: 5 }];
        let rule = AclRule { owner: 7, group: 5, mask: 5, other: id as u16, users, groups: Vec::new() };
        all.rows.push(Row::Acl(id, rule));
        let session = Session { expire: 1 << 40, info: Some(Bytes::from_static(b"{}")) };
        all.rows.push(Row::Session(id.into(), session));
    }
    let quota = Quota { max_space: 1 << 40, max_inodes: -1, used_space: 4096, used_inodes: 3 };
    for key in [QuotaKey::Dir(large), QuotaKey::Dir(deep), QuotaKey::User(7), QuotaKey::Group(8)] {
        all.rows.push(Row::Quota(key, quota));
    }
    all.rows.push(Row::Quota(QuotaKey::User(9), Quota::UNLIMITED));
    let counters = [Counter::NextInode, Counter::NextChunk, Counter::NextTrash, Counter::UsedSpace];
    all.rows
        .extend(counters.into_iter().zip(1_000_000..).map(|(counter, value)| Row::Counter(counter, value)));
    all.rows
}

/// Fills an engine that holds no volume, or only one that was just formatted.
fn fill(engine: &dyn Engine) {
    engine.prepare().expect("prepared");
    let formatted = Meta::load_format(engine).expect("asked");
    let is_new = formatted.is_none();
    let format = VolumeFormat {
        secret_key: "a secret".into(),
        session_token: "a token".into(),
        change_log: true,
        user_group_quota: true,
        ..formatted.unwrap_or_else(|| VolumeFormat {
            name: "vol".into(),
            uuid: "u".into(),
            ..VolumeFormat::default()
        })
    };
    let mut rows = records(&format);
    if is_new {
        rows.push(Row::Node(Ino::ROOT, Attr::new(FileType::Dir, 0o755, 0, 0, Ino::ROOT, Time::default())));
    }
    for rows in rows.chunks(500) {
        let mut writes: Vec<Write> = rows.iter().cloned().map(Write::Put).collect();
        writes.push(Write::Log(format!("{}|a line", rows.len())));
        engine.commit(&Commit { writes, ..Commit::default() }).expect("filled");
    }
}

/// The dump of the volume itself.
const fn options(keep_secrets: bool, skip_trash: bool) -> DumpOptions {
    DumpOptions { root: Ino::ROOT, keep_secrets, skip_trash, threads: 3, throttled: false }
}

fn direct(engine: &dyn Engine, options: &DumpOptions) -> String {
    String::from_utf8(dump_json(engine, Vec::new(), options, &|_| {}).expect("dumped")).expect("UTF-8")
}

fn assert_same(copied: &str, direct: &str) {
    for (at, (copied, direct)) in copied.lines().zip(direct.lines()).enumerate() {
        assert_eq!(copied, direct, "line {at}");
    }
    assert_eq!(copied.len(), direct.len());
}

fn a_copy_is_dumped_as_the_volume_itself(engine: &dyn Engine) {
    fill(engine);
    assert!(has_snapshots(engine).expect("asked"));
    let folder = TempDir::new().expect("a folder");
    for keep_secrets in [false, true] {
        for skip_trash in [false, true] {
            let options = options(keep_secrets, skip_trash);
            let direct = direct(engine, &options);
            assert_eq!(direct.contains("a secret"), keep_secrets);
            assert_eq!(direct.contains("2026-03-01-02"), !skip_trash);
            assert_eq!(direct.contains("lastChangelog"), engine.change_log().is_some());
            for word in ["\"sid\":2", "posix_acl_default", "user.z", "one\":", "DelFiles\":[{"] {
                assert!(direct.contains(word), "{word}");
            }
            let copy = LocalCopy::take(engine, folder.path(), keep_secrets).expect("copied");
            let entries = std::cell::Cell::new(0);
            let progress = |count| entries.set(entries.get() + count);
            let copied = copy.dump_json(Vec::new(), &options, &progress).expect("dumped");
            assert_same(&String::from_utf8(copied).expect("UTF-8"), &direct);
            assert!(entries.get() > ENTRIES);
        }
    }
    assert_eq!(fs::read_dir(folder.path()).expect("a folder").count(), 0);
}

fn postgres() -> String {
    let server = server::postgres().expect("postgres is installed");
    server.url(&server.database().expect("a database"))
}

#[test]
fn a_copy_of_postgres() {
    a_copy_is_dumped_as_the_volume_itself(&PostgresEngine::open(&postgres()).expect("opens"));
}

#[test]
fn a_copy_of_mysql() {
    let server = server::mariadb().expect("mariadbd is installed");
    let url = server.url(&server.database().expect("a database"));
    a_copy_is_dumped_as_the_volume_itself(&MysqlEngine::open(&url, None).expect("opens"));
}

#[test]
fn a_copy_of_sqlite() {
    let folder = TempDir::new().expect("a folder");
    let url = format!("sqlite3://{}", folder.path().join("meta.db").display());
    a_copy_is_dumped_as_the_volume_itself(&SqliteEngine::open(&url).expect("opens"));
}

#[test]
fn a_copy_of_etcd() {
    let server = server::Etcd::start(&server::EtcdOptions::default()).expect("etcd is installed");
    a_copy_is_dumped_as_the_volume_itself(
        &sluice_meta_kv::EtcdEngine::open(&server.url("v")).expect("opens"),
    );
}

/// A volume on PostgreSQL that `sluice format` made, filled.
fn formatted() -> (Volume, PostgresEngine) {
    let mut volume = Volume::folder();
    volume.meta = postgres();
    ok(&["format", "--bucket", &volume.path("objects").display().to_string(), &volume.meta, "testvol"]);
    let engine = PostgresEngine::open(&volume.meta).expect("opens");
    fill(&engine);
    fs::create_dir(volume.path("tmp")).expect("made");
    (volume, engine)
}

/// The one backup of the volume, which is removed, unpacked.
fn backup(volume: &Volume, output: &Output) -> (String, Vec<u8>) {
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success() && !said.contains("panicked"), "{said}");
    let folder = volume.path("objects/testvol/meta");
    let found: Vec<PathBuf> =
        fs::read_dir(&folder).expect("a folder").map(|entry| entry.expect("an entry").path()).collect();
    let [path] = &found[..] else { panic!("{found:?}: {said}") };
    let mut content = Vec::new();
    let file = File::open(path).expect("opens");
    Packing::Gzip.unpack(file).and_then(|mut file| file.read_to_end(&mut content)).expect("unpacked");
    fs::remove_file(path).expect("removed");
    assert_eq!(fs::read_dir(volume.path("tmp")).expect("a folder").count(), 0, "nothing is left");
    (said, content)
}

#[test]
fn a_backup_of_postgres_is_the_dump_of_the_volume() {
    let (volume, engine) = formatted();
    let made = |flags: &[&str]| {
        let mut command = sluice();
        command.arg("backup").args(flags).arg(&volume.meta).env("TMPDIR", volume.path("tmp"));
        let (said, content) = backup(&volume, &command.output().expect("it starts"));
        assert!(!said.contains("without a copy"), "{said}");
        content
    };
    for (flags, skip_trash) in [(&[][..], false), (&["--skip-trash"], true)] {
        let content = String::from_utf8(made(flags)).expect("UTF-8");
        assert_same(&content, &direct(&engine, &options(false, skip_trash)));
    }
    let content = made(&["--format", "binary"]);
    let loaded = MemEngine::new();
    load_binary(&loaded, &content[..], LoadOptions { threads: 1 }, &|_| {}).expect("loaded");
    let nodes = loaded.records().into_values().filter(|row| matches!(row, Row::Node(..))).count();
    let expected =
        records(&VolumeFormat::default()).iter().filter(|row| matches!(row, Row::Node(..))).count();
    assert_eq!(nodes, expected + 1);
}

#[test]
fn a_backup_is_made_without_a_copy_where_there_is_no_room_for_one() {
    let (volume, engine) = formatted();
    let direct = direct(&engine, &options(false, false));
    // A file of this process may have 450 KiB: enough for the backup, but not for the copy.
    let script = "trap '' XFSZ && ulimit -f 900 && exec \"$@\"";
    let limited = |flags: &[&str]| {
        let program = sluice();
        let mut command = std::process::Command::new("dash");
        command.args(["-c", script, "dash"]).arg(Path::new(program.get_program())).arg("backup").args(flags);
        command.arg(&volume.meta).env("TMPDIR", volume.path("tmp"));
        let (said, content) = backup(&volume, &command.output().expect("it starts"));
        for word in ["without a copy", "TMPDIR", "File too large"] {
            assert!(said.contains(word), "{word}: {said}");
        }
        content
    };
    let content = limited(&[]);
    assert_same(&String::from_utf8(content).expect("UTF-8"), &direct);
    assert!(!limited(&["--format", "binary"]).is_empty());
}
