//! The interface between the file system and the database: records, reads, and commits that compare
//! the records on which they depend.
//!
//! An engine is a codec. It maps [`Key`]s and [`Row`]s to what the database stores and decides
//! nothing: it knows no caller, no permission and no error of the file system. Every method that
//! talks to the database is *one* round trip, blocks the calling thread, and ends within the
//! engine's own deadline.
//!
//! # What an engine promises
//! * A commit is atomic: the engine applies all of its writes, or none. It applies them only if
//!   every [`Expect`] and every precondition stated at [`Write`] holds at that moment.
//! * A read returns each record as it was committed at some time during the call. Two records may
//!   be of different times. A read locks nothing.
//! * The commit compares every [`Expect`] with the database. The caller may have the expected
//!   record from a cache.
//! * Nothing more is guaranteed. Commits and reads are not serialisable. Several reads see one
//!   state of the database only through [`Engine::snapshot`]. The in-memory engine guarantees
//!   exactly this and no more.

mod change_log;
mod condition;
mod error;
mod polled;
mod scan;

use std::{any::Any, sync::Arc, time::Duration};

use sluice_types::{Ino, Name, Slice, Time};

pub use change_log::{ChangeLog, LogLine};
pub use condition::{Condition, Wanted};
pub use error::{EngineError, Label};
pub use polled::{Polled, Version};
pub use scan::{Cursor, Page, Scan};

use crate::schema::{Change, Counter, DirStat, Extra, Key, LockOwner, Notice, QuotaKey, Row, WriterId};

/// How much of a record must be unchanged at the commit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Hold {
    /// Nothing: it may change at any time.
    None,
    /// Of a node: type, mode, uid, gid, flags, parent, ACL ids and tier, and that it exists. Of
    /// other records: everything. Many commits may guard one record at once, and writes to it that
    /// commute proceed.
    Guard,
    /// Everything: the commit writes it.
    Lock,
}

/// A read of records.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Read {
    /// One record. Answered by [`Found::Row`].
    Get(Key),
    /// The entry of that name and the node it names. Answered by [`Found::Rows`]: nothing, the
    /// entry, or the entry and the node.
    Follow(Ino, Name),
    /// Up to `limit` names of a directory. Answered by [`Found::Names`].
    Names {
        /// The directory.
        dir: Ino,
        /// How many names to return at most.
        limit: usize,
    },
    /// All records of a small collection. Answered by [`Found::Rows`].
    All(List),
}

/// Records that belong together and are few.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum List {
    /// Extended attributes of an inode.
    Xattrs(Ino),
    /// Directories that contain an inode with several links.
    Parents(Ino),
    /// BSD locks on a file.
    Flocks(Ino),
    /// POSIX locks on a file.
    Plocks(Ino),
    /// Chunks of a file from the first index up to, not including, the second.
    Chunks(Ino, u32, u32),
    /// Files without links that a session has open.
    Sustained(u64),
    /// Locks of all kinds that a session holds.
    LocksOf(u64),
    /// Lanes of a committing process.
    Lanes(WriterId),
    /// What the last commits of a process changed. Only cleared as a whole, never read as a whole.
    Changes(WriterId),
    /// Sluice's own records of one kind.
    Extras(Extra),
}

impl List {
    /// Whether the record of that key belongs to it.
    pub fn contains(&self, key: &Key) -> bool {
        match (self, key) {
            (Self::Xattrs(ino), Key::Xattr(of, _))
            | (Self::Parents(ino), Key::Parents(of, _))
            | (Self::Flocks(ino), Key::Flock(of, _))
            | (Self::Plocks(ino), Key::Plock(of, _)) => ino == of,
            (Self::Chunks(ino, from, to), Key::Chunk(of, index)) => ino == of && (from..to).contains(&index),
            (Self::Sustained(sid), Key::Sustained(of, _))
            | (
                Self::LocksOf(sid),
                Key::Flock(_, LockOwner { sid: of, .. }) | Key::Plock(_, LockOwner { sid: of, .. }),
            )
            | (Self::Lanes(sid), Key::Writer(of, _))
            | (Self::Changes(sid), Key::Changes(of, ..)) => sid == of,
            (Self::Extras(kind), Key::Extra(of, _)) => kind == of,
            _ => false,
        }
    }
}

