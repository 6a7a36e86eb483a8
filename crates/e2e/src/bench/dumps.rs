//! Rows about dumps: one flat directory dumped, and the dump loaded into an empty database.
//!
//! What must stay true: both programs dump the same volume, and what was loaded holds all of it.

use super::{Side, Turn, limit, metadata};
use crate::rig::{Engine, Volume, command};
use anyhow::{Context, ensure};
use serde_json::Value;
use std::time::Instant;

/// Files per transaction of the bare engine: as many as a load puts into one.
const PER_COMMIT: usize = 5_000;

/// Seconds of a dump and a load, as JSON and binary.
pub(super) fn turn(turn: &Turn) -> anyhow::Result<Vec<Option<f64>>> {
    let files = turn.plan.sizes.flat;
    if turn.side == Side::Limit {
        let both = match turn.engine {
            Engine::Tikv => Some(limit::tikv::rows(&turn.volume()?, files)?),
            Engine::Etcd => Some(limit::etcd::rows(&turn.volume()?, files)?),
            _ => None,
        };
        if let Some([dump, load]) = both.map(|both| both.map(Some)) {
            return Ok(vec![dump, load, dump, load]);
        }
        let load = limit::rows(turn, files, PER_COMMIT)?[0].map(|rate| files as f64 / rate);
        return Ok(vec![None, load, None, load]);
    }
    // JuiceFS would take minutes to make them on some engines; the records are the same.
    let source = Volume::new(&turn.plan.sluice, turn.engine, &turn.plan.within, &[])?;
    metadata::fill(&Turn { side: Side::Sluice, ..*turn }, &source, files)?;
    let mut figures = Vec::new();
    for flags in [&[][..], &["--binary"]] {
        let dump = source.path("dump").to_string_lossy().into_owned();
        let start = Instant::now();
        command(turn.program(), &[&["dump"], flags, &[&source.meta, &dump]].concat())?;
        figures.push(Some(start.elapsed().as_secs_f64()));

        let loaded = Volume::unformatted(turn.program(), turn.engine, &turn.plan.within)?;
        rustix::fs::sync();
        let start = Instant::now();
        loaded.command(&[&["load"], flags, &[&loaded.meta, &dump]].concat())?;
        figures.push(Some(start.elapsed().as_secs_f64()));
        let [before, after] =
            [&source, &loaded].map(|volume| used_inodes(turn, volume).context("the volume's usage"));
        let (before, after) = (before?, after?);
        ensure!(before == after && before > files as u64, "{after} of {before} inodes were loaded");
    }
    Ok(figures)
}

/// Inodes that the volume counts.
fn used_inodes(turn: &Turn, volume: &Volume) -> anyhow::Result<u64> {
    let status = command(&turn.plan.sluice, &["status", &volume.meta])?;
    let status: Value =
        serde_json::Deserializer::from_str(&status).into_iter().next().context("no status")??;
    status["Stat"]["UsedInodes"].as_u64().context("no UsedInodes in the status")
}
