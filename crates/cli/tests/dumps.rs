//! Dumps that cannot be written, dumps that cannot be loaded, and dumps of a volume in use.

mod support;

use std::{
    collections::BTreeMap,
    fs,
    path::Path,
    process::{Command, Stdio},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread,
};

use rustix::process::{Pid, Signal, kill_process};
use sluice_dump::{
    DumpOptions, LoadOptions, LocalCopy, binary, dump_binary, dump_json, load_binary, load_json,
};
use sluice_meta::{
    engine::{Commit, Engine, EngineError, Write},
    mem::MemEngine,
    schema::{Entry, Key, Row, VolumeFormat},
};
use sluice_object::crypto::{DataCipher, ObjectCipher, VolumeKey};
use sluice_testkit::server;
use sluice_types::{Attr, FileType, Ino, Name, Time};
use support::{Volume, fails, ok, sluice};

fn says(said: &str, words: &[&str]) {
    for word in words {
        assert!(said.contains(word), "`{word}` is not in: {said}");
    }
}

fn url(volume: &Volume, name: &str) -> String {
    format!("sqlite3://{}", volume.path(name).display())
}

/// A volume, and its dump in both forms.
fn dumped() -> (Volume, [String; 2]) {
    let volume = Volume::new(&[]);
    let place = |name: &str| volume.path(name).display().to_string();
    let files = [place("meta.json"), place("meta.bin")];
    ok(&["dump", &volume.meta, &files[0]]);
    ok(&["dump", "--binary", &volume.meta, &files[1]]);
    (volume, files)
}

#[test]
fn a_full_disk() {
    let volume = Volume::new(&[]);
    for form in [&[][..], &["--binary"]] {
        let said = fails(&[&["dump"], form, &[&volume.meta, "/dev/full"]].concat());
        says(&said, &["cannot write /dev/full", "No space left"]);
        let full = fs::File::options().write(true).open("/dev/full").expect("opens");
        let mut command = sluice();
        command.arg("dump").args(form).arg(&volume.meta).stdout(full).stderr(Stdio::piped());
        let output = command.output().expect("it starts");
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success() && !said.contains("panicked"), "{said}");
        says(&said, &["No space left"]);
    }
    says(
        &fails(&["dump", &volume.meta, "/no/such/folder/a.json"]),
        &["/no/such/folder/a.json", "No such file"],
    );
}

#[test]
fn a_symbolic_link_is_followed() {
    let volume = Volume::new(&[]);
    fs::create_dir(volume.path("there")).expect("made");
    let place = |name: &str| volume.path(name).display().to_string();
    let is_dump = |name: &str| says(&fs::read_to_string(volume.path(name)).expect(name), &["FSTree"]);
    let link = |to: &str, name: &str| std::os::unix::fs::symlink(to, volume.path(name)).expect("linked");
    fs::write(volume.path("there/old.json"), "old").expect("written");
    link("there/old.json", "link.json");
    link("link.json", "chain.json");
    link("there/new.json", "dangling.json");
    link("loop.json", "loop.json");
    for (name, target) in [("chain.json", "there/old.json"), ("dangling.json", "there/new.json")] {
        ok(&["dump", &volume.meta, &place(name)]);
        is_dump(target);
        assert!(fs::symlink_metadata(volume.path(name)).expect("there").is_symlink(), "{name}");
    }
    assert_eq!(fs::read_dir(volume.path("there")).expect("listed").count(), 2);
    says(&fails(&["dump", &volume.meta, &place("loop.json")]), &["too many symbolic links"]);
    for command in ["dump", "load"] {
        says(&fails(&[command, "--threads", "0", &volume.meta, &place("chain.json")]), &["--threads"]);
    }
}

