//! Benchmarks: the throughput of Sluice, of `JuiceFS` in the same run, and of the engine or FUSE
//! alone.
//!
//! What must stay true: both programs do the same work, on volumes of the same kind, with the same
//! durability, in turns whose order changes from round to round. A figure is an error if its work
//! was not done.

mod backups;
mod bare_store;
mod busy;
mod clients;
mod dumps;
mod far_store;
mod file;
mod groups;
mod limit;
mod memory;
mod metadata;
mod operations;
mod pages;
mod place;
mod plan;
mod published;
mod ranks;
mod row;
mod small;
mod stats;
mod streams;
mod table;
mod trees;
mod trips;
mod turn;

pub use self::plan::{Plan, Sizes};
use crate::rig::Engine;
use anyhow::{Context, ensure};
use groups::{GROUPS, Group};
use row::{NOTHING, Row, Targets, Unit, all};
use stats::Measured;
use std::path::Path;
use turn::{Side, Turn, rate};

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
    use super::{
        groups::{ALL, LOCAL},
        *,
    };
    use std::path::PathBuf;

    fn plan(engines: Option<&[Engine]>, words: &[&str]) -> Plan {
        Plan {
            sluice: PathBuf::new(),
            juicefs: None,
            juicefs_meta: None,
            mdtest: None,
            floor: None,
            within: PathBuf::new(),
            engines: engines.map(<[Engine]>::to_vec),
            mount_options: Vec::new(),
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
