//! What `fsck` and `gc` found, stored in the volume, where the console reads it.

use std::time::Instant;

use anyhow::Result;
use serde_json::{Map, Value};
use sluice_types::{Clock as _, Interrupt, SystemClock};

use crate::volume;

/// Stores the findings of a run that began at `begun`, in place of those of the run before. A check
/// does not fail because its findings cannot be stored: the user has read them.
pub(crate) fn store(
    meta_url: &str,
    (number, purpose): (u64, &str),
    begun: Instant,
    found: Map<String, Value>,
) {
    if let Err(error) = try_store(meta_url, (number, purpose), begun, found) {
        tracing::warn!("the console will not show these findings, which could not be stored: {error:#}");
    }
}

fn try_store(
    meta_url: &str,
    (number, purpose): (u64, &str),
    begun: Instant,
    mut found: Map<String, Value>,
) -> Result<()> {
    found.insert("at".into(), SystemClock.now().sec.into());
    found.insert("took_seconds".into(), begun.elapsed().as_secs().into());
    let meta = volume::open_meta(meta_url, purpose, false)?;
    let stored = meta.put_report(number, serde_json::to_vec(&found)?.into(), &Interrupt::never());
    meta.close()?;
    Ok(stored?)
}
