//! Rows about single operations on metadata, one thread, and the geometric mean of all.
//!
//! What must stay true: a row means the same on both sides. Sluice measures itself (`bench-meta`);
//! the figures of `JuiceFS` come from the benchmarks in its source, which the user must build
//! first.

use super::{NOTHING, Plan, Row, Side, Targets, Turn, Unit, all};
use anyhow::{Context, bail, ensure};
use serde_json::Value;
use std::{
    collections::HashMap,
    os::unix::fs::PermissionsExt,
    path::Path,
    process::{Command, Stdio},
};

const MICROS: Unit = Unit::Cost("µs");

const fn row(name: &'static str) -> Row {
    Row { name, unit: MICROS, targets: Targets { tikv: 0.0, ..all(1.0) } }
}

/// What stands before the names of operations.
const PREFIX: &str = "meta ";

pub(super) const ROWS: [Row; 25] = [
    row("meta mkdir"),
    row("meta mvdir"),
    row("meta rmdir"),
    row("meta readdir_10"),
    row("meta readdir_1k"),
    row("meta mknod"),
    row("meta create"),
    row("meta rename"),
    row("meta unlink"),
    row("meta lookup"),
    row("meta getattr"),
    row("meta setattr"),
    row("meta access"),
    row("meta setxattr"),
    row("meta getxattr"),
    row("meta removexattr"),
    row("meta listxattr_1"),
    row("meta listxattr_10"),
    row("meta link"),
    row("meta symlink"),
    row("meta newchunk"),
    row("meta write"),
    row("meta read_1"),
    row("meta read_10"),
    Row {
        name: "meta: geometric mean",
        unit: MICROS,
        targets: Targets { redis: 1.5, postgres: 2.0, mariadb: 2.0, ..NOTHING },
    },
];

/// Whether somebody said where the figures of `JuiceFS` are.
pub(super) fn rival(plan: &Plan) -> bool {
    plan.juicefs_meta.is_some()
}

pub(super) fn turn(turn: &Turn) -> anyhow::Result<Vec<Option<f64>>> {
    let micros = match (turn.side, &turn.plan.juicefs_meta) {
        (Side::Sluice, _) => own(turn)?,
        (Side::JuiceFs, Some(source)) => go(&printed(turn, source)?),
        (Side::Limit, _) | (_, None) => return Ok(vec![None; ROWS.len()]),
    };
    let names = ROWS.iter().filter_map(|row| row.name.strip_prefix(PREFIX));
    let of = |name| micros.get(name).copied().with_context(|| format!("no figure of {name}"));
    let mut figures = names.map(of).collect::<anyhow::Result<Vec<f64>>>()?;
    let logarithms: f64 = figures.iter().map(|figure| figure.ln()).sum();
    figures.push((logarithms / figures.len() as f64).exp());
    Ok(figures.into_iter().map(Some).collect())
}

/// What Sluice takes, in microseconds by operation.
fn own(turn: &Turn) -> anyhow::Result<HashMap<String, f64>> {
    let volume = turn.volume()?;
    let time = format!("{}ms", turn.plan.sizes.operation.as_millis());
    let output = volume.command(&["bench-meta", "--json", "--duration", &time, &volume.meta])?;
    // What it said on the way follows.
    let report = serde_json::Deserializer::from_str(&output).into_iter::<Value>().next();
    let report = report.with_context(|| format!("bench-meta printed no figures:\n{output}"))??;
    let figure = |row: &Value| Some((row["name"].as_str()?.to_owned(), row["us"].as_f64()?));
    Ok(report["rows"].as_array().into_iter().flatten().filter_map(figure).collect())
}

/// What the benchmarks of `JuiceFS` print: now, on a volume of the same kind, or long ago into a
/// file.
fn printed(turn: &Turn, source: &str) -> anyhow::Result<String> {
    let file = Path::new(source);
    if file.metadata().is_ok_and(|found| found.is_file() && found.permissions().mode() & 0o111 == 0) {
        return std::fs::read_to_string(file).with_context(|| format!("cannot read {source}"));
    }
    let volume = turn.volume()?;
    let time = format!("{}ms", turn.plan.sizes.operation.as_millis());
    let mut command = Command::new("sh");
    command.args(["-c", source]).env("META_URL", &volume.meta).env("BENCH_TIME", time);
    let output = command.stdin(Stdio::null()).output()?;
    let said = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    if !output.status.success() {
        bail!("{source}: {}\n{}\n{}", output.status, said(&output.stdout), said(&output.stderr));
    }
    let text = said(&output.stdout);
    ensure!(!go(&text).is_empty(), "{source} printed no figures:\n{text}");
    Ok(text)
}

/// Microseconds by operation, from lines such as `BenchmarkRedis/mkdir-2   9000   123456 ns/op`. Of
/// several with one name the last counts.
fn go(text: &str) -> HashMap<String, f64> {
    let figure = |line: &str| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let unit = words.iter().position(|word| *word == "ns/op")?;
        let nanos: f64 = words.get(unit.checked_sub(1)?)?.parse().ok()?;
        let (_, name) = words.first()?.strip_prefix("Benchmark")?.rsplit_once('/')?;
        // The number of processors comes after it if there is more than one.
        let name = match name.rsplit_once('-') {
            Some((name, processors)) if processors.bytes().all(|byte| byte.is_ascii_digit()) => name,
            _ => name,
        };
        Some((name.to_owned(), nanos / 1000.0))
    };
    text.lines().filter_map(figure).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_as_go_prints_them() {
        let text = "goos: linux\nBenchmarkSQL/mkdir-2   \t 8\t 123456 ns/op\t 12 B/op\nBenchmarkSQL/read_1 \t 9\t 45.5 ns/op\nok\n";
        let figures = go(text);
        assert_eq!(figures.len(), 2);
        assert!((figures["mkdir"] - 123.456).abs() < 1e-9 && (figures["read_1"] - 0.0455).abs() < 1e-9);
        assert!(go("BenchmarkSQL\nBenchmarkSQL/mkdir-2\nns/op\n").is_empty());
    }
}
