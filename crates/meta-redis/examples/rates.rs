//! What creates and lookups cost: time per operation here, and processor time of the server.
//!
//! `cargo run --release -p sluice-meta-redis --example rates` starts a redis-server of its own on a
//! socket.

use std::{
    fs,
    process::{Child, Command, Stdio},
    sync::Arc,
    time::{Duration, Instant},
};

use sluice_meta::{
    engine::{Commit, Engine, EngineError, Expect, Hold, Read, Step, Write},
    schema::{Entry, Key, Row},
};
use sluice_meta_redis::RedisEngine;
use sluice_types::{Attr, FileType, Ino, Name, Slice, Time};

const FILES: u64 = 100_000;

/// The server, gone when dropped.
struct Server(Child);

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Server {
    /// Processor time it has used, µs.
    fn busy(&self) -> f64 {
        let stat = fs::read_to_string(format!("/proc/{}/stat", self.0.id())).unwrap_or_default();
        let fields: Vec<f64> =
            stat.rsplit(')').next().unwrap_or("").split(' ').filter_map(|word| word.parse().ok()).collect();
        // utime and stime, in ticks of 10 ms: fields 14 and 15 of the file, and the state is no
        // number.
        (fields[10] + fields[11]) * 10_000.0
    }
}

fn at(n: u64) -> Time {
    Time { sec: 1_800_000_000 + n as i64, nsec: 5 }
}

fn name(n: u64) -> Name {
    Name::stored(format!("file.mdtest.0.{n}").as_bytes())
}

/// What a batch of creates in one directory commits.
fn creates(n: u64, count: u64, step: Step, parent: &Attr) -> Commit {
    let dir = Ino(2 + n % 3);
    let mut writes = Vec::new();
    let mut expects = vec![Expect::Row(Row::Node(dir, *parent), Hold::Guard)];
    for ino in n..n + count {
        let attr = Attr::new(FileType::File, 0o644, 0, 0, dir, at(n));
        expects.push(Expect::Absent(Key::Entry(dir, name(ino))));
        writes.push(Write::Insert(Row::Entry(dir, name(ino), Entry { kind: FileType::File, ino: Ino(ino) })));
        writes.push(Write::Insert(Row::Node(Ino(ino), attr)));
    }
    writes.push(Write::Bump { ino: dir, nlink: 0, time: Some(at(n)) });
    writes.push(Write::Count(sluice_meta::schema::Counter::UsedSpace, 4096 * count as i64));
    writes.push(Write::Count(sluice_meta::schema::Counter::TotalInodes, count as i64));
    Commit { step: Some(step), expects, writes }
}

/// What the writes of as many files commit.
fn appends(n: u64, count: u64, step: Step) -> Commit {
    let mut commit = Commit { step: Some(step), ..Commit::default() };
    for ino in n..n + count {
        let attr = Attr::new(FileType::File, 0o644, 0, 0, Ino(2 + n % 3), at(n));
        commit.expects.push(Expect::Row(Row::Node(Ino(ino), attr), Hold::Lock));
        commit.writes.push(Write::Put(Row::Node(Ino(ino), Attr { length: 4096, mtime: at(n + 1), ..attr })));
        commit.writes.push(Write::Append(Ino(ino), 0, vec![Slice::whole(0, ino, 4096)]));
    }
    commit
}

/// What removing as many files commits.
fn removals(n: u64, count: u64, step: Step) -> Commit {
    let dir = Ino(2 + n % 3);
    let mut commit = Commit { step: Some(step), ..Commit::default() };
    for ino in n..n + count {
        let attr = Attr::new(FileType::File, 0o644, 0, 0, dir, at(n));
        let attr = Attr { length: 4096, mtime: at(n + 1), ..attr };
        let entry = Row::Entry(dir, name(ino), Entry { kind: FileType::File, ino: Ino(ino) });
        commit.writes.push(Write::Delete(entry.key()));
        commit.writes.push(Write::Delete(Key::Node(Ino(ino))));
        commit.writes.push(Write::Insert(Row::DelFile(Ino(ino), 4096, n as i64)));
        commit.expects.push(Expect::Row(entry, Hold::Lock));
        commit.expects.push(Expect::Row(Row::Node(Ino(ino), attr), Hold::Lock));
    }
    commit.writes.push(Write::Bump { ino: dir, nlink: 0, time: Some(at(n)) });
    commit
}

