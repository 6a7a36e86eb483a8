//! What this client saw last of nodes, entries and extended attributes, so that a change need not read before it commits.
//!
//! Nothing here is believed: what an operation takes from it becomes an expectation of its commit, and if that fails
//! the operation runs again on what the engine says. So it is only used with engines that compare at the commit, never
//! for an operation that only looks, and a stale record costs one trip. Records older than what the kernel caches are
//! not used at all: attributes of a directory go back to the kernel, and its times and links are not compared.

use std::time::{Duration, Instant};

use parking_lot::Mutex;
use rustc_hash::FxHashMap;
use sluice_types::Ino;

use crate::{
    engine::{Found, Hold, Read, Write},
    schema::{Key, Row},
};

/// Parts, each with a lock of its own.
const SHARDS: usize = 16;
/// Most records of one part; at about 200 bytes each all parts take some 13 MiB.
const SHARD_RECORDS: usize = 4096;
/// Longest value of an extended attribute that is kept, bytes.
const SMALL_VALUE: usize = 64;
/// How long a record is used after the engine told it.
const FRESH: Duration = Duration::from_secs(1);

/// Records as last seen.
pub(crate) struct Recall {
    shards: [Mutex<Shard>; SHARDS],
}

type Shard = FxHashMap<Key, Seen>;

/// What was seen of one record.
#[derive(Clone)]
struct Seen {
    at: Instant,
    /// `None` if there was none.
    row: Option<Row>,
}

impl Recall {
    pub(crate) fn new() -> Self {
        Self { shards: std::array::from_fn(|_| Mutex::default()) }
    }

    fn shard(&self, key: &Key) -> &Mutex<Shard> {
        let ino = match key {
            Key::Node(ino) | Key::Entry(ino, _) | Key::Xattr(ino, _) => ino.0,
            _ => 0,
        };
        &self.shards[(ino as usize) % SHARDS]
    }

    fn get(&self, key: &Key) -> Option<Seen> {
        self.shard(key).lock().get(key).filter(|seen| seen.at.elapsed() < FRESH).cloned()
    }

    fn set(&self, key: Key, row: Option<Row>) {
        if !matches!(key, Key::Node(_) | Key::Entry(..) | Key::Xattr(..)) {
            return;
        }
        let mut shard = self.shard(&key).lock();
        if let Some(Row::Xattr(_, _, value)) = &row
            && value.len() > SMALL_VALUE
        {
            shard.remove(&key);
            return;
        }
        // Room for the new by dropping all: the next operations read again, once.
        if shard.len() >= SHARD_RECORDS && !shard.contains_key(&key) {
            shard.clear();
        }
        shard.insert(key, Seen { at: Instant::now(), row });
    }

    /// Forgets what turned out to be stale.
    pub(crate) fn forget(&self, keys: &[Key]) {
        for key in keys {
            self.shard(key).lock().remove(key);
        }
    }

    /// Takes in the answers of a trip.
    pub(crate) fn learn(&self, reads: &[Read], found: &[Found]) {
        for (read, found) in reads.iter().zip(found) {
            match (read, found) {
                (Read::Get(key, _), Found::Row(row)) => self.set(key.clone(), row.clone()),
                (Read::Follow(dir, name, _), Found::Rows(rows)) => {
                    for row in rows {
                        self.set(row.key(), Some(row.clone()));
                    }
                    if rows.is_empty() {
                        self.set(Key::Entry(*dir, name.clone()), None);
                    }
                }
                _ => {}
            }
        }
    }

    /// Takes in what a commit changed.
    pub(crate) fn committed(&self, writes: &[Write]) {
        for write in writes {
            match write {
                Write::Insert(row) | Write::Put(row) => self.set(row.key(), Some(row.clone())),
                Write::Delete(key) | Write::Discard(key) => self.set(key.clone(), None),
                Write::Bump { ino, nlink, time } => {
                    let key = Key::Node(*ino);
                    if let Some(Seen { row: Some(Row::Node(_, attr)), .. }) =
                        self.shard(&key).lock().get_mut(&key)
                    {
                        attr.nlink = attr.nlink.saturating_add_signed(*nlink);
                        if let Some(time) = *time {
                            attr.mtime = attr.mtime.max(time);
                            attr.ctime = attr.ctime.max(time);
                        }
                    }
                }
                _ => {}
            }
        }
    }

    /// Answers to all of `reads`, if there are any.
    pub(crate) fn answer(&self, reads: &[Read]) -> Option<Vec<Found>> {
        reads.iter().map(|read| self.answer_one(read)).collect()
    }

    fn answer_one(&self, read: &Read) -> Option<Found> {
        match read {
            Read::Get(key @ Key::Node(_), hold) if *hold > Hold::None => {
                self.get(key)?.row.map(|row| Found::Row(Some(row)))
            }
            Read::Get(key @ Key::Xattr(..), hold) if *hold > Hold::None => {
                self.get(key).map(|seen| Found::Row(seen.row))
            }
            // An operation that asks for an entry without holding it is about to insert it: the commit sees whether
            // it may.
            Read::Get(key @ Key::Entry(..), Hold::None) => {
                Some(Found::Row(self.get(key).and_then(|seen| seen.row)))
            }
            Read::Follow(dir, name, hold) if *hold > Hold::None => {
                let entry = self.get(&Key::Entry(*dir, name.clone()))?.row;
                let Some(Row::Entry(_, _, to)) = &entry else { return Some(Found::Rows(Vec::new())) };
                let node = self.node(to.ino)?;
                Some(Found::Rows(entry.into_iter().chain([node]).collect()))
            }
            _ => None,
        }
    }

    fn node(&self, ino: Ino) -> Option<Row> {
        self.get(&Key::Node(ino))?.row
    }
}
