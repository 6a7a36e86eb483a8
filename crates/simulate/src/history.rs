//! The history of records, by which answers are checked.
//!
//! Time is counted in commits. An answer of the engine must have been true at some moment between
//! request and answer. A cached answer may be older, but not older than an earlier answer to the
//! same client.

use std::collections::BTreeMap;

use sluice_meta::{
    engine::{Commit, Write},
    schema::{Key, Row},
};

/// A number of commits.
pub(crate) type Moment = u64;

/// The history of records.
#[derive(Default)]
pub(crate) struct History {
    now: Moment,
    of: BTreeMap<Key, Vec<Version>>,
}

/// A version of a record, from some moment on.
struct Version {
    since: Moment,
    row: Option<Row>,
}

/// Whether the history of a record is kept: nodes, names, and what files consist of.
fn is_kept(key: &Key) -> bool {
    matches!(key, Key::Node(_) | Key::Entry(..) | Key::Chunk(..))
}

impl History {
    /// How many commits there were.
    pub(crate) fn now(&self) -> Moment {
        self.now
    }

    /// The records that a commit may change.
    pub(crate) fn touched(&self, commit: &Commit) -> Vec<Key> {
        let mut keys = Vec::new();
        for write in &commit.writes {
            match write {
                Write::Clear(list) => keys.extend(self.of.keys().filter(|key| list.contains(key)).cloned()),
                _ => keys.extend(write.key().or_else(|| write.base()).filter(is_kept)),
            }
        }
        keys
    }

    /// A record as it is. If it was not known before, it always was so.
    pub(crate) fn note(&mut self, key: Key, row: Option<Row>) {
        let since = self.now;
        let versions = self.of.entry(key).or_default();
        match versions.last() {
            None => versions.push(Version { since: 0, row }),
            Some(last) if last.row != row => versions.push(Version { since, row }),
            Some(_) => {}
        }
    }

    /// One commit more.
    pub(crate) fn committed(&mut self) {
        self.now += 1;
    }

    /// Whether anything is known of a record.
    pub(crate) fn knows(&self, key: &Key) -> bool {
        self.of.contains_key(key)
    }

    /// Records whose history is known.
    pub(crate) fn keys(&self) -> impl Iterator<Item = &Key> {
        self.of.keys()
    }

    /// What a record was from `since` on, each time with the moment from which.
    pub(crate) fn values(&self, key: &Key, since: Moment) -> Vec<(Moment, Option<Row>)> {
        let Some(versions) = self.of.get(key) else { return Vec::new() };
        let begin = versions.iter().rposition(|version| version.since <= since).unwrap_or(0);
        let value = |version: &Version| (version.since.max(since), version.row.clone());
        versions[begin..].iter().map(value).collect()
    }

    /// The record that was there all the time since then; `None` if it changed or is absent.
    pub(crate) fn unchanged(&self, key: &Key, since: Moment) -> Option<&Row> {
        let last = self.of.get(key)?.last()?;
        last.row.as_ref().filter(|_| last.since <= since)
    }
}

#[cfg(test)]
mod tests {
    use sluice_types::Ino;

    use super::*;

    fn parents(count: i64) -> Row {
        Row::Parents(Ino(1), Ino(2), count)
    }

    #[test]
    fn a_record_was_what_it_was_until_the_next_commit() {
        let (mut history, key) = (History::default(), Key::Parents(Ino(1), Ino(2)));
        history.note(key.clone(), None);
        for count in 1..4 {
            history.committed();
            history.note(key.clone(), Some(parents(count)));
        }
        let all = [(0, None), (1, Some(parents(1))), (2, Some(parents(2))), (3, Some(parents(3)))];
        assert_eq!(history.values(&key, 0), all);
        assert_eq!(history.values(&key, 2), all[2..]);
        assert_eq!(history.values(&key, 7), [(7, Some(parents(3)))]);
        assert_eq!(history.unchanged(&key, 2), None);
        assert_eq!(history.unchanged(&key, 3), Some(&parents(3)));
    }
}
