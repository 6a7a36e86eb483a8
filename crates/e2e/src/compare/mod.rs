//! Does the same random operations in two directories and compares all that can be seen: answers,
//! data, metadata, extended attributes, links and names. One directory is the reference, on a file
//! system that is trusted.
//!
//! A run is a function of its seed. One that fails is shortened to the operations that matter,
//! which can be repeated by their numbers. Memory maps are left to fsx: mapping is `unsafe`, and
//! this crate is not.

mod capability;
mod facts;
mod generate;
mod op;
mod side;
mod tree;

pub use capability::Capabilities;
pub use facts::{Facts, Links};
pub use generate::generate;
pub use op::{How, Op, RenameHow, Reserve, Special};
pub use side::{Outcome, Seen, Side};
pub use tree::difference;

use anyhow::Context;
use std::{
    fmt,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

/// What to do.
#[derive(Debug, Clone)]
pub struct Plan {
    /// The trusted directory. It must be writable and is left as it was.
    pub reference: PathBuf,
    /// The directory under test, the same way.
    pub tested: PathBuf,
    /// Where the random numbers begin.
    pub seed: u64,
    /// How many operations.
    pub operations: usize,
    /// Only those of these numbers, if any.
    pub only: Vec<usize>,
    /// Whole trees are compared after so many operations, and at the end.
    pub every: usize,
    /// Whether open files are synced before anything is looked at through its name: for file
    /// systems that show the attributes of written data only once it is flushed. Sluice is not
    /// excused.
    pub sync: bool,
    /// How long a failure may take to be shortened.
    pub shorten: Duration,
}

/// Two directories that are not alike.
#[derive(Debug)]
pub struct Different {
    /// The seed.
    pub seed: u64,
    /// What was seen, where.
    pub what: String,
    /// The numbers of the operations that lead there, and what they do.
    pub operations: Vec<(usize, Op)>,
    /// How many operations the run had.
    pub of: usize,
}

impl fmt::Display for Different {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(to, "the directories differ: {}", self.what)?;
        for (number, op) in &self.operations {
            writeln!(to, "{number:>8}  {op:?}")?;
        }
        let numbers: Vec<String> = self.operations.iter().map(|(number, _)| number.to_string()).collect();
        write!(to, "to repeat: --seed {} --operations {} --only {}", self.seed, self.of, numbers.join(","))
    }
}

/// Runs the plan. `Ok(None)` says that no difference was seen.
pub fn run(plan: &Plan) -> anyhow::Result<Option<Different>> {
    let can = Capabilities::probe(&plan.reference)
        .with_context(|| format!("cannot work in the reference directory {}", plan.reference.display()))?;
    let ops: Vec<(usize, Op)> = generate(plan.seed, plan.operations, can).into_iter().enumerate().collect();
    let chosen: Vec<(usize, Op)> =
        ops.into_iter().filter(|(number, _)| plan.only.is_empty() || plan.only.contains(number)).collect();
    let Some((at, what)) = attempt(plan, can, &chosen, plan.every)? else { return Ok(None) };
    let mut found =
        Different { seed: plan.seed, what, operations: chosen[..=at].to_vec(), of: plan.operations };
    shorten(plan, can, &mut found)?;
    Ok(Some(found))
}

/// Takes away what the difference does not need: halves first, then quarters, down to single
/// operations.
fn shorten(plan: &Plan, can: Capabilities, found: &mut Different) -> anyhow::Result<()> {
    let begin = Instant::now();
    let mut part = found.operations.len() / 2;
    while part > 0 {
        let mut from = 0;
        while from < found.operations.len() && begin.elapsed() < plan.shorten {
            let end = (from + part).min(found.operations.len());
            let mut fewer = found.operations.clone();
            fewer.drain(from..end);
            // A difference that only the end shows must be looked for there.
            match attempt(plan, can, &fewer, usize::MAX)? {
                Some((at, what)) => {
                    fewer.truncate(at + 1);
                    found.operations = fewer;
                    found.what = what;
                }
                None => from = end,
            }
        }
        part /= 2;
    }
    Ok(())
}

/// Does `ops` in fresh folders of both directories; the place and kind of the first difference.
fn attempt(
    plan: &Plan,
    can: Capabilities,
    ops: &[(usize, Op)],
    every: usize,
) -> anyhow::Result<Option<(usize, String)>> {
    let fresh = |within: &Path| {
        tempfile::Builder::new()
            .prefix("compare-")
            .permissions(std::os::unix::fs::PermissionsExt::from_mode(0o755))
            .tempdir_in(within)
            .with_context(|| format!("cannot make a folder in {}", within.display()))
    };
    let (left, right) = (fresh(&plan.reference)?, fresh(&plan.tested)?);
    let mut sides =
        [&left, &right].map(|folder| Side::new(folder.path().to_owned(), Links::of(can.folder_links)));
    let [reference, tested] = &mut sides;
    for (at, (_, op)) in ops.iter().enumerate() {
        let (expected, got) = (reference.apply(op), tested.apply(op));
        if expected != got {
            return Ok(Some((at, format!("{op:?}\n  expected {expected:?}\n  got      {got:?}"))));
        }
        if plan.sync && (!op.paths().is_empty() || (at + 1) % every.max(1) == 0) {
            reference.sync_all();
            tested.sync_all();
        }
        for path in op.paths() {
            let (expected, got) = (reference.facts(path), tested.facts(path));
            if expected != got {
                let what = format!("{path:?} after {op:?}\n  expected {expected:?}\n  got      {got:?}");
                return Ok(Some((at, what)));
            }
        }
        if (at + 1) % every.max(1) == 0
            && let Some(what) = difference(reference, tested)
        {
            return Ok(Some((at, what)));
        }
    }
    if plan.sync {
        tested.sync_all();
    }
    if let Some(what) = difference(reference, tested) {
        return Ok(Some((ops.len().saturating_sub(1), what)));
    }
    // What was written to files without a name is compared through their names no more; closing
    // must not change the rest.
    reference.close_all();
    tested.close_all();
    Ok(difference(reference, tested)
        .map(|what| (ops.len().saturating_sub(1), format!("after closing all: {what}"))))
}