/// The answer to a [`Read`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(clippy::large_enum_variant, reason = "nearly all answers are of the large kind")]
pub enum Found {
    /// Answer to [`Read::Get`].
    Row(Option<Row>),
    /// Answer to [`Read::Follow`] and [`Read::All`].
    Rows(Vec<Row>),
    /// Answer to [`Read::Names`], no order implied.
    Names(Vec<Name>),
}

impl Found {
    /// The answer where there is nothing.
    pub fn nothing(read: &Read) -> Self {
        match read {
            Read::Get(_) => Self::Row(None),
            Read::Names { .. } => Self::Names(Vec::new()),
            Read::Follow(..) | Read::All(_) => Self::Rows(Vec::new()),
        }
    }
}

/// What must hold at the commit.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(clippy::large_enum_variant, reason = "nearly all expectations are of the large kind")]
pub enum Expect {
    /// The record is unchanged, to the degree of the hold.
    Row(Row, Hold),
    /// There is no such record.
    Absent(Key),
    /// The directory has no entry except those that this very commit deletes.
    Empty(Ino),
    /// The quota, before this very commit charges it, allows so many more bytes and inodes, or has
    /// no record. Only in a commit that charges it.
    QuotaAllows(QuotaKey, i64, i64),
    /// The collection holds exactly these records, in any order. Only [`List::Flocks`] and
    /// [`List::Plocks`], and only in a commit that expects the node under [`Hold::Lock`].
    Same(List, Vec<Row>),
}

impl Expect {
    /// The key of the record or the quota.
    pub fn key(&self) -> Key {
        match self {
            Self::Row(row, _) => row.key(),
            Self::Absent(key) => key.clone(),
            Self::Empty(dir) => Key::Node(*dir),
            Self::QuotaAllows(key, ..) => Key::Quota(*key),
            Self::Same(List::Flocks(ino) | List::Plocks(ino), _) => Key::Node(*ino),
            Self::Same(..) => Key::Setting,
        }
    }
}

/// Whether `now` equals `then`, to the degree of `hold`.
pub fn still_holds(hold: Hold, then: &Row, now: &Row) -> bool {
    match (hold, then, now) {
        (Hold::None, ..) => true,
        (Hold::Guard, Row::Node(_, a), Row::Node(_, b)) => {
            (a.kind, a.mode, a.uid, a.gid, a.flags, a.parent, a.access_acl, a.default_acl, a.tier)
                == (b.kind, b.mode, b.uid, b.gid, b.flags, b.parent, b.access_acl, b.default_acl, b.tier)
        }
        _ => then == now,
    }
}

/// Whether `quota`, if it is the record of one, allows `space` more bytes and `inodes` more inodes.
pub fn quota_allows(quota: Option<&Row>, space: i64, inodes: i64) -> bool {
    !matches!(quota, Some(Row::Quota(_, quota)) if !quota.admits(space, inodes))
}

/// A change. Adding writes commute with each other, and need no read before them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Write {
    /// A new record; a conflict if it exists.
    Insert(Row),
    /// Replaces the record, or makes it.
    Put(Row),
    /// Removes the record; a conflict if there is none.
    Delete(Key),
    /// Removes the record if there is one.
    Discard(Key),
    /// Removes all records of a collection, however many there are. Not for [`List::LocksOf`],
    /// [`List::Sustained`], [`List::Extras`].
    Clear(List),
    /// Adds to a directory's or file's `nlink` and raises its mtime and ctime to at least `time`; a
    /// conflict if the node is gone.
    Bump {
        /// The node.
        ino: Ino,
        /// Added to `nlink`.
        nlink: i32,
        /// New lower bound of mtime and ctime; `None` leaves them.
        time: Option<Time>,
    },
    /// Adds to a counter, which starts at 0.
    Count(Counter, i64),
    /// Adds to the references of a slice (id, size); a slice without a row has one.
    Refer(u64, u32, i64),
    /// Adds to the number of entries of an inode in a directory (inode, directory), which starts at
    /// 0.
    Link(Ino, Ino, i64),
    /// Adds to the usage of a directory if it has a record; without one it stays without.
    Use(Ino, DirStat),
    /// Adds (bytes, inodes) to the usage of a quota. A user or group without a record gets one that
    /// limits nothing ([`QuotaKey::kept`]); a directory stays without.
    Charge(QuotaKey, i64, i64),
    /// Appends records to a chunk, which starts empty.
    Append(Ino, u32, Vec<Slice>),
    /// Announces a change to the other clients after the commit, see [`Commit::notice`]; no effect
    /// where the engine has no messages.
    Notify(Change),
    /// Appends a line to the change log. Lines of one commit keep their order. No effect where the
    /// engine has no change log.
    Log(String),
}

