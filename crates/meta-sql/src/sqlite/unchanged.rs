//! Lets a commit skip the check of records that were read for it, if no client has committed since.
//!
//! What must stay true: a read notes the number of our own commits before it begins, and a commit
//! counts only after it has read the version of the others' commits. So if both numbers are
//! unchanged at the next commit, the database still is what was read. Rows from a cache are always
//! compared.

use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

use rusqlite::Connection;
use rustc_hash::FxHashMap;
use sluice_meta::{
    engine::{Expect, Found, Moment, Read, still_holds},
    schema::{Key, Row},
};

/// No version of a database.
const UNKNOWN: i64 = -1;

/// The state of the database, as the connection that writes sees it.
pub(super) struct Version {
    /// Our own commits.
    own: AtomicU64,
    /// What [`super::watch`] explains: it changes with the commits of others.
    others: AtomicI64,
}

impl Version {
    pub(super) const fn new() -> Self {
        Self { own: AtomicU64::new(0), others: AtomicI64::new(UNKNOWN) }
    }

    /// After a commit, be its outcome known or not. `writer` is held.
    pub(super) fn committed(&self, writer: &Connection) {
        self.others.store(data_version(writer).unwrap_or(UNKNOWN), Ordering::Release);
        self.own.fetch_add(1, Ordering::Release);
    }
}

/// What [`super::watch`] explains.
pub(super) fn data_version(writer: &Connection) -> rusqlite::Result<i64> {
    writer.prepare_cached("PRAGMA data_version")?.query_row([], |row| row.get(0))
}

/// What was read for a commit.
#[derive(Default)]
pub(super) struct Seen {
    /// Our own commits before the first read.
    own: u64,
    rows: FxHashMap<Key, Option<Row>>,
}

impl Seen {
    /// Reads by `read` and notes in `moment` what was found.
    pub(super) fn note<E>(
        version: &Version,
        reads: &[Read],
        moment: &mut Moment,
        read: impl FnOnce() -> Result<Vec<Found>, E>,
    ) -> Result<Vec<Found>, E> {
        let own = version.own.load(Ordering::Acquire);
        let found = read()?;
        let seen = moment.0.get_or_insert_with(|| Box::new(Self { own, ..Self::default() }));
        if let Some(Self { rows, .. }) = seen.downcast_mut() {
            for (read, found) in reads.iter().zip(&found) {
                match (read, found) {
                    (Read::Get(key), Found::Row(row)) => drop(rows.insert(key.clone(), row.clone())),
                    (Read::Follow(dir, name), Found::Rows(both)) => {
                        rows.insert(Key::Entry(*dir, name.clone()), None);
                        rows.extend(both.iter().map(|row| (row.key(), Some(row.clone()))));
                    }
                    (Read::All(_), Found::Rows(all)) => {
                        rows.extend(all.iter().map(|row| (row.key(), Some(row.clone()))));
                    }
                    _ => {}
                }
            }
        }
        Ok(found)
    }

    /// What was noted, if the database is as it was. `writer` holds the write lock.
    pub(super) fn unchanged(moment: Moment, version: &Version, writer: &Connection) -> Option<Self> {
        let seen = moment.0?.downcast::<Self>().ok()?;
        let now = data_version(writer).unwrap_or(UNKNOWN);
        let same = seen.own == version.own.load(Ordering::Acquire)
            && now != UNKNOWN
            && now == version.others.load(Ordering::Acquire);
        same.then_some(*seen)
    }

    /// Whether it shows that `expect` holds.
    pub(super) fn shows(&self, expect: &Expect) -> bool {
        match expect {
            Expect::Row(then, hold) => {
                matches!(self.rows.get(&then.key()), Some(Some(now)) if still_holds(*hold, then, now))
            }
            Expect::Absent(key) => matches!(self.rows.get(key), Some(None)),
            Expect::Empty(_) | Expect::QuotaAllows(..) | Expect::Same(..) => false,
        }
    }
}
