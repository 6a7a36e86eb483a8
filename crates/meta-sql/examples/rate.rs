//! Measures the engine: `cargo run --release -p sluice-meta-sql --example rate -- [directory]
//! [files] [per commit]`.
//!
//! A file is an entry, a node and its share in the bump of the directory; a commit also takes a
//! step.

#![allow(clippy::unwrap_used, reason = "a measurement that fails has nothing to say")]

use std::{
    fs,
    time::{Duration, Instant},
};

use sluice_meta::{
    engine::{Commit, Engine, Expect, Read, Scan, Step, Write},
    schema::{Entry, Key, Row},
};
use sluice_meta_sql::SqliteEngine;
use sluice_types::{Attr, FileType, Ino, Name, Slice, Time};

fn main() {
    let mut args = std::env::args().skip(1);
    let base = args.next().unwrap_or_else(|| std::env::temp_dir().display().to_string());
    let files: u64 = args.next().map_or(200_000, |n| n.parse().unwrap());
    let per_commit: u64 = args.next().map_or(100, |n| n.parse().unwrap());
    let dir = tempfile::tempdir_in(base).unwrap();
    let engine =
        SqliteEngine::open(&format!("sqlite3://{}", dir.path().join("volume.db").display())).unwrap();
    engine.prepare().unwrap();
    let root = Attr::new(FileType::Dir, 0o755, 0, 0, Ino(1), Time::default());
    let start = [Row::Node(Ino(1), root), Row::Writer(1, 0, 0)].map(Write::Insert).to_vec();
    engine.commit(&Commit { writes: start, ..Commit::default() }).unwrap();

    let mut rates = Rates { engine: &engine, files, per_commit, n: 0 };
    rates.measure("create", true, |ino, writes| {
        let attr =
            Attr::new(FileType::File, 0o644, 0, 0, Ino(1), Time { sec: 1_700_000_000, nsec: ino as u32 });
        writes.push(Write::Insert(Row::Node(Ino(ino), attr)));
        writes.push(Write::Insert(Row::Entry(
            Ino(1),
            name(ino),
            Entry { kind: FileType::File, ino: Ino(ino) },
        )));
    });
    rates.measure("write (chunk, reference, node)", false, |ino, writes| {
        let attr =
            Attr::new(FileType::File, 0o644, 0, 0, Ino(1), Time { sec: 1_700_000_001, nsec: ino as u32 });
        writes.push(Write::Put(Row::Node(Ino(ino), Attr { length: 4096, ..attr })));
        writes.push(Write::Insert(Row::SliceRef(ino, 4096, 1)));
        writes.push(Write::Append(Ino(ino), 0, vec![Slice::whole(0, ino, 4096)]));
    });
    rates.lookups();
    rates.pages();
    rates.measure("unlink (entry, node, chunks)", false, |ino, writes| {
        writes.push(Write::Delete(Key::Node(Ino(ino))));
        writes.push(Write::Delete(Key::Entry(Ino(1), name(ino))));
        writes.push(Write::Clear(sluice_meta::engine::List::Chunks(Ino(ino), 0, u32::MAX)));
    });
}

fn name(ino: u64) -> Name {
    Name::stored(format!("file.mdtest.{:08}", ino.wrapping_mul(7919) % 100_000_000).as_bytes())
}

struct Rates<'e> {
    engine: &'e SqliteEngine,
    files: u64,
    per_commit: u64,
    n: u64,
}

impl Rates<'_> {
    fn measure(&mut self, what: &str, absent: bool, of_file: impl Fn(u64, &mut Vec<Write>)) {
        let since = Since::now();
        let mut slowest = Duration::ZERO;
        let mut ino = 2;
        while ino < self.files + 2 {
            let mut commit = Commit { step: Some(self.step()), ..Commit::default() };
            let mut reads = vec![Read::Get(Key::Node(Ino(1)))];
            for ino in ino..ino + self.per_commit {
                of_file(ino, &mut commit.writes);
                let key = Key::Entry(Ino(1), name(ino));
                reads.push(Read::Get(key.clone()));
                if absent {
                    commit.expects.push(Expect::Absent(key));
                }
            }
            let time = Some(Time { sec: 1_700_000_000, nsec: ino as u32 });
            commit.writes.push(Write::Bump { ino: Ino(1), nlink: 0, time });
            // As the overlay hands them over.
            commit.writes.sort_by_key(|write| match write {
                Write::Insert(row) | Write::Put(row) => (0, Some(row.key())),
                Write::Delete(key) => (0, Some(key.clone())),
                _ => (1, None),
            });
            let begun = Instant::now();
            self.engine.read(&reads).unwrap();
            self.engine.commit(&commit).unwrap();
            slowest = slowest.max(begun.elapsed());
            ino += self.per_commit;
        }
        Self::print(what, self.files, &since, Some(slowest));
    }

    fn step(&mut self) -> Step {
        self.n += 1;
        Step { writer: 1, lane: 0, from: self.n - 1, to: self.n }
    }

    fn lookups(&self) {
        let since = Since::now();
        for ino in 2..self.files + 2 {
            self.engine.read(&[Read::Follow(Ino(1), name(ino))]).unwrap();
        }
        Self::print("lookup, one a trip", self.files, &since, None);
        let since = Since::now();
        let reads: Vec<Read> = (2..self.files + 2).map(|ino| Read::Follow(Ino(1), name(ino))).collect();
        reads.chunks(100).for_each(|reads| drop(self.engine.read(reads).unwrap()));
        Self::print("lookup, 100 a trip", self.files, &since, None);
    }

    fn pages(&self) {
        let since = Since::now();
        let (mut from, mut rows) = (None, 0);
        loop {
            let page =
                self.engine.scan(Scan::Entries { dir: Ino(1), nodes: true }, from.as_ref(), 1000).unwrap();
            rows += page.rows.len() as u64;
            from = page.next;
            if from.is_none() {
                break;
            }
        }
        Self::print("readdirplus", rows / 2, &since, None);
    }

    fn print(what: &str, count: u64, since: &Since, slowest: Option<Duration>) {
        let (elapsed, busy) = since.passed();
        let rate = count as f64 / elapsed.as_secs_f64();
        let each = busy.as_secs_f64() * 1e6 / count as f64;
        let slowest =
            slowest.map_or(String::new(), |s| format!(", slowest commit {:.1} ms", s.as_secs_f64() * 1e3));
        println!("{what:32} {rate:10.0} a second, {each:6.2} us of CPU each{slowest}");
    }
}

/// Time on the clock and on the processor; the second is worth something on a busy machine too.
struct Since(Instant, Duration);

impl Since {
    fn now() -> Self {
        Self(Instant::now(), Self::busy())
    }

    fn passed(&self) -> (Duration, Duration) {
        (self.0.elapsed(), Self::busy().saturating_sub(self.1))
    }

    fn busy() -> Duration {
        let stat = fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
        Duration::from_nanos(stat.split(' ').next().and_then(|n| n.parse().ok()).unwrap_or(0))
    }
}