impl Write {
    /// The single record that it makes, replaces, removes or bumps, if it is one of these.
    pub fn key(&self) -> Option<Key> {
        match self {
            Self::Insert(row) | Self::Put(row) => Some(row.key()),
            Self::Delete(key) | Self::Discard(key) => Some(key.clone()),
            Self::Bump { ino, .. } => Some(Key::Node(*ino)),
            _ => None,
        }
    }
}

/// The identity of a commit: it takes the record of lane `lane` of process `writer` from number
/// `from` to number `to`, and conflicts on [`Key::Writer`] unless the record holds `from`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step {
    /// The process.
    pub writer: WriterId,
    /// Its lane.
    pub lane: u16,
    /// Number of the commit before.
    pub from: u64,
    /// Number of this commit.
    pub to: u64,
}

/// One atomic commit.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Commit {
    /// Which commit this is; `None` only where applying it twice is harmless.
    pub step: Option<Step>,
    /// What must hold.
    pub expects: Vec<Expect>,
    /// What changes. No key is written twice, with two exceptions: adding writes of different
    /// kinds, and records that were cleared. A [`Write::Clear`] comes before all other writes and
    /// takes effect before them.
    pub writes: Vec<Write>,
}

impl Commit {
    /// The message that an engine with messages sends once this is committed. Every commit with a
    /// number has one, even if it changed nothing that others cache. So has every commit with an
    /// announcement.
    pub fn notice(&self) -> Option<Notice> {
        let changes: Vec<Change> = self
            .writes
            .iter()
            .filter_map(|write| if let Write::Notify(change) = write { Some(change.clone()) } else { None })
            .collect();
        match self.step {
            Some(Step { writer, lane, to, .. }) => Some(Notice { writer, lane, n: to, changes }),
            None => (!changes.is_empty()).then(|| Notice::anonymous(changes)),
        }
    }
}

/// The limits of an engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Commits that may be under way at once.
    pub lanes: usize,
    /// Operations in one commit.
    pub batch: usize,
    /// How clients learn what others committed.
    pub notices: Notices,
}

/// How clients learn what others committed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Notices {
    /// [`Engine::watch`] returns [`Commit::notice`] of every commit, or that something was missed.
    Push,
    /// [`Engine::watch`] returns that another client committed. The records say what.
    Hint,
    /// [`Engine::watch`] returns announcements about locks, or that there was some announcement.
    /// Everything else is found by reading the records.
    Poll,
}

