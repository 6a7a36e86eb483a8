//! Benchmarks: what Sluice does in a second, and what `JuiceFS` does beside it in the same run, and what the engine or
//! FUSE alone would do.
//!
//! What must stay true: both programs do the same work, on volumes of the same kind, at the same durability, in turns
//! whose order changes from round to round; a figure without its work being done is an error.

mod clients;
mod file;
mod limit;
mod memory;
mod metadata;
mod operations;
mod place;
mod small;
mod stats;
mod table;
mod trips;

use crate::rig::{Engine, Volume};
use anyhow::{Context, ensure};
use stats::{Measured, Unit};
use std::{
    path::{Path, PathBuf},
    time::Duration,
};

/// What to measure, and how.
#[derive(Debug)]
pub struct Plan {
    /// The program.
    pub sluice: PathBuf,
    /// The one beside it.
    pub juicefs: Option<PathBuf>,
    /// A program that mounts a file system in memory on its first argument: what FUSE alone can do.
    pub floor: Option<PathBuf>,
    /// What prints the figures of `JuiceFS`' operations on metadata as `go test -bench` does, all on one engine: a file, or
    /// a command that is told a volume's URL as `META_URL` and the time for each operation as `BENCH_TIME`.
    pub juicefs_meta: Option<String>,
    /// Where volumes are made.
    pub within: PathBuf,
    /// Engines to measure on; those of each row's own choice if it is none.
    pub engines: Option<Vec<Engine>>,
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
    /// Files of eight clients together, a multiple of 96.
    pub crowd: usize,
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
    /// Time for each operation on metadata.
    pub operation: Duration,
    /// Files created, renamed and unlinked through the mount of a volume that is far away.
    pub far: usize,
    /// Files touched and removed through the mount, whose trips are counted.
    pub counted: usize,
}

impl Sizes {
    /// What a claim is made from.
    pub const FULL: Self = Self {
        many: 10_000,
        crowd: 48_000,
        alone: 5_000,
        flat: 100_000,
        small: 3_000,
        large: 1024,
        random: 10_000,
        operation: Duration::from_millis(500),
        far: 200,
        counted: 1_000,
    };
    /// To see that all rows run.
    pub const QUICK: Self = Self {
        many: 1_000,
        crowd: 960,
        alone: 200,
        flat: 1_000,
        small: 200,
        large: 32,
        random: 300,
        operation: Duration::from_millis(5),
        far: 10,
        counted: 50,
    };
}

/// One line of the table.
#[derive(Debug, Clone, Copy)]
struct Row {
    name: &'static str,
    unit: Unit,
    targets: Targets,
}

/// How many times as good as `JuiceFS` a row has to be; 0 where nothing is claimed.
#[derive(Debug, Clone, Copy, Default)]
struct Targets {
    redis: f64,
    sqlite: f64,
    postgres: f64,
    mariadb: f64,
    tikv: f64,
}

/// Rows that one turn measures together: one figure for each, or none where there is no limit to measure.
struct Group {
    engines: &'static [Engine],
    /// Those measured on if nobody names engines. If it is none of them, the rows are only measured when somebody names
    /// engines, or the rows.
    usual: &'static [Engine],
    rows: &'static [Row],
    turn: fn(&Turn) -> anyhow::Result<Vec<Option<f64>>>,
    /// Whether `JuiceFS` has a turn.
    rival: fn(&Plan) -> bool,
}

fn program(plan: &Plan) -> bool {
    plan.juicefs.is_some()
}

const ALL: &[Engine] = &[Engine::Redis, Engine::Sqlite, Engine::Postgres, Engine::Mariadb, Engine::Tikv];
/// Those that are one server.
const SERVERS: &[Engine] = &[Engine::Redis, Engine::Postgres, Engine::Mariadb];
const SQL_SERVERS: &[Engine] = &[Engine::Postgres, Engine::Mariadb];
const LOCAL: &[Engine] = &[Engine::Redis, Engine::Sqlite];
const FILES: Unit = Unit::Rate("files/s");
const OPERATIONS: Unit = Unit::Rate("/s");
const BYTES: Unit = Unit::Rate("MiB/s");
const SECONDS: Unit = Unit::Cost("s");
const MEMORY: Unit = Unit::Cost("MiB");
const PERCENT: Unit = Unit::Rate("%");
const COUNT: Unit = Unit::Cost("a file");

