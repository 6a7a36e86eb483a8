//! Finds the records that caused the conflict of a commit.

use sluice_meta::{
    engine::{EngineError, Found, Read},
    schema::Key,
};

/// Which of these records exist, if it is known that some of them do. Returns all of them if it
/// finds none, because the unique key of some tables is narrower than ours.
pub(crate) fn existing(
    keys: Vec<Key>,
    ask: impl FnOnce(&[Read]) -> Result<Vec<Found>, EngineError>,
) -> Vec<Key> {
    let reads: Vec<Read> = keys.iter().cloned().map(Read::Get).collect();
    let found = ask(&reads).unwrap_or_default();
    let there = keys.iter().zip(found).filter(|(_, found)| matches!(found, Found::Row(Some(_))));
    let there: Vec<Key> = there.map(|(key, _)| key.clone()).collect();
    if there.is_empty() { keys } else { there }
}