/// A database that keeps a volume's metadata.
pub trait Engine: Send + Sync + 'static {
    /// Scheme of its URLs, for messages.
    fn name(&self) -> &'static str;

    /// Its limits.
    fn limits(&self) -> Limits;

    /// Makes what must exist before the first record: tables, scripts. Harmless when they exist.
    fn prepare(&self) -> Result<(), EngineError>;

    /// Reads. One trip. Returns the answers in the order of `reads`.
    fn read(&self, reads: &[Read]) -> Result<Vec<Found>, EngineError>;

    /// Commits. One trip. No two commits with the same lane are under way at once.
    fn commit(&self, commit: &Commit) -> Result<(), EngineError>;

    /// As [`Self::read`], for a commit: the engine may note in `moment` what it read, and when.
    fn read_at(&self, reads: &[Read], moment: &mut Moment) -> Result<Vec<Found>, EngineError> {
        let _ = moment;
        self.read(reads)
    }

    /// As [`Self::commit`], after the reads of `moment`.
    fn commit_at(&self, commit: &Commit, moment: Moment) -> Result<(), EngineError> {
        let _ = moment;
        self.commit(commit)
    }

    /// Stores records of a new volume that no client uses yet. None of them exists, and each comes
    /// once. For a record that exists after all, the engine replaces it, or the call is a conflict.
    /// A conflict or any other failure may leave some of the records stored. A reference count of
    /// one need not be stored if its absence means one. Not for locks.
    fn load(&self, rows: &[Row]) -> Result<(), EngineError> {
        let writes = rows.iter().cloned().map(Write::Put).collect();
        self.commit(&Commit { writes, ..Commit::default() })
    }

    /// The number of records from which on a call of [`Self::load`] is most efficient.
    fn load_size(&self) -> usize {
        1
    }

    /// One page of about `limit` records. One trip; of what is about inodes, it may be several if
    /// [`Self::is_mixed`].
    fn scan(&self, scan: Scan, from: Option<&Cursor>, limit: usize) -> Result<Page, EngineError>;

    /// A snapshot of the database, for up to `readers` threads; `None` if the engine has no
    /// snapshots. It does not change while commits go on. A read fails with
    /// [`EngineError::Refused`] once the database has dropped the snapshot.
    fn snapshot(&self, readers: usize) -> Result<Option<Arc<dyn Snapshot>>, EngineError> {
        let _ = readers;
        Ok(None)
    }

    /// Whether [`Scan::Entries`] returns names in the order of their bytes, so each once.
    fn sorts_names(&self) -> bool {
        true
    }

    /// Whether a scan of one kind of record about inodes reads all other kinds, too.
    fn is_mixed(&self) -> bool {
        false
    }

    /// Divides the rest of a scan of [`Scan::Inodes`], from `cursor` on: parts that may be read at
    /// the same time, and a cursor for what follows them, if there is more. No trip.
    fn divide(&self, cursor: Cursor) -> (Vec<Cursor>, Option<Cursor>) {
        (Vec::new(), Some(cursor))
    }

    /// Makes commits survive a power cut as far as the engine can tell (`fsync(2)` calls it).
    /// Engines do nothing where the server's settings decide how durable an answered commit is.
    fn sync(&self) -> Result<(), EngineError> {
        Ok(())
    }

    /// Makes all visible commits as durable as those that returned. A commit whose answer was lost
    /// may be visible before it is durable. Engines where that cannot happen do nothing.
    fn harden(&self) -> Result<(), EngineError> {
        Ok(())
    }

    /// Checks that a database without settings of a volume holds nothing else that
    /// [`Self::remove_volume`] would remove with the volume.
    ///
    /// # Errors
    /// [`EngineError::Refused`] names what is there, and says what to do.
    fn check_vacant(&self) -> Result<(), EngineError> {
        Ok(())
    }

    /// Removes all records of the volume, those of other programs of the format included, and the
    /// tables that hold them. The settings go last, so that it can be begun again after a failure.
    /// Not one trip, but as many as it takes; nobody may use the volume meanwhile.
    ///
    /// # Errors
    /// Those of [`Self::commit`]. Some records may be gone.
    fn remove_volume(&self) -> Result<(), EngineError>;

    /// A listener for announcements of other clients.
    fn watch(&self) -> Result<Box<dyn Watch>, EngineError>;

    /// The change log of the volume; `None` if the engine keeps none.
    fn change_log(&self) -> Option<&dyn ChangeLog>;
}

/// A snapshot of a database. All answers are of one state.
pub trait Snapshot: Send + Sync {
    /// As [`Engine::read`].
    fn read(&self, reads: &[Read]) -> Result<Vec<Found>, EngineError>;

    /// As [`Engine::scan`].
    fn scan(&self, scan: Scan, from: Option<&Cursor>, limit: usize) -> Result<Page, EngineError>;

    /// As [`Engine::divide`].
    fn divide(&self, cursor: Cursor) -> (Vec<Cursor>, Option<Cursor>) {
        (Vec::new(), Some(cursor))
    }
}

/// An engine that reads from a snapshot, whatever others commit.
pub struct Frozen<E>(pub E);

impl<E: Engine> Snapshot for Frozen<E> {
    fn read(&self, reads: &[Read]) -> Result<Vec<Found>, EngineError> {
        self.0.read(reads)
    }

    fn scan(&self, scan: Scan, from: Option<&Cursor>, limit: usize) -> Result<Page, EngineError> {
        self.0.scan(scan, from, limit)
    }
}

/// What an engine noted while it read for a commit, so that the commit need not read it again.
/// Opaque, empty before the first read, and valid only for the engine that filled it.
#[derive(Default)]
pub struct Moment(pub Option<Box<dyn Any + Send>>);

/// A listener for changes made by others.
pub trait Watch: Send {
    /// Waits up to `timeout` for announcements; empty if there were none. [`Notice::anything`]
    /// stands for missed ones.
    fn next(&mut self, timeout: Duration) -> Result<Vec<Notice>, EngineError>;

    /// Says whether clients that announce nothing have a session now. Returns whether the engine
    /// itself announces their changes from here on. It announces the begin of that as
    /// [`Notice::anything`].
    fn set_silent_clients(&mut self, silent: bool) -> Result<bool, EngineError> {
        let _ = silent;
        Ok(false)
    }
}
