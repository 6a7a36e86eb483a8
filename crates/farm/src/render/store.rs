//! The object store of the farm: it takes a set time for each request, and counts what it gives.

use std::time::Duration;

use anyhow::{Context as _, Result};
use serde::{Deserialize, Serialize};
use sluice_testkit::server::objects::Objects;

use super::process::{obey, say};

/// What it did so far.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Counts {
    pub(crate) gets: u64,
    pub(crate) get_bytes: u64,
}

/// Says the port. `delay N` sets the time of a request in milliseconds, `counts` asks for
/// [`Counts`].
pub(crate) fn serve() -> Result<()> {
    let objects = Objects::start()?;
    say(&objects.address().port())?;
    obey(|order| {
        if let Some(delay) = order.strip_prefix("delay ") {
            objects.set_delay(Duration::from_millis(delay.parse().context("milliseconds")?));
        }
        say(&Counts { gets: objects.gets(), get_bytes: objects.get_bytes() })
    })
}
