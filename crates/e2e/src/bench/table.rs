//! The table of results, printed and in the documentation.
//!
//! What must stay true: writing results replaces figures only. What people wrote in the last column
//! stays, and so do the rows that this run did not measure.

use super::{Plan, stats::Measured};
use crate::rig::Engine;
use anyhow::Context;
use std::{fs, path::Path, process::Command};

const BEGIN: &str = "<!-- results: written by `scripts/bench --write`, but for the last column -->";
const END: &str = "<!-- end of results -->";
const HEAD: [&str; 8] =
    ["row", "engine", "Sluice", "JuiceFS", "ratio (spread)", "target", "limit", "what limits it"];

/// The engine as tables call it.
pub(super) fn name(engine: Engine) -> &'static str {
    match engine {
        Engine::Sqlite => "SQLite",
        Engine::Redis => "Redis",
        Engine::RedisCluster => "Redis Cluster",
        Engine::RedisSentinel => "Redis Sentinel",
        Engine::Postgres => "PostgreSQL",
        Engine::Tikv => "TiKV",
        Engine::Etcd => "etcd",
        Engine::Mariadb => "MariaDB",
    }
}

/// What was measured where.
pub(super) fn facts(plan: &Plan) -> String {
    let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
    let kernel = read("/proc/sys/kernel/osrelease");
    let cpu = read("/proc/cpuinfo");
    let cpu = cpu.lines().find(|line| line.starts_with("model name")).and_then(|line| line.split_once(": "));
    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    let memory: u64 = field(&read("/proc/meminfo"), "MemTotal:") >> 20;
    let options = plan.mount_options.iter().map(|option| format!(" {option}"));
    let mut programs = vec![version(&plan.sluice) + &options.collect::<String>()];
    programs.extend(plan.juicefs.as_deref().map(version));
    format!(
        "{cores} cores ({}), {memory} GiB, Linux {}; {}; rounds: {}.",
        cpu.map_or("unknown", |(_, name)| name),
        kernel.trim(),
        programs.join(" and "),
        plan.rounds
    )
}

/// The number after `key` at the start of a line of a file of /proc; 0 if there is none.
pub(super) fn field(text: &str, key: &str) -> u64 {
    let line = text.lines().find_map(|line| line.strip_prefix(key));
    line.and_then(|rest| rest.split_whitespace().next()?.parse().ok()).unwrap_or(0)
}

fn version(program: &Path) -> String {
    let output = Command::new(program).arg("version").output();
    let text = output.map(|output| String::from_utf8_lossy(&output.stdout).into_owned()).unwrap_or_default();
    text.lines().next().unwrap_or("an unknown version").trim().to_owned()
}

/// The results as a table.
pub(super) fn text(measured: &[Measured]) -> String {
    layout(&measured.iter().map(|row| line(row, "")).collect::<Vec<_>>())
}

fn line(measured: &Measured, why: &str) -> [String; 8] {
    let [sluice, juicefs, ratio, target, limit] = measured.cells();
    let names = (measured.row.name.to_owned(), name(measured.engine).to_owned());
    [names.0, names.1, sluice, juicefs, ratio, target, limit, why.to_owned()]
}

fn layout(lines: &[[String; 8]]) -> String {
    let lines: Vec<[String; 8]> =
        std::iter::once(HEAD.map(String::from)).chain(lines.iter().cloned()).collect();
    // The last column is prose and may be as long as it likes.
    let width = |column: usize| {
        let lines = if column == 7 { &lines[..1] } else { &lines[..] };
        lines.iter().map(|line| line[column].chars().count()).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..8).map(width).collect();
    let row = |cells: &[String; 8]| {
        let cells: Vec<String> =
            cells.iter().zip(&widths).map(|(cell, width)| format!("{cell:<width$}")).collect();
        format!("| {} |\n", cells.join(" | "))
    };
    let mut rows: Vec<String> = lines.iter().map(row).collect();
    rows.insert(
        1,
        format!("|{}\n", widths.iter().map(|width| "-".repeat(width + 2) + "|").collect::<String>()),
    );
    rows.concat()
}