#[test]
fn a_signal_leaves_no_part_of_a_dump() {
    let redis = server::redis().expect("redis-server is installed");
    let volume = Volume::folder();
    fs::create_dir(volume.path("dumps")).expect("made");
    let names = || {
        let names = fs::read_dir(volume.path("dumps")).expect("listed");
        names.map(|entry| entry.expect("listed").file_name()).collect::<Vec<_>>()
    };
    // It never answers.
    redis.freeze(true).expect("stopped");
    for (signal, code) in [(Signal::TERM, 128 + 15), (Signal::INT, 128 + 2)] {
        let mut command = sluice();
        command.args(["dump", "--binary", &redis.url(1)]).arg(volume.path("dumps/meta.bin"));
        let mut dump = command.stderr(Stdio::null()).spawn().expect("it starts");
        support::until("the dump to begin", || names().len() == 1);
        let pid = Pid::from_raw(dump.id().try_into().expect("a number")).expect("a process");
        kill_process(pid, signal).expect("sent");
        assert_eq!(dump.wait().expect("ended").code(), Some(code));
        assert_eq!(names().len(), 0);
    }
    redis.freeze(false).expect("continued");
}

#[test]
fn quiet_commands_say_nothing() {
    let volume = Volume::new(&[]);
    let [json, binary] = ["a.json", "a.bin"].map(|name| volume.path(name).display().to_string());
    assert_eq!(ok(&["-q", "dump", &volume.meta, &json]), "");
    assert_eq!(ok(&["dump", "--quiet", "--binary", &volume.meta, &binary]), "");
    for (at, file) in [&json, &binary].into_iter().enumerate() {
        let meta = url(&volume, &format!("quiet{at}.db"));
        assert_eq!(ok(&["load", "-q", &meta, file]), "");
        says(&fails(&["load", "-q", &meta, file]), &["not empty"]);
    }
}

/// Each leaves a database without a volume, into which the whole dump is then loaded.
#[test]
fn a_dump_that_is_cut_off() {
    let (volume, files) = dumped();
    for (at, file) in files.iter().enumerate() {
        let whole = fs::read(file).expect("reads");
        let cut = volume.path("cut").display().to_string();
        let meta = url(&volume, &format!("cut{at}.db"));
        for length in [whole.len() - 2, whole.len() / 2, 20] {
            fs::write(&cut, &whole[..length]).expect("writes");
            let said = fails(&["load", &meta, &cut]);
            says(&said, &["cannot load", "cut"]);
            says(&fails(&["status", &meta]), &["no volume"]);
        }
        ok(&["load", &meta, file]);
        ok(&["fsck", &meta]);
        says(&ok(&["status", &meta]), &["testvol"]);
        let again = volume.path("again.json").display().to_string();
        ok(&["dump", &meta, &again]);
    }
}

#[test]
fn a_packed_dump_that_changed() {
    let volume = Volume::new(&[]);
    for name in ["changed.json.gz", "changed.json.zst"] {
        let file = volume.path(name).display().to_string();
        ok(&["dump", &volume.meta, &file]);
        let whole = fs::read(&file).expect("reads");
        let mut changed = whole.clone();
        // In the checksum.
        let at = whole.len() - if name.ends_with("gz") { 5 } else { 1 };
        changed[at] ^= 4;
        let meta = url(&volume, &format!("{name}.db"));
        for content in [changed, [&whole[..], b"more"].concat(), whole[..whole.len() - 1].to_vec()] {
            fs::write(&file, content).expect("writes");
            says(&fails(&["load", &meta, &file]), &["cannot"]);
            says(&fails(&["status", &meta]), &["no volume"]);
        }
    }
}