const NOTHING: Targets = Targets { redis: 0.0, sqlite: 0.0, postgres: 0.0, mariadb: 0.0, tikv: 0.0 };

/// The same on all engines.
const fn all(target: f64) -> Targets {
    Targets { redis: target, sqlite: target, postgres: target, mariadb: target, tikv: target }
}

/// The same on Redis and SQLite.
const fn local(target: f64) -> Targets {
    Targets { redis: target, sqlite: target, ..NOTHING }
}

const GROUPS: &[Group] = &[
    Group {
        engines: ALL,
        usual: ALL,
        rows: &[Row {
            name: "mdtest, 100 threads",
            unit: FILES,
            targets: Targets { redis: 3.0, sqlite: 8.0, postgres: 6.0, mariadb: 10.0, tikv: 2.0 },
        }],
        turn: metadata::many,
        rival: program,
    },
    Group {
        engines: ALL,
        usual: ALL,
        rows: &[Row {
            name: "mdtest, 50 threads",
            unit: FILES,
            targets: Targets { redis: 3.0, sqlite: 0.0, postgres: 6.0, mariadb: 10.0, tikv: 2.0 },
        }],
        turn: metadata::some,
        rival: program,
    },
    Group {
        engines: ALL,
        usual: ALL,
        rows: &[Row { name: "mdtest, 1 thread", unit: FILES, targets: Targets { tikv: 0.0, ..all(1.5) } }],
        turn: metadata::alone,
        rival: program,
    },
    Group {
        engines: SQL_SERVERS,
        usual: &[],
        rows: &[
            Row { name: "mdtest, 5 connections", unit: FILES, targets: all(1.0) },
            Row { name: "mdtest, 10 connections", unit: FILES, targets: all(1.0) },
            Row { name: "mdtest, 20 connections", unit: FILES, targets: all(1.0) },
        ],
        turn: metadata::few_connections,
        rival: program,
    },
    Group {
        engines: ALL,
        usual: &[],
        rows: &[
            Row { name: "8 clients, one directory", unit: FILES, targets: NOTHING },
            Row { name: "8 clients, a directory each", unit: FILES, targets: NOTHING },
            Row { name: "8 clients, one against each", unit: PERCENT, targets: NOTHING },
            Row { name: "8 clients, slowest of fastest", unit: PERCENT, targets: NOTHING },
        ],
        turn: clients::turn,
        // Its mdtest makes the tree it fills, so that no second one can join.
        rival: |_| false,
    },
    Group {
        engines: ALL,
        usual: LOCAL,
        rows: &[
            Row {
                name: "clone",
                unit: SECONDS,
                targets: Targets { redis: 2.0, sqlite: 4.0, postgres: 2.0, mariadb: 4.0, tikv: 1.5 },
            },
            Row {
                name: "rmr",
                unit: SECONDS,
                targets: Targets { redis: 1.5, sqlite: 4.0, postgres: 2.0, mariadb: 4.0, tikv: 1.5 },
            },
        ],
        turn: metadata::tree,
        rival: program,
    },
    Group {
        engines: ALL,
        usual: LOCAL,
        rows: &[
            Row { name: "fuse create", unit: OPERATIONS, targets: local(1.5) },
            Row { name: "fuse cold stat", unit: OPERATIONS, targets: local(1.5) },
            Row { name: "fuse unlink", unit: OPERATIONS, targets: local(1.5) },
        ],
        turn: small::turn,
        rival: program,
    },
    Group {
        engines: SERVERS,
        usual: &[],
        rows: &[
            Row { name: "create, 1 ms away", unit: OPERATIONS, targets: trips::FAR },
            Row { name: "rename, 1 ms away", unit: OPERATIONS, targets: trips::FAR },
            Row { name: "unlink, 1 ms away", unit: OPERATIONS, targets: trips::FAR },
        ],
        turn: trips::far,
        rival: program,
    },
    Group {
        engines: &[Engine::Mariadb],
        usual: &[],
        rows: &[
            Row { name: "round trips of touch", unit: COUNT, targets: all(2.5) },
            Row { name: "round trips of rm", unit: COUNT, targets: all(2.5) },
            Row { name: "statements of touch", unit: COUNT, targets: NOTHING },
            Row { name: "statements of rm", unit: COUNT, targets: NOTHING },
        ],
        turn: trips::counted,
        rival: program,
    },
    Group {
        engines: ALL,
        usual: &[],
        rows: &operations::ROWS,
        turn: operations::turn,
        rival: operations::rival,
    },
    Group {
        engines: &[Engine::Redis],
        usual: LOCAL,
        rows: &[
            Row { name: "sequential write", unit: BYTES, targets: local(1.0) },
            Row { name: "sequential read", unit: BYTES, targets: local(1.0) },
            Row { name: "random read", unit: OPERATIONS, targets: local(1.3) },
            Row { name: "random write", unit: OPERATIONS, targets: local(3.0) },
        ],
        turn: file::turn,
        rival: program,
    },
    Group {
        engines: &[Engine::Redis],
        usual: LOCAL,
        rows: &[
            Row { name: "memory after bench", unit: MEMORY, targets: local(2.0) },
            Row { name: "memory at its highest", unit: MEMORY, targets: NOTHING },
        ],
        turn: memory::turn,
        rival: program,
    },
];