fn measure(
    what: &str,
    server: &Server,
    ops: u64,
    work: impl FnOnce() -> Result<(), EngineError>,
) -> Result<(), EngineError> {
    let (busy, start) = (server.busy(), Instant::now());
    work()?;
    let (wall, cpu) = (start.elapsed().as_secs_f64() * 1e6 / ops as f64, (server.busy() - busy) / ops as f64);
    println!("{what:<44} {wall:8.2} µs each {cpu:8.2} µs of the server = {:9.0}/s at most", 1e6 / cpu);
    Ok(())
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let dir = std::env::temp_dir().join(format!("sluice-rates-{}", std::process::id()));
    fs::create_dir_all(&dir)?;
    let child = Command::new("redis-server")
        .args(["--port", "0", "--save", "", "--unixsocket", "redis.sock"])
        .current_dir(&dir)
        .stdout(Stdio::null())
        .spawn()?;
    let server = Server(child);
    let engine = Arc::new(RedisEngine::open(&format!("unix://{}/redis.sock?db=1", dir.display()))?);
    let deadline = Instant::now() + Duration::from_secs(20);
    while engine.prepare().is_err() && Instant::now() < deadline {
        std::thread::yield_now();
    }
    rates(&server, &*engine)?;
    drop(server);
    fs::remove_dir_all(&dir)?;
    Ok(())
}

fn rates(server: &Server, engine: &dyn Engine) -> Result<(), EngineError> {
    let parent = Attr::new(FileType::Dir, 0o755, 0, 0, Ino::ROOT, at(0));
    let mut first: Vec<Write> = (2..5).map(|ino| Write::Insert(Row::Node(Ino(ino), parent))).collect();
    first.push(Write::Insert(Row::Writer(7, 0, 0)));
    engine.commit(&Commit { writes: first, ..Commit::default() })?;
    let mut n = 0;
    let mut commit = |make: &dyn Fn(Step) -> Commit| {
        let made = make(Step { writer: 7, lane: 0, from: n, to: n + 1 });
        n += 1;
        engine.commit(&made)
    };
    for batch in [100, 10, 1] {
        let files = if batch == 1 { FILES / 4 } else { FILES };
        let base = 1_000_000 * batch;
        measure(&format!("create, {batch} a commit"), server, files, || {
            (0..files / batch)
                .try_for_each(|k| commit(&|step| creates(base + k * batch, batch, step, &parent)))
        })?;
        measure(&format!("write-commit, {batch} a commit"), server, files, || {
            (0..files / batch).try_for_each(|k| commit(&|step| appends(base + k * batch, batch, step)))
        })?;
    }
    measure("read of the parent and an absent entry", server, FILES / 4, || {
        (0..FILES / 4).try_for_each(|k| {
            let dir = Ino(2 + k % 3);
            let reads = [Read::Get(Key::Node(dir)), Read::Get(Key::Entry(dir, name(k)))];
            engine.read(&reads).map(drop)
        })
    })?;
    for batch in [1, 100] {
        measure(&format!("lookup (follow), {batch} a read"), server, FILES, || {
            (0..FILES / batch).try_for_each(|k| {
                let dir = Ino(2 + (100_000_000 + k / 100 * 100) % 3);
                let reads: Vec<Read> = (0..batch)
                    .map(|m| Read::Follow(dir, name(100_000_000 + (k * batch + m) % FILES)))
                    .collect();
                engine.read(&reads).map(drop)
            })
        })?;
    }
    measure("getattr, 1 a read", server, FILES, || {
        (0..FILES).try_for_each(|k| engine.read(&[Read::Get(Key::Node(Ino(100_000_000 + k)))]).map(drop))
    })?;
    measure("unlink, 100 a commit", server, FILES, || {
        (0..FILES / 100).try_for_each(|k| commit(&|step| removals(100_000_000 + k * 100, 100, step)))
    })
}
