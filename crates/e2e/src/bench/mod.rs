//! Benchmarks: what Sluice does in a second, and what `JuiceFS` does beside it in the same run, and what the engine or
//! FUSE alone would do.
//!
//! What must stay true: both programs do the same work, on volumes of the same kind, at the same durability, in turns
//! whose order changes from round to round; a figure without its work being done is an error.

mod file;
mod limit;
mod memory;
mod metadata;
mod place;
mod small;
mod stats;
mod table;

use crate::rig::{Engine, Volume};
use anyhow::{Context, ensure};
use stats::{Measured, Unit};
use std::path::{Path, PathBuf};

/// What to measure, and how.
#[derive(Debug)]
pub struct Plan {
    /// The program.
    pub sluice: PathBuf,
    /// The one beside it.
    pub juicefs: Option<PathBuf>,
    /// A program that mounts a file system in memory on its first argument: what FUSE alone can do.
    pub floor: Option<PathBuf>,
    /// Where volumes are made.
    pub within: PathBuf,
    /// Engines to measure on.
    pub engines: Vec<Engine>,
    /// Rows whose name contains one of these; all if empty.
    pub words: Vec<String>,
    /// Turns of each program in each row.
    pub rounds: usize,
    /// Of the order in which places are visited.
    pub seed: u64,
    /// How much work a turn is.
    pub sizes: Sizes,
}

/// How much work a turn is.
#[derive(Debug, Clone, Copy)]
pub struct Sizes {
    /// Files of `mdtest` with 100 threads, a multiple of 100.
    pub many: usize,
    /// Files of `mdtest` with one thread.
    pub alone: usize,
    /// Files of the directory that is cloned and removed, a multiple of 100.
    pub flat: usize,
    /// Files created, looked at and unlinked through the mount.
    pub small: usize,
    /// Size of the large file, MiB.
    pub large: usize,
    /// Random reads and random writes of 4 KiB, each.
    pub random: usize,
}

impl Sizes {
    /// What a claim is made from.
    pub const FULL: Self =
        Self { many: 10_000, alone: 5_000, flat: 100_000, small: 3_000, large: 1024, random: 10_000 };
    /// To see that all rows run.
    pub const QUICK: Self = Self { many: 1_000, alone: 200, flat: 1_000, small: 200, large: 32, random: 300 };
}

/// One line of the table.
#[derive(Debug, Clone, Copy)]
struct Row {
    name: &'static str,
    unit: Unit,
    /// How many times as good as `JuiceFS` it has to be, on Redis, SQLite, PostgreSQL and MariaDB; 0 where nothing is
    /// claimed.
    targets: [f64; 4],
}

/// Rows that one turn measures together: one figure for each, or none where there is no limit to measure.
struct Group {
    engines: &'static [Engine],
    rows: &'static [Row],
    turn: fn(&Turn) -> anyhow::Result<Vec<Option<f64>>>,
}

const ALL: &[Engine] = &[Engine::Redis, Engine::Sqlite, Engine::Postgres, Engine::Mariadb];
const FILES: Unit = Unit::Rate("files/s");
const OPERATIONS: Unit = Unit::Rate("/s");
const BYTES: Unit = Unit::Rate("MiB/s");

const GROUPS: &[Group] = &[
    Group {
        engines: ALL,
        rows: &[Row { name: "mdtest, 100 threads", unit: FILES, targets: [3.0, 8.0, 6.0, 10.0] }],
        turn: metadata::many,
    },
    Group {
        engines: ALL,
        rows: &[Row { name: "mdtest, 50 threads", unit: FILES, targets: [3.0, 0.0, 6.0, 10.0] }],
        turn: metadata::spread,
    },
    Group {
        engines: ALL,
        rows: &[Row { name: "mdtest, 1 thread", unit: FILES, targets: [1.5, 1.5, 1.5, 1.5] }],
        turn: metadata::alone,
    },
    Group {
        engines: ALL,
        rows: &[
            Row { name: "clone", unit: Unit::Seconds, targets: [2.0, 4.0, 2.0, 4.0] },
            Row { name: "rmr", unit: Unit::Seconds, targets: [1.5, 4.0, 2.0, 4.0] },
        ],
        turn: metadata::tree,
    },
    Group {
        engines: ALL,
        rows: &[
            Row { name: "fuse create", unit: OPERATIONS, targets: [1.5, 1.5, 0.0, 0.0] },
            Row { name: "fuse cold stat", unit: OPERATIONS, targets: [1.5, 1.5, 0.0, 0.0] },
            Row { name: "fuse unlink", unit: OPERATIONS, targets: [1.5, 1.5, 0.0, 0.0] },
        ],
        turn: small::turn,
    },
    Group {
        engines: &[Engine::Redis],
        rows: &[
            Row { name: "sequential write", unit: BYTES, targets: [1.0, 1.0, 0.0, 0.0] },
            Row { name: "sequential read", unit: BYTES, targets: [1.0, 1.0, 0.0, 0.0] },
            Row { name: "random read", unit: OPERATIONS, targets: [1.3, 1.3, 0.0, 0.0] },
            Row { name: "random write", unit: OPERATIONS, targets: [3.0, 3.0, 0.0, 0.0] },
        ],
        turn: file::turn,
    },
    Group {
        engines: &[Engine::Redis],
        rows: &[
            Row { name: "memory after bench", unit: Unit::Memory, targets: [2.0, 2.0, 0.0, 0.0] },
            Row { name: "memory at its highest", unit: Unit::Memory, targets: [0.0, 0.0, 0.0, 0.0] },
        ],
        turn: memory::turn,
    },
];