impl Group {
    /// What of it the plan asks for.
    fn engines<'p>(&self, plan: &'p Plan) -> impl Iterator<Item = Engine> + use<'p, '_> {
        let named = plan.engines.as_deref();
        let chosen = match (named, self.usual) {
            (None, []) if !plan.words.is_empty() => self.engines,
            (None, usual) => usual,
            (Some(named), _) => named,
        };
        let engines = self.engines;
        chosen.iter().copied().filter(|engine| engines.contains(engine))
    }
}

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

    /// A new volume whose server is only reached through a proxy.
    fn volume_behind_proxy(&self) -> anyhow::Result<Volume> {
        Volume::behind_proxy(self.program(), self.engine, &self.plan.within, &[])
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
        for engine in group.engines(plan) {
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
    if (group.rival)(plan) {
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

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(engines: Option<&[Engine]>, words: &[&str]) -> Plan {
        Plan {
            sluice: PathBuf::new(),
            juicefs: None,
            juicefs_meta: None,
            floor: None,
            within: PathBuf::new(),
            engines: engines.map(<[Engine]>::to_vec),
            words: words.iter().map(|word| (*word).to_owned()).collect(),
            rounds: 1,
            seed: 1,
            sizes: Sizes::QUICK,
        }
    }

    #[test]
    fn rows_that_are_not_usual_are_measured_when_somebody_asks() {
        let group = |name: &str| {
            GROUPS.iter().find(|group| group.rows.iter().any(|row| row.name == name)).expect("a row")
        };
        let engines = |name, plan: &Plan| group(name).engines(plan).collect::<Vec<_>>();
        let usual = plan(None, &[]);
        assert_eq!(engines("mdtest, 1 thread", &usual), ALL);
        assert_eq!(engines("clone", &usual), LOCAL);
        assert_eq!(engines("memory after bench", &usual), [Engine::Redis]);
        assert_eq!(engines("meta mkdir", &usual), []);
        let rows = plan(None, &["meta", "clone"]);
        assert_eq!(engines("meta mkdir", &rows), ALL);
        assert_eq!(engines("clone", &rows), LOCAL);
        let named = plan(Some(&[Engine::Mariadb, Engine::Sqlite]), &[]);
        assert_eq!(engines("meta mkdir", &named), [Engine::Mariadb, Engine::Sqlite]);
        assert_eq!(engines("round trips of rm", &named), [Engine::Mariadb]);
        assert_eq!(engines("memory after bench", &named), []);
    }
}
