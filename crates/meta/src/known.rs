//! The state of this client that operations read, and the facts that they add to it.
//!
//! What must stay true: during an attempt, every value stays the same, so that an operation is a
//! function of its view. Facts that operations find out are added when all of them have decided.

use std::{cell::RefCell, sync::Arc};

use rustc_hash::FxHashMap;
use sluice_types::{FsError, FsResult, Ino, Time};

use crate::{
    change_log::Line,
    engine::Write,
    env::Env,
    schema::{AclRule, Quota, QuotaKey, VolumeFormat},
};

/// What no volume holds more of, limit or not: counters and sums must not overflow, and sparse
/// files take nothing to make.
const MOST_COUNTED: i64 = 1 << 62;

/// This client's knowledge as one attempt sees it.
pub(crate) struct Known<'e> {
    env: &'e Env,
    format: Arc<VolumeFormat>,
    /// Bytes and inodes in use.
    used: (i64, i64),
    limits_dirs: bool,
    moves: Option<i64>,
    /// What was asked for so far.
    quotas: RefCell<FxHashMap<QuotaKey, Option<Quota>>>,
    open: RefCell<FxHashMap<Ino, bool>>,
}

impl<'e> Known<'e> {
    pub(crate) fn new(env: &'e Env) -> Self {
        Self {
            env,
            format: env.format(),
            used: env.used(),
            limits_dirs: env.limits_dirs(),
            moves: env.parents.moves(),
            quotas: RefCell::default(),
            open: RefCell::default(),
        }
    }

    /// Session id, 0 if there is none.
    pub(crate) fn sid(&self) -> u64 {
        self.env.sid
    }

    /// The settings.
    pub(crate) fn format(&self) -> &VolumeFormat {
        &self.format
    }

    /// Whether the volume has a change log.
    pub(crate) fn logs(&self) -> bool {
        self.format.change_log && self.env.keeps_log
    }

    /// Makes a line of the change log, which no other has the number of.
    pub(crate) fn write_line(&self, line: &Line, now: Time) -> Write {
        self.env.write_line(line, now)
    }

    /// Whether this client has a file open.
    pub(crate) fn is_open(&self, ino: Ino) -> bool {
        *self.open.borrow_mut().entry(ino).or_insert_with(|| self.env.opens.has(ino))
    }

    /// A quota as last loaded, plus what this client did since.
    pub(crate) fn quota(&self, key: QuotaKey) -> Option<Quota> {
        *self.quotas.borrow_mut().entry(key).or_insert_with(|| self.env.quota(key))
    }

    /// Whether any directory has a quota.
    pub(crate) fn limits_dirs(&self) -> bool {
        self.limits_dirs
    }

    /// A rule, if it was seen before.
    pub(crate) fn acl(&self, id: u32) -> Option<Arc<AclRule>> {
        self.env.acl(id)
    }

    /// Id of a rule that says the same, if one was seen before.
    pub(crate) fn acl_id(&self, rule: &AclRule) -> Option<u32> {
        self.env.acl_id(rule)
    }

    /// The directory of the trash for an hour since the epoch, if it was seen before.
    pub(crate) fn trash_hour(&self, hour: i64) -> Option<Ino> {
        self.env.trash_hour(hour)
    }

    /// How many directories had moved when [`Self::above`] was so.
    pub(crate) fn moves(&self) -> Option<i64> {
        self.moves
    }

    /// The directory that a directory lay in a moment ago. Whoever relies on it says at which count
    /// of moves.
    pub(crate) fn above(&self, dir: Ino) -> Option<Ino> {
        self.moves.and_then(|_| self.env.parents.get(dir))
    }

    /// Whether the volume's limits admit `space` more bytes and `inodes` more inodes, beside those
    /// `pending`.
    ///
    /// # Errors
    /// [`FsError::NoSpace`] if they do not.
    pub(crate) fn admit(&self, space: i64, inodes: i64, pending: (i64, i64)) -> FsResult<()> {
        let full = |limit: u64, used: i64, pending: i64, more: i64| {
            let limit = if limit == 0 { MOST_COUNTED } else { i64::try_from(limit).unwrap_or(i64::MAX) };
            more > 0 && used.saturating_add(pending).saturating_add(more) > limit.min(MOST_COUNTED)
        };
        if full(self.format.capacity, self.used.0, pending.0, space)
            || full(self.format.inodes, self.used.1, pending.1, inodes)
        {
            return Err(FsError::NoSpace);
        }
        Ok(())
    }
}