#[test]
fn what_is_no_dump() {
    let (volume, [json, binary]) = dumped();
    let (file, meta) = (volume.path("file").display().to_string(), url(&volume, "new.db"));
    let of_a_newer_volume =
        fs::read_to_string(json).expect("reads").replacen("\"MetaVersion\": 1", "\"MetaVersion\": 9", 1);
    let newer = {
        // The footer: its magic number and then the version, as a protocol buffer has them.
        let mut bytes = fs::read(&binary).expect("reads");
        let magic = [0x08, 0x83, 0xE1, 0xD1, 0x03, 0x10];
        let at = bytes.windows(magic.len()).rposition(|part| part == magic).expect("a footer");
        bytes[at + magic.len()] = 2;
        bytes
    };
    let contents: [(&[u8], &[&str]); 7] = [
        (b"", &["is empty", "sluice dump"]),
        (b"hello", &["JSON"]),
        (b"{\"Setting\":{\"Name\":7}}", &["settings"]),
        (b"\0\0\0\x63 and so on", &["no binary dump"]),
        (b"\x1f\x8b and no gzip", &["cannot"]),
        (&newer, &["version 2", "newer"]),
        (of_a_newer_volume.as_bytes(), &["version 9", "newer"]),
    ];
    for (content, words) in contents {
        fs::write(&file, content).expect("writes");
        says(&fails(&["load", &meta, &file]), words);
        says(&fails(&["status", &meta]), &["no volume"]);
    }
    says(&fails(&["load", &meta, "/no/such/dump"]), &["/no/such/dump", "No such file"]);
}

#[test]
fn a_database_that_is_in_use() {
    let (volume, files) = dumped();
    let before = fs::read(&files[0]).expect("reads");
    for file in &files {
        says(&fails(&["load", &volume.meta, file]), &["not empty", "destroy"]);
    }
    ok(&["dump", &volume.meta, &files[0]]);
    assert!(fs::read(&files[0]).expect("reads") == before, "the volume changed");
}

/// Names that each form keeps, and two that JuiceFS reads from neither.
#[test]
fn names_of_xattrs() {
    const PLAIN: [&[u8]; 4] = [b"user.50%", b"user.%41", b"user.\"q\\", b"user.a b"];
    const STRANGE: [&[u8]; 2] = [b"user.\xFF", b"user.\xFE"];
    let volume = Volume::new(&[]);
    let set = |name: &[u8]| {
        let connection = rusqlite::Connection::open(volume.path("meta.db")).expect("opens");
        let sql = "INSERT INTO jfs_xattr (inode, name, value) VALUES (1, CAST(?1 AS TEXT), ?1)";
        connection.execute(sql, [name]).expect("runs");
    };
    let stored = |database: &str| {
        let connection = rusqlite::Connection::open(volume.path(database)).expect("opens");
        let sql = "SELECT CAST(name AS BLOB) FROM jfs_xattr ORDER BY name";
        let mut statement = connection.prepare(sql).expect("prepared");
        let names = statement.query_map([], |row| row.get::<_, Vec<u8>>(0)).expect("runs");
        names.collect::<Result<Vec<_>, _>>().expect("read")
    };
    let sorted = |names: &[&[u8]]| {
        let mut names: Vec<Vec<u8>> = names.iter().map(|name| name.to_vec()).collect();
        names.sort_unstable();
        names
    };
    let place = |name: &str| volume.path(name).display().to_string();
    // Dumps with one program, and loads with another.
    let mut round = 0;
    let mut moved = |[from, to]: [&Path; 2], flags: &[&str], names: &[Vec<u8>]| {
        round += 1;
        let (dump, database) = (place(&format!("dump{round}")), format!("loaded{round}.db"));
        let meta = url(&volume, &database);
        let mut said = String::new();
        for (program, command, url) in [(from, "dump", &volume.meta), (to, "load", &meta)] {
            let output = Command::new(program).arg(command).args(flags).args([url, &dump]).output();
            let output = output.expect("it starts");
            said += &String::from_utf8_lossy(&output.stderr);
            assert!(output.status.success(), "{command} {flags:?}: {said}");
        }
        assert_eq!(stored(&database), names, "{from:?} {to:?} {flags:?}");
        said
    };
    let ours = Path::new(env!("CARGO_BIN_EXE_sluice"));
    let theirs = std::env::var("JUICEFS").ok();
    let theirs = theirs.as_deref().map(Path::new);
    PLAIN.iter().copied().for_each(set);
    for flags in [&[][..], &["--binary"]] {
        for pair in [Some([ours, ours]), theirs.map(|it| [ours, it]), theirs.map(|it| [it, ours])] {
            let said = pair.map(|pair| moved(pair, flags, &sorted(&PLAIN))).unwrap_or_default();
            assert!(!said.contains("UTF-8"), "{said}");
        }
    }
    STRANGE.iter().copied().for_each(set);
    let all = sorted(&[&PLAIN[..], &STRANGE].concat());
    assert!(!moved([ours, ours], &[], &all).contains("UTF-8"));
    let said = moved([ours, ours], &["--binary"], &all);
    says(&said, &["node 1 has", "JuiceFS refuses"]);
    assert_eq!(said.matches("UTF-8").count(), 1, "{said}");
    if let Some(theirs) = theirs {
        let escaped: [&[u8]; 2] = [b"user.%FF", b"user.%FE"];
        moved([ours, theirs], &[], &sorted(&[&PLAIN[..], &escaped].concat()));
    }
}

