//! Benchmarks: the throughput of Sluice, of `JuiceFS` in the same run, and of the engine or FUSE
//! alone.
//!
//! What must stay true: both programs do the same work, on volumes of the same kind, with the same
//! durability, in turns whose order changes from round to round. A figure is an error if its work
//! was not done.

mod backups;
mod clients;
mod dumps;
mod file;
mod limit;
mod memory;
mod metadata;
mod operations;
mod place;
mod plan;
mod row;
mod small;
mod stats;
mod streams;
mod table;
mod trips;
mod turn;

pub use self::plan::{Plan, Sizes};
use crate::rig::Engine;
use anyhow::{Context, ensure};
use row::{NOTHING, Row, Targets, Unit, all, local};
use stats::Measured;
use std::path::Path;
use turn::{Side, Turn, rate};

/// Rows that one turn measures together: one figure for each, or none where there is no limit to
/// measure.
struct Group {
    engines: &'static [Engine],
    /// Engines to measure by default. If there is none, the rows are measured only when somebody
    /// names engines or these rows.
    usual: &'static [Engine],
    rows: &'static [Row],
    turn: fn(&Turn) -> anyhow::Result<Vec<Option<f64>>>,
    /// Whether `JuiceFS` is measured, too.
    rival: fn(&Plan) -> bool,
}

fn program(plan: &Plan) -> bool {
    plan.juicefs.is_some()
}

const ALL: &[Engine] = &[Engine::Redis, Engine::Sqlite, Engine::Postgres, Engine::Mariadb, Engine::Tikv];
/// Engines that are one server.
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
        engines: &[
            Engine::Redis,
            Engine::Sqlite,
            Engine::Postgres,
            Engine::Mariadb,
            Engine::Tikv,
            Engine::Etcd,
        ],
        usual: LOCAL,
        rows: &[
            Row { name: "dump json", unit: SECONDS, targets: Targets { mariadb: 20.0, ..all(1.5) } },
            Row { name: "load json", unit: SECONDS, targets: all(1.5) },
            Row { name: "dump binary", unit: SECONDS, targets: all(1.5) },
            Row { name: "load binary", unit: SECONDS, targets: all(1.5) },
        ],
        turn: dumps::turn,
        rival: program,
    },
    Group {
        engines: ALL,
        usual: &[],
        rows: &[
            Row { name: "mdtest during backups", unit: PERCENT, targets: NOTHING },
            Row { name: "memory for backups", unit: MEMORY, targets: NOTHING },
        ],
        turn: backups::turn,
        rival: |_| false,
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
        engines: LOCAL,
        usual: LOCAL,
        rows: &[
            Row { name: "2 writers", unit: BYTES, targets: local(1.2) },
            Row { name: "4 writers, fsync", unit: BYTES, targets: local(1.2) },
            Row { name: "writer of 128 KiB", unit: BYTES, targets: local(1.2) },
            Row { name: "processor for a GiB written", unit: SECONDS, targets: local(1.43) },
            Row { name: "cold read, 1 stream", unit: BYTES, targets: local(1.2) },
            Row { name: "cold read, 4 streams", unit: BYTES, targets: local(1.2) },
            Row { name: "processor for a GiB read", unit: SECONDS, targets: local(1.43) },
        ],
        turn: streams::turn,
        rival: program,
    },
    Group {
        engines: LOCAL,
        usual: LOCAL,
        rows: &[Row { name: "4 writers, synced", unit: BYTES, targets: NOTHING }],
        turn: streams::synced,
        rival: |_| false,
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
    /// Those of its engines that the plan requests.
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
        // The order changes, so that what one leaves behind does not always affect the same one.
        sides.reverse();
        for &side in sides.iter().chain(&[Side::Limit]) {
            // Unwritten data of the turn before is no work of this one.
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::PathBuf;

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