/// Puts the results into the file at `docs`.
pub(super) fn write(
    docs: &Path,
    facts: &str,
    measured: &[Measured],
    order: &[(&str, Engine)],
) -> anyhow::Result<()> {
    let old = fs::read_to_string(docs)?;
    Ok(fs::write(docs, merge(&old, facts, measured, order)?)?)
}

fn merge(old: &str, facts: &str, measured: &[Measured], order: &[(&str, Engine)]) -> anyhow::Result<String> {
    let missing = || format!("no lines {BEGIN:?} and {END:?}");
    let (before, rest) = old.split_once(BEGIN).with_context(missing)?;
    let (results, after) = rest.split_once(END).with_context(missing)?;
    let known: Vec<[String; 8]> = results.lines().filter_map(cells).collect();
    let mut lines = Vec::new();
    for &(row, engine) in order {
        let was = known.iter().find(|line| line[0] == row && line[1] == name(engine));
        let is = measured.iter().find(|measured| measured.row.name == row && measured.engine == engine);
        lines.extend(match is {
            Some(measured) => Some(line(measured, was.map_or("", |line| &line[7]))),
            None => was.cloned(),
        });
    }
    Ok(format!("{before}{BEGIN}\n\n{facts}\n\n{}\n{END}{after}", layout(&lines)))
}

fn cells(line: &str) -> Option<[String; 8]> {
    let inner = line.trim().strip_prefix('|')?.strip_suffix('|')?;
    inner.splitn(8, '|').map(|cell| cell.trim().to_owned()).collect::<Vec<_>>().try_into().ok()
}

#[cfg(test)]
mod tests {
    use super::{
        super::{Row, Side, Targets, Unit},
        *,
    };

    fn measured(name: &'static str, figure: f64) -> Measured {
        let targets = Targets { redis: 1.5, ..Targets::default() };
        let mut measured = Measured::new(Row { name, unit: Unit::Cost("s"), targets }, Engine::Redis);
        measured.add(Side::Sluice, Some(figure));
        measured.add(Side::JuiceFs, Some(3.0));
        measured
    }

    #[test]
    fn prose_and_rows_not_measured_stay() -> anyhow::Result<()> {
        let order = [("clone", Engine::Redis), ("rmr", Engine::Redis)];
        let empty = format!("# Title\n{BEGIN}\nNone yet.\n{END}\nmore\n");
        let first = merge(&empty, "2 cores", &[measured("rmr", 1.0), measured("clone", 1.0)], &order)?;
        let commented: Vec<String> = first
            .lines()
            .map(|line| match line.strip_suffix(" |").filter(|line| line.starts_with("| rmr")) {
                Some(line) => format!("{}its | pipe |", line.trim_end_matches(' ').to_owned() + " "),
                None => line.to_owned(),
            })
            .collect();
        let second = merge(&(commented.join("\n") + "\n"), "4 cores", &[measured("rmr", 2.0)], &order)?;
        assert!(second.starts_with("# Title\n") && second.ends_with("\nmore\n"), "{second}");
        assert!(second.contains("4 cores") && !second.contains("2 cores"), "{second}");
        let lines: Vec<[String; 8]> = second.lines().filter_map(cells).collect();
        assert_eq!(lines.len(), 4, "{second}");
        assert_eq!(lines[2][0], "clone");
        assert_eq!(lines[2][4], "3.00 (3.00 - 3.00)");
        assert_eq!([&lines[3][2], &lines[3][5], &lines[3][7]], ["2.00 s", "1.5, met", "its | pipe"]);
        assert!(merge("no markers", "", &[], &order).is_err());
        Ok(())
    }

    #[test]
    fn fields_of_proc() {
        assert_eq!(field("Name:\tx\nVmRSS:\t  1234 kB\n", "VmRSS:"), 1234);
        assert_eq!(field("", "VmRSS:"), 0);
    }
}