#[test]
fn a_database_with_keys_of_others() {
    let redis = server::redis().expect("redis-server is installed");
    let (volume, files) = dumped();
    let objects = volume.path("others").display().to_string();
    let format = |meta: &str, name: &str| ["format", "--bucket", &objects, meta, name].map(String::from);
    let refused =
        |arguments: &[&str]| says(&fails(arguments), &["the key `theirs`", "FLUSHDB", "another number"]);
    redis.command_in(1, &["SET", "theirs", "1"]).expect("redis answers");
    let meta = redis.url(1);
    refused(&format(&meta, "another").each_ref().map(String::as_str));
    for file in &files {
        refused(&["load", &meta, file]);
    }
    says(&fails(&["status", &meta]), &["no volume"]);
    redis.command_in(1, &["DEL", "theirs"]).expect("redis answers");
    // A database may get them later.
    ok(&["load", &meta, &files[0]]);
    redis.command_in(1, &["SET", "theirs", "1"]).expect("redis answers");
    ok(&["format", "--trash-days", "3", &meta, "testvol"]);
    ok(&format(&redis.url(2), "another").each_ref().map(String::as_str));
}

#[test]
fn what_a_binary_dump_holds() {
    let (_volume, [json, binary]) = dumped();
    let listed = ok(&["load", "--stat", &binary]);
    says(&listed, &["format    | 1", "node      | "]);
    let listed = ok(&["load", "--stat", "--offset=-1", &binary]);
    let line = listed.lines().find(|line| line.starts_with("node")).expect("nodes");
    let offset = line.rsplit(['[', ',', ']']).find(|part| !part.trim().is_empty()).expect("an offset");
    says(&ok(&["load", "--stat", "--offset", offset.trim(), &binary]), &["Segment: node", "Node(#1"]);
    says(&fails(&["load", "--stat", "--offset", "3", &binary]), &["at byte 3"]);
    let length = fs::metadata(&binary).expect("there").len();
    let stat = |offset: u64| fails(&["load", "--stat", "--offset", &offset.to_string(), &binary]);
    says(&stat(99_999_999), &["99999999 is beyond the end", &format!("which has {length} bytes")]);
    says(&stat(length - 1), &["too near to the end"]);
    says(&fails(&["load", "--stat", &json]), &["no binary dump"]);
    says(&fails(&["load", "--offset", "3", "sqlite3://x", &json]), &["--stat"]);
}

