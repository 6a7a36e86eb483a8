//! The log that survives this process. It contains the session, and says which commit contained
//! which requests.
//!
//! What must stay true: the effects of a commit are logged before it is sent. Before an empty
//! commit is sent because an answer was lost, its number is logged, too. So a successor that reads
//! this log can find out from the writer records which requests were done.

use std::fmt::Debug;

use crate::schema::WriterId;

/// What a request did, as far as its answer depends on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Effect {
    /// What was done.
    pub kind: EffectKind,
    /// What the answer needs: the inode that was made or linked, the bytes copied, the place
    /// appended at; else 0.
    pub value: u64,
}

/// Kinds of effects. The numbers are those of the record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum EffectKind {
    /// A node was made.
    Create = 1,
    /// A node got one more name.
    Link = 2,
    /// A name was removed.
    Remove = 3,
    /// A name was moved.
    Rename = 4,
    /// Attributes were changed.
    SetAttr = 5,
    /// A file was cut or grew.
    Truncate = 6,
    /// An extended attribute was set.
    SetXattr = 7,
    /// An extended attribute was removed.
    RemoveXattr = 8,
    /// A range was reserved, punched or zeroed.
    Allocate = 9,
    /// A range was copied.
    Copy = 10,
    /// The place of what is appended was chosen: data goes there and nowhere else.
    Append = 11,
}

impl EffectKind {
    /// The kind of that number.
    pub fn from_number(number: u8) -> Option<Self> {
        use EffectKind::{
            Allocate, Append, Copy, Create, Link, Remove, RemoveXattr, Rename, SetAttr, SetXattr, Truncate,
        };
        let all =
            [Create, Link, Remove, Rename, SetAttr, Truncate, SetXattr, RemoveXattr, Allocate, Copy, Append];
        all.into_iter().find(|kind| *kind as u8 == number)
    }
}

/// Where the log holds what a commit does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LogSpan {
    /// Place of the first entry.
    pub first: u64,
    /// How many there are.
    pub count: u64,
}

/// Keeps what must outlive the process. Its calls must be quick, and cannot fail.
pub trait EffectLog: Debug + Send + Sync {
    /// This client commits as `sid` in so many lanes, and has been fenced `fences` times.
    fn session(&self, sid: WriterId, lanes: u16, fences: i64);

    /// It has been fenced so many times.
    fn fenced(&self, fences: i64);

    /// Commit `n` of `lane` is about to be sent: with it these requests are done.
    fn sending(&self, lane: u16, n: u64, effects: &[(u64, Effect)]) -> LogSpan;

    /// That commit did not happen and never will; another one may get its number.
    fn refused(&self, logged: LogSpan);

    /// Number `to` of `lane` is about to be taken by nothing: once it is reached, none of the
    /// commits after `from` up to it has happened, nor will.
    fn voids(&self, lane: u16, from: u64, to: u64);

    /// What became of the commits that [`Self::voids`] is about is known, and logged.
    fn resolved(&self, lane: u16, to: u64);
}

/// A session whose process died, from what it left in its [`EffectLog`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Resumed {
    /// Session id.
    pub sid: WriterId,
    /// How often that client was fenced.
    pub fences: i64,
    /// Its lanes.
    pub lanes: Vec<LanePast>,
}

/// What a lane of commits had come to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LanePast {
    /// Highest number that a commit may have been sent with, as far as was noted.
    pub attempted: u64,
    /// Numbers taken instead of those of lost commits: once the second is reached, none after the
    /// first up to it happened.
    pub voids: Vec<(u64, u64)>,
}
