//! The environment of operations: the volume's settings, the clock, the files that this client has
//! open.
//!
//! Only this process uses this state. It may differ from that of other clients.

use std::sync::{
    Arc,
    atomic::{AtomicI64, AtomicU64, Ordering},
};

use parking_lot::{Mutex, RwLock, RwLockWriteGuard};
use rustc_hash::{FxHashMap, FxHashSet};
use sluice_types::{Clock, Ino, Time};

use crate::{
    change_log::Line,
    effect_log::EffectLog,
    engine::Write,
    fact::Fact,
    opens::Opens,
    parent_cache::ParentCache,
    record_cache::RecordCache,
    schema::{AclRule, Quota, QuotaKey, VolumeFormat},
    used::Used,
};

/// Lines of the change log that say that a session began.
pub(crate) const REGISTERED: u64 = 2;

/// This client's knowledge, shared by all operations.
pub struct Env {
    /// Session id, 0 while there is none.
    pub(crate) sid: u64,
    /// Where the time is read.
    pub(crate) clock: Arc<dyn Clock>,
    format: RwLock<Arc<VolumeFormat>>,
    used: RwLock<Used>,
    /// Which directory each directory lies in.
    pub(crate) parents: ParentCache,
    /// What it has open.
    pub(crate) opens: Opens,
    /// Files without a name that this client keeps because it had them open when they lost it.
    sustained: Mutex<FxHashSet<Ino>>,
    fences: AtomicI64,
    /// ACL rules never change, so what was seen once is good for ever.
    acls: RwLock<FxHashMap<u32, Arc<AclRule>>>,
    /// The directory of the trash in use: its hour since the epoch, and its inode.
    trash_hour: Mutex<Option<(i64, Ino)>>,
    /// Records as last seen.
    pub(crate) record_cache: Option<RecordCache>,
    /// Where is noted what outlives the process.
    pub(crate) effect_log: Option<Arc<dyn EffectLog>>,
    /// Whether changes may start from them: the engine can tell at the commit whether they are
    /// still so.
    pub(crate) starts_from_cache: bool,
    /// Whether the engine keeps a change log, if the volume is to have one.
    pub(crate) keeps_log: bool,
    /// Lines of the change log that this process has made.
    lines: AtomicU64,
}

impl Env {
    /// What a client of that session id knows when it begins.
    pub fn new(sid: u64, clock: Arc<dyn Clock>, format: VolumeFormat) -> Self {
        Self {
            sid,
            clock,
            format: RwLock::new(Arc::new(format)),
            used: RwLock::default(),
            parents: ParentCache::default(),
            opens: Opens::default(),
            sustained: Mutex::default(),
            fences: AtomicI64::new(0),
            acls: RwLock::default(),
            trash_hour: Mutex::default(),
            record_cache: None,
            effect_log: None,
            starts_from_cache: false,
            keeps_log: false,
            lines: AtomicU64::new(REGISTERED),
        }
    }

    /// The settings as last loaded.
    pub fn format(&self) -> Arc<VolumeFormat> {
        self.format.read().clone()
    }

    pub(crate) fn set_format(&self, format: VolumeFormat) {
        *self.format.write() = Arc::new(format);
    }

    /// Makes a line of the change log. Each has a number that no other line of this process has.
    pub(crate) fn write_line(&self, line: &Line, now: Time) -> Write {
        Write::Log(line.text(now, self.sid, self.lines.fetch_add(1, Ordering::Relaxed) + 1))
    }

    /// Bytes and inodes in use, as last loaded plus what this client did since.
    pub fn used(&self) -> (i64, i64) {
        self.used.read().total()
    }

    /// What is in use, to change it.
    pub(crate) fn counting(&self) -> RwLockWriteGuard<'_, Used> {
        self.used.write()
    }

    pub(crate) fn acl(&self, id: u32) -> Option<Arc<AclRule>> {
        self.acls.read().get(&id).cloned()
    }

    pub(crate) fn learn_acl(&self, id: u32, rule: Arc<AclRule>) {
        self.acls.write().entry(id).or_insert(rule);
    }

    /// Id of a rule that says the same, if one was seen.
    pub(crate) fn acl_id(&self, rule: &AclRule) -> Option<u32> {
        self.acls.read().iter().find(|(_, known)| known.as_ref() == rule).map(|(id, _)| *id)
    }

    /// A quota as last loaded, plus what this client did since.
    pub(crate) fn quota(&self, key: QuotaKey) -> Option<Quota> {
        self.used.read().quota(key)
    }

    /// Whether any directory has a quota.
    pub(crate) fn limits_dirs(&self) -> bool {
        self.used.read().limits_dirs()
    }

    pub(crate) fn trash_hour(&self, hour: i64) -> Option<Ino> {
        self.trash_hour.lock().filter(|(known, _)| *known == hour).map(|(_, ino)| ino)
    }

    /// Takes in what operations found out, but for where directories lie.
    pub(crate) fn learn(&self, facts: Vec<Fact>) {
        for fact in facts {
            match fact {
                Fact::Acl(id, rule) => self.learn_acl(id, rule),
                Fact::TrashHour(hour, ino) => *self.trash_hour.lock() = Some((hour, ino)),
                Fact::Quota(key, quota) => self.counting().seen(key, quota),
                Fact::Parent(..) => {}
            }
        }
    }

    /// Notes that this client was fenced by another.
    pub(crate) fn fenced(&self) {
        let fences = self.fences.fetch_add(1, Ordering::Relaxed) + 1;
        if let Some(effect_log) = &self.effect_log {
            effect_log.fenced(fences);
        }
    }

    /// It was fenced so often in an earlier process.
    pub(crate) fn set_fences(&self, fences: i64) {
        self.fences.store(fences, Ordering::Relaxed);
    }

    /// How often this client was fenced, as far as it knows: its next commit or heartbeat
    /// tells. Locks and open deleted files from before the last time are lost.
    pub fn fences(&self) -> i64 {
        self.fences.load(Ordering::Relaxed)
    }

    /// Notes that a file without a name is kept for this client, or is no more.
    pub(crate) fn sustains(&self, ino: Ino, kept: bool) {
        let mut sustained = self.sustained.lock();
        if kept {
            sustained.insert(ino);
        } else {
            sustained.remove(&ino);
        }
    }

    /// Files without a name that are kept for this client although it has them open no more: they
    /// lost their names while nobody watched.
    pub(crate) fn left_over(&self) -> Vec<Ino> {
        let kept: Vec<Ino> = self.sustained.lock().iter().copied().collect();
        kept.into_iter().filter(|ino| !self.opens.has(*ino)).collect()
    }
}