#[test]
fn an_encrypted_backup() {
    let (volume, [json, binary]) = dumped();
    let key = Path::new(env!("CARGO_MANIFEST_DIR")).join("../object/tests/data/keys/pkcs8.pem");
    let pem = fs::read_to_string(&key).expect("a key");
    let cipher =
        ObjectCipher::new(VolumeKey::from_pem(&pem, "").expect("a key"), DataCipher::ChaCha20Poly1305);
    let sealed = volume.path("sealed").display().to_string();
    let plain = fs::read(&json).expect("reads");
    fs::write(&sealed, cipher.seal(&plain).expect("sealed")).expect("writes");
    let key = key.display().to_string();
    let meta = url(&volume, "opened.db");
    let flags = ["load", "--encrypt-rsa-key", &key, "--encrypt-algo"];
    says(&fails(&[&flags[..], &["aes256gcm-rsa", &meta, &sealed]].concat()), &["cannot decrypt"]);
    says(&fails(&[&flags[..], &["rot13", &meta, &sealed]].concat()), &["rot13", "chacha20-rsa"]);
    for stat in [&["load", "--stat", &sealed][..], &["load", &meta, &sealed]] {
        says(&fails(stat), &[&sealed, "neither a JSON dump nor a binary one", "--encrypt-rsa-key"]);
    }
    let packed = ["plain.json.gz", "plain.json.zst"].map(|name| volume.path(name).display().to_string());
    for packed in &packed {
        ok(&["dump", &volume.meta, packed]);
    }
    for dump in [&json, &binary, &packed[0], &packed[1]] {
        let said = fails(&[&flags[..3], &[&meta, dump]].concat());
        says(&said, &[dump, "not encrypted", "leave out --encrypt-rsa-key"]);
    }
    ok(&[&flags[..], &["chacha20-rsa", &meta, &sealed]].concat());
    says(&ok(&["status", &meta]), &["testvol"]);
}

/// Files of the volume that is dumped while they move.
const FILES: u64 = 2000;
/// Directories that they move between.
const DIRS: u64 = 4;

fn name(file: u64) -> Name {
    Name::new(format!("file {file}").as_bytes()).expect("a name")
}

/// Which directory a file is in after so many rounds.
fn place(file: u64, round: u64) -> Ino {
    Ino(2 + (file + round) % DIRS)
}

fn fill(engine: &dyn Engine) {
    let attr = |kind, ino: u64, parent| {
        let mut attr = Attr::new(kind, 0o755, 0, 0, Ino(parent), Time::default());
        attr.nlink = if ino == 1 { 2 + DIRS as u32 } else { 2 };
        attr
    };
    let format = VolumeFormat { name: "vol".into(), uuid: "u".into(), ..VolumeFormat::default() };
    let mut rows = vec![Row::setting(&format), Row::Node(Ino(1), attr(FileType::Dir, 1, 1))];
    for dir in 2..2 + DIRS {
        rows.push(Row::Node(Ino(dir), attr(FileType::Dir, dir, 1)));
        rows.push(Row::Entry(Ino(1), name(dir), Entry { kind: FileType::Dir, ino: Ino(dir) }));
    }
    for file in 0..FILES {
        let (ino, dir) = (Ino(100 + file), place(file, 0));
        let mut attr = attr(FileType::File, ino.0, dir.0);
        attr.nlink = 1;
        rows.push(Row::Node(ino, attr));
        rows.push(Row::Entry(dir, name(file), Entry { kind: FileType::File, ino }));
    }
    engine.prepare().expect("prepared");
    for rows in rows.chunks(1000) {
        engine.load(rows).expect("loaded");
    }
}

/// Moves all files on, one after another, again and again. Counts them.
fn keep_moving(engine: &dyn Engine, enough: &AtomicBool, moved: &AtomicU64) {
    for step in 0.. {
        if enough.load(Ordering::Relaxed) {
            return;
        }
        let (file, round) = (step % FILES, step / FILES);
        let entry = Entry { kind: FileType::File, ino: Ino(100 + file) };
        let writes = vec![
            Write::Delete(Key::Entry(place(file, round), name(file))),
            Write::Insert(Row::Entry(place(file, round + 1), name(file), entry)),
        ];
        match engine.commit(&Commit { writes, ..Commit::default() }) {
            Ok(()) => drop(moved.fetch_add(1, Ordering::Relaxed)),
            Err(EngineError::Unavailable { .. }) => thread::yield_now(),
            Err(error) => panic!("moved: {error}"),
        }
    }
}

