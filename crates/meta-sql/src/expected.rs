//! Checks the expectations of a commit again, and finds what stood in its way.

use std::borrow::Borrow;

use rustc_hash::FxHashSet;
use sluice_meta::{
    engine::{Commit, EngineError, Expect, Found, Hold, Read, Write, has_room, still_holds},
    schema::Key,
};

/// Whether an expectation holds. `ask` reads what is needed, if anything is.
///
/// # Errors
/// That of `ask`.
pub(crate) fn holds<F: Borrow<Found>, E>(
    commit: &Commit,
    expect: &Expect,
    ask: impl FnOnce(Read) -> Result<F, E>,
) -> Result<bool, E> {
    Ok(match expect {
        Expect::Row(_, Hold::None) => true,
        Expect::Row(then, hold) => {
            let found = ask(Read::Get(then.key()))?;
            matches!(found.borrow(), Found::Row(Some(now)) if still_holds(*hold, then, now))
        }
        Expect::Absent(key) => matches!(ask(Read::Get(key.clone()))?.borrow(), Found::Row(None)),
        Expect::Vacant(dir) => {
            // Names that the commit removes.
            let leaving = commit.writes.iter().filter_map(|write| match write {
                Write::Delete(Key::Entry(of, name)) if of == dir => Some(&name[..]),
                _ => None,
            });
            let leaving: FxHashSet<&[u8]> = leaving.collect();
            let found = ask(Read::Names { dir: *dir, limit: leaving.len() + 1 })?;
            matches!(found.borrow(), Found::Names(names) if names.iter().all(|name| leaving.contains(&name[..])))
        }
        Expect::Room(key, space, inodes) => {
            let found = ask(Read::Get(Key::Quota(*key)))?;
            matches!(found.borrow(), Found::Row(now) if has_room(now.as_ref(), *space, *inodes))
        }
        Expect::Same(list, then) => {
            let found = ask(Read::All(*list))?;
            matches!(found.borrow(), Found::Rows(now)
                if now.len() == then.len() && now.iter().all(|row| then.contains(row)))
        }
    })
}

/// Which of these records, some of which must exist, do; all of them if none is found, for the
/// unique key of some tables is narrower than ours.
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