/// Who works in a turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Side {
    Sluice,
    JuiceFs,
    /// Nobody's file system: the bare engine, or FUSE over memory.
    Limit,
}

/// One program's turn at one group of rows.
struct Turn<'p> {
    plan: &'p Plan,
    side: Side,
    engine: Engine,
    round: usize,
}

impl Turn<'_> {
    fn program(&self) -> &Path {
        match (&self.plan.juicefs, self.side) {
            (Some(juicefs), Side::JuiceFs) => juicefs,
            _ => &self.plan.sluice,
        }
    }

    /// A new volume.
    fn volume(&self) -> anyhow::Result<Volume> {
        Volume::new(self.program(), self.engine, &self.plan.within, &[])
    }

    /// What `JuiceFS` needs to be told to work quietly and within the volume's folder: no report, no backup.
    fn quiet(&self) -> &'static [&'static str] {
        if self.side == Side::JuiceFs { &["--no-usage-report", "--backup-meta", "0"] } else { &[] }
    }

    /// Mounts it with the program's defaults, and a block cache of the same size for all.
    fn mount(&self, volume: &mut Volume) -> anyhow::Result<PathBuf> {
        let options = [&["--cache-size", "10240"], self.quiet()].concat();
        volume.mount_plain(&options)
    }

    /// A seed that is the same for every side of a round.
    fn seed(&self) -> u64 {
        self.plan.seed + self.round as u64
    }
}

/// Measures what the plan names, and writes the table to `docs` too if one is given.
///
/// # Errors
/// When nothing matches, and, after all else has been measured, when a row could not be.
pub fn run(plan: &Plan, docs: Option<&Path>) -> anyhow::Result<()> {
    ensure!(plan.rounds > 0, "no rounds, no figures");
    let facts = table::facts(plan);
    println!("{facts}\n");
    let mut measured = Vec::new();
    let mut failed = Vec::new();
    for group in GROUPS {
        for &engine in group.engines.iter().filter(|engine| plan.engines.contains(engine)) {
            let wanted = |row: &Row| {
                plan.words.is_empty() || plan.words.iter().any(|word| row.name.contains(word.as_str()))
            };
            if !group.rows.iter().any(wanted) {
                continue;
            }
            match rounds(plan, group, engine) {
                Ok(rows) => measured.extend(rows.into_iter().filter(|row| wanted(&row.row))),
                Err(why) => {
                    let names: Vec<&str> = group.rows.iter().map(|row| row.name).collect();
                    let why = format!("{} on {}: {why:#}", names.join(", "), table::name(engine));
                    eprintln!("bench: {why}");
                    failed.push(why);
                }
            }
        }
    }
    ensure!(!measured.is_empty() || !failed.is_empty(), "no row is named like {:?}", plan.words);
    println!("\n{}", table::text(&measured));
    if let Some(docs) = docs {
        table::write(docs, &facts, &measured, &order())
            .with_context(|| format!("cannot write the results to {}", docs.display()))?;
    }
    ensure!(failed.is_empty(), "not measured:\n{}", failed.join("\n"));
    Ok(())
}

/// The rows as the table lists them: name and engine.
fn order() -> Vec<(&'static str, Engine)> {
    let rows = |group: &'static Group| {
        group.rows.iter().flat_map(|row| group.engines.iter().map(|e| (row.name, *e)))
    };
    GROUPS.iter().flat_map(rows).collect()
}

fn rounds(plan: &Plan, group: &Group, engine: Engine) -> anyhow::Result<Vec<Measured>> {
    let mut sides = vec![Side::Sluice];
    if plan.juicefs.is_some() {
        sides.push(Side::JuiceFs);
    }
    let mut rows: Vec<Measured> = group.rows.iter().map(|row| Measured::new(*row, engine)).collect();
    for round in 0..plan.rounds {
        // Who comes first changes: what one leaves behind for the next must not always hit the same.
        sides.reverse();
        for &side in sides.iter().chain(&[Side::Limit]) {
            // What the turn before left to be written out is no work of this one.
            rustix::fs::sync();
            let figures = (group.turn)(&Turn { plan, side, engine, round })
                .with_context(|| format!("{side:?}, round {}", round + 1))?;
            ensure!(figures.len() == rows.len(), "{} figures for {} rows", figures.len(), rows.len());
            for (row, figure) in rows.iter_mut().zip(figures) {
                row.add(side, figure);
            }
        }
        for row in &rows {
            eprintln!("{}", row.line(round));
        }
    }
    Ok(rows)
}

/// How many a second, `count` of them having taken as long as it is since `start`.
fn rate(count: usize, start: std::time::Instant) -> f64 {
    count as f64 / start.elapsed().as_secs_f64().max(1e-9)
}