/// Ends the moves, however the test ends.
struct Enough<'a>(&'a AtomicBool);

impl Drop for Enough<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Whoever moves files changes two directories at once: a dump that shows several moments has some
/// file twice, or not at all.
fn dumps_show_one_moment(engine: &dyn Engine) {
    fill(engine);
    let (enough, moved) = (AtomicBool::new(false), AtomicU64::new(0));
    let whole =
        DumpOptions { root: Ino::ROOT, keep_secrets: false, skip_trash: true, threads: 4, throttled: false };
    let load = LoadOptions { threads: 2 };
    thread::scope(|scope| {
        let _enough = Enough(&enough);
        scope.spawn(|| keep_moving(engine, &enough, &moved));
        for round in 0..6 {
            let before = moved.load(Ordering::Relaxed);
            support::until("files move", || moved.load(Ordering::Relaxed) > before + 20);
            let loaded = MemEngine::new();
            if round % 3 < 2 {
                let dump = if round % 3 == 0 {
                    dump_json(engine, Vec::new(), &whole, &|_| {})
                } else {
                    let copy = LocalCopy::take(engine, &std::env::temp_dir(), false);
                    copy.and_then(|copy| copy.dump_json(Vec::new(), &whole, &|_| {}))
                };
                load_json(&loaded, &dump.expect("dumped")[..], load, &|_| {}).expect("loaded");
            } else {
                let dump = dump_binary(engine, Vec::new(), &whole, &|_| {}).expect("dumped");
                assert!(!binary::contents(&dump[..]).expect("whole").is_empty());
                load_binary(&loaded, &dump[..], load, &|_| {}).expect("loaded");
            }
            let mut found: BTreeMap<Ino, u64> = BTreeMap::new();
            for row in loaded.records().into_values() {
                if let Row::Entry(_, _, Entry { kind: FileType::File, ino }) = row {
                    *found.entry(ino).or_default() += 1;
                }
            }
            let twice = found.values().filter(|count| **count != 1).count();
            assert_eq!((found.len() as u64, twice), (FILES, 0), "{}: files, and those twice", engine.name());
        }
    });
    eprintln!("{}: {} moves meanwhile", engine.name(), moved.into_inner());
}

#[test]
fn a_dump_of_sqlite_shows_one_moment() {
    let volume = Volume::folder();
    let path = volume.path("moving.db");
    let engine = sluice_meta_sql::SqliteEngine::open(&format!("sqlite3://{}", path.display()));
    dumps_show_one_moment(&engine.expect("opens"));
}

#[test]
fn a_dump_of_postgres_shows_one_moment() {
    let server = server::postgres().expect("postgres is installed");
    let url = server.url(&server.database().expect("a database"));
    dumps_show_one_moment(&sluice_meta_sql::PostgresEngine::open(&url).expect("opens"));
}

#[test]
fn a_dump_of_mysql_shows_one_moment() {
    let server = server::mariadb().expect("mariadbd is installed");
    let url = server.url(&server.database().expect("a database"));
    dumps_show_one_moment(&sluice_meta_sql::MysqlEngine::open(&url, None).expect("opens"));
}

#[test]
fn a_dump_of_etcd_shows_one_moment() {
    let server = server::Etcd::start(&server::EtcdOptions::default()).expect("etcd is installed");
    let engine: Arc<dyn Engine> =
        Arc::new(sluice_meta_kv::EtcdEngine::open(&server.url("v")).expect("opens"));
    dumps_show_one_moment(&*engine);
}
