//! The change log: a key for each line. The number of a line is a timestamp.
//!
//! The keys are spread over shards, because a cluster stores neighbouring keys on one server. What
//! must stay true: no two lines have the same number, so each line has a unique timestamp. JuiceFS
//! uses the start timestamp of the transaction, which logs one line. A transaction of Sluice may
//! start long before its commit. With its start timestamp, readers could already have read past its
//! lines. So our timestamps are taken at the commit.

use std::time::Duration;

use futures::future::try_join_all;
use sluice_meta::engine::{ChangeLog, EngineError, LogLine};
use tikv_client::Snapshot;

use super::{
    commit::COMMIT_TIMEOUT,
    store::{REQUEST_TIMEOUT, Tikv},
};
use crate::{
    keys::Keys,
    kv::{Change, Kv, look, remove_some, run, within},
    stored::{Raw, Result, Span},
};

/// Shards of the log: as many as JuiceFS makes unless it is told otherwise.
const SHARDS: u64 = 64;
/// Bits of a timestamp below its milliseconds.
const LOGICAL: u32 = 18;
/// How long it may take from the first timestamp of a line to its commit.
const LATE: Duration = REQUEST_TIMEOUT.saturating_add(COMMIT_TIMEOUT);
/// Lines removed at once.
const REMOVED: usize = 1000;
/// Fewest lines of a shard that are read together.
const FEW: usize = 16;

/// The key of a line.
fn key(keys: &Keys, number: u64) -> Raw {
    let shard = (number ^ number >> LOGICAL) % SHARDS;
    keys.log_line(shard as u8, number)
}

/// The lines of each shard from one number up to, not including, another.
fn spans(keys: &Keys, from: u64, to: u64) -> impl Iterator<Item = Span> {
    (0..SHARDS as u8)
        .map(move |shard| Span { from: keys.log_line(shard, from), to: keys.log_line(shard, to) })
}

/// Adds lines to what a transaction writes.
pub(super) async fn add_lines(
    store: &Tikv,
    lines: Vec<String>,
    changes: &mut Vec<(Raw, Change)>,
) -> Result<()> {
    if lines.is_empty() {
        return Ok(());
    }
    let mut numbers = try_join_all(lines.iter().map(|_| store.now())).await?;
    numbers.sort_unstable();
    let keys = &store.volume.keys;
    changes.extend(
        numbers.into_iter().zip(lines).map(|(number, line)| (key(keys, number), Change::Put(line.into()))),
    );
    Ok(())
}

impl ChangeLog for Tikv {
    fn last(&self) -> Result<u64, EngineError> {
        look(&self.volume, async {
            let now = self.begin().await?;
            let keys = &self.volume.keys;
            let last = spans(keys, 0, u64::MAX).map(|span| {
                let read = async move |mut snapshot: Snapshot| {
                    let keys = snapshot.scan_keys_reverse(span.from.clone()..span.to.clone(), 1).await?;
                    Ok(keys.map(Raw::from).collect::<Vec<Raw>>())
                };
                self.read(&now, read)
            });
            let last = try_join_all(last).await?;
            Ok(last.iter().flatten().filter_map(|key| keys.log_number(key)).max().unwrap_or(0))
        })
    }

    fn count(&self) -> Result<u64, EngineError> {
        let keys = &self.volume.keys;
        let mut count = 0;
        for span in spans(keys, 0, u64::MAX) {
            let lines = run(async {
                let now = self.begin().await?;
                within(&self.volume, self.range(&now, &span, usize::MAX, false)).await
            })?;
            count += lines.len() as u64;
        }
        Ok(count)
    }

    fn lines(&self, after: u64, limit: usize) -> Result<Vec<LogLine>, EngineError> {
        let keys = &self.volume.keys;
        let few = (2 * limit / SHARDS as usize).max(FEW);
        look(&self.volume, async {
            let now = self.begin().await?;
            let found =
                spans(keys, after.saturating_add(1), u64::MAX).map(|span| (span, few)).collect::<Vec<_>>();
            let pages =
                try_join_all(found.iter().map(|(span, few)| self.range(&now, span, *few, true))).await?;
            // There may be more lines of the shard after the last one of a page.
            let ends = pages.iter().filter(|page| page.len() == few);
            let end = ends.filter_map(|page| keys.log_number(&page.last()?.0)).min().unwrap_or(u64::MAX);
            let mut lines: Vec<LogLine> = pages
                .into_iter()
                .flatten()
                .filter_map(|(key, text)| Some(LogLine { number: keys.log_number(&key)?, text: text.into() }))
                .filter(|line| line.number <= end)
                .collect();
            lines.sort_unstable_by_key(|line| line.number);
            lines.truncate(limit.max(1));
            Ok(lines)
        })
    }

    fn trim(&self, to: u64) -> Result<(), EngineError> {
        for mut span in spans(&self.volume.keys, 0, to.saturating_add(1)) {
            // If it did not happen, another client is trimming it now.
            while run(remove_some(self, &mut span, REMOVED))? == Some(true) {}
        }
        Ok(())
    }

    fn settled(&self, last: u64) -> u64 {
        last.saturating_sub((LATE.as_millis() as u64) << LOGICAL)
    }
}
