//! Rows about many clients: eight processes that create at once, in one directory and in a
//! directory each.
//!
//! What must stay true: the start of a client is not part of the measured time. It only opens the
//! volume and formats nothing.

use super::{Side, Turn, metadata};
use anyhow::Context;
use std::thread;

const CLIENTS: usize = 8;
/// Threads of each client.
const THREADS: usize = 12;

/// Files a second of all clients in one directory, the same in a directory each, what the first is
/// of the second, and what the slowest client in the one directory does of what the fastest does.
pub(super) fn turn(turn: &Turn) -> anyhow::Result<Vec<Option<f64>>> {
    if turn.side == Side::Limit {
        return Ok(vec![None; 4]);
    }
    // As in other rows, what is measured second finds a fuller volume: the order changes.
    let private_first = turn.round.is_multiple_of(2);
    let volume = turn.volume()?;
    let mut rates = [private_first, !private_first]
        .map(|private| clients(turn, &volume.meta, private).map(|rates| (private, rates)))
        .into_iter()
        .collect::<anyhow::Result<Vec<_>>>()?;
    rates.sort_by_key(|(private, _)| *private);
    let [shared, private] = [0, 1].map(|at| rates[at].1.iter().sum::<f64>());
    let least = rates[0].1.iter().copied().fold(f64::INFINITY, f64::min);
    let most = rates[0].1.iter().copied().fold(0.0, f64::max);
    Ok([shared, private, 100.0 * shared / private, 100.0 * least / most].map(Some).to_vec())
}

/// The rate of each client, all of them at work at once.
fn clients(turn: &Turn, meta: &str, private: bool) -> anyhow::Result<Vec<f64>> {
    let [threads, files] = [THREADS, turn.plan.sizes.crowd / (CLIENTS * THREADS)].map(|n| n.to_string());
    let client = |client: usize| -> anyhow::Result<f64> {
        let dir = if private { format!("/private-{client}") } else { "/shared".into() };
        let first = (client * THREADS).to_string();
        let output = crate::rig::command(
            turn.program(),
            &[
                "mdtest",
                "--depth",
                "0",
                "--dirs",
                "1",
                "--write",
                "8192",
                "--threads",
                &threads,
                "--files",
                &files,
                "--first-thread",
                &first,
                meta,
                &dir,
            ],
        )?;
        metadata::files_per_second(&output).with_context(|| format!("mdtest printed no rate:\n{output}"))
    };
    thread::scope(|scope| {
        let client = &client;
        let working: Vec<_> = (0..CLIENTS).map(|number| scope.spawn(move || client(number))).collect();
        working
            .into_iter()
            .map(|client| client.join().map_err(|_| anyhow::anyhow!("a client's thread died"))?)
            .collect()
    })
}
