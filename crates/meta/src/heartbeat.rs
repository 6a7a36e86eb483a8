//! The periodic work of a client: it renews its session, learns what others changed, and cleans up
//! after dead clients.
//!
//! This module starts no thread. The owner of an open volume calls [`Meta::beat`] each heartbeat
//! and [`Meta::clean`] each hour, from a thread that serves no request.

use rustc_hash::FxHashSet;
use sluice_types::{FsError, FsResult, Ino};

use crate::{
    batch::Interrupt,
    deletion::BlockSink,
    engine::{EngineError, Found, List, Read, Scan},
    meta::Meta,
    ops::{
        allocate::TakeTurn,
        session::{DropLastCommits, DropLocks, DropSession, ListSustained, PutSession},
        sustained::DropSustained,
    },
    pages::scan_all,
    record_cache::RecordCache,
    schema::{Counter, Extra, Key, LastCommits, Row, VolumeFormat},
};

/// Why a client must end at once.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Ended {
    /// The settings are gone: the volume was destroyed.
    #[error("the volume's settings are gone; it was destroyed")]
    Gone,
    /// Another volume is in the database now.
    #[error("the database holds another volume now (UUID {0})")]
    Replaced(String),
    /// A newer client raised the metadata version.
    #[error("the volume was changed to a metadata version that needs a newer client")]
    TooNew,
}

/// How long the last commits of a fenced client are kept, seconds. One that was cut off for longer
/// does not find out any more what became of the commits that it had sent.
const LAST_COMMITS_KEPT: i64 = 86_400;
/// Most stale sessions cleaned in one round.
const STALE_SESSIONS: usize = 1000;
/// Deleted files younger than this are left to the client that deleted them, seconds.
const DELFILE_AGE: i64 = 3600;
/// Shortest time between two runs of an hourly job, seconds.
const HOURLY: i64 = 54 * 60;

impl Meta {
    /// One heartbeat: renews the session, reloads settings and usage, cleans up after dead
    /// sessions.
    pub fn beat(&self) -> FsResult<Result<(), Ended>> {
        let never = Interrupt::never();
        let loaded = self.retry(&never, || self.reload())?;
        let Some((format, cleaned)) = loaded else { return Ok(Err(Ended::Gone)) };
        if format.uuid != self.env.format().uuid {
            return Ok(Err(Ended::Replaced(format.uuid)));
        }
        if format.check().is_err() {
            return Ok(Err(Ended::TooNew));
        }
        self.env.set_format(format);
        let resolved = self.sid() != 0 && self.renew()?;
        // Sessions of others are compared with the time of this renewal, not with a later one. The
        // steps below may wait for the engine, and other clients may wait for it as long.
        let now = self.env.clock.now().sec;
        if self.sid() == 0 {
            return Ok(Ok(()));
        }
        self.rejoin()?;
        for ino in self.env.left_over() {
            match self.run(DropSustained { sid: self.sid(), ino, dead_before: None }, &never) {
                Ok(_) => self.env.sustains(ino, false),
                // It was opened again.
                Err(FsError::Busy) => {}
                // The next heartbeat tries again. The rest of this one does not wait for it.
                Err(error) => tracing::warn!(%ino, %error, "a deleted file could not be let go"),
            }
        }
        let due = now - self.options.heartbeat_seconds() * 9 / 10;
        let turn = TakeTurn { job: Counter::LastCleanupSessions, due, now };
        if resolved && cleaned <= due && self.run(turn, &never)? {
            self.clean_sessions(now)?;
        }
        Ok(Ok(()))
    }

    /// Renews the session. Returns whether this client may declare others dead.
    fn renew(&self) -> FsResult<bool> {
        let (sid, lifetime) = (self.sid(), self.options.session_lifetime());
        let info = self.info.lock().clone();
        if !self.run(PutSession { sid, lifetime, info }, &Interrupt::never())? {
            // Other programs of the format remove the session and its locks, but not our writer
            // records.
            tracing::error!(sid, "the session of this client expired; its locks are lost");
            self.env.fenced();
        }
        let now = self.env.clock.now().sec;
        Ok(self.grace.lock().renewed(now, self.options.heartbeat_seconds()))
    }

    /// Loads the usage of the volume, and the quotas.
    pub(crate) fn reload_usage(&self) -> Result<(), EngineError> {
        self.reload().map(drop)
    }

    /// Loads the usage of the volume, and the quotas. Returns the settings, and when dead sessions
    /// were last cleaned up, Unix seconds; `None` if there is no volume any more. Reads the
    /// session, too, for its renewal. Two trips.
    fn reload(&self) -> Result<Option<(VolumeFormat, i64)>, EngineError> {
        self.env.counting().begin_loading();
        let counters = [Counter::UsedSpace, Counter::TotalInodes, Counter::LastCleanupSessions];
        let counters = counters.map(Key::Counter).into_iter();
        let keys = std::iter::once(Key::Setting).chain(counters).chain([Key::Session(self.sid())]);
        let reads: Vec<Read> = keys.map(Read::Get).collect();
        let moment = self.env.record_cache.as_ref().map_or(0, RecordCache::moment);
        let found = self.engine.read(&reads)?;
        if let Some(record_cache) = &self.env.record_cache {
            record_cache.learn(&reads, &found, moment);
        }
        let mut found = found.into_iter();
        let setting = Self::parse_setting(self.engine.as_ref(), found.next())?;
        let mut value = || match found.next() {
            Some(Found::Row(Some(Row::Counter(_, value)))) => value,
            _ => 0,
        };
        let (total, cleaned) = ((value(), value()), value());
        let rows = scan_all(self.engine.as_ref(), Scan::Quotas)?;
        let quotas = rows.into_iter().filter_map(|row| match row {
            Row::Quota(key, quota) => Some((key, quota)),
            _ => None,
        });
        self.env.counting().loaded(total, quotas);
        Ok(setting.map(|(_, format)| (format, cleaned)))
    }

    /// Removes what dead sessions left: locks, sustained files, their records.
    fn clean_sessions(&self, now: i64) -> FsResult<()> {
        let never = Interrupt::never();
        let rows = self.retry(&never, || scan_all(self.engine.as_ref(), Scan::Sessions))?;
        let (mut known, mut dead) = (FxHashSet::default(), Vec::new());
        for row in rows {
            if let Row::Session(sid, session) = row {
                known.insert(sid);
                if session.expire < now && sid != self.sid() {
                    dead.push(sid);
                }
            }
        }
        for sid in dead.into_iter().take(STALE_SESSIONS) {
            tracing::info!(sid, "cleaning up after a dead session");
            if let Err(error) = self.end_session(sid, Some(now), false) {
                tracing::warn!(sid, %error, "what a dead session left could not be cleaned up");
            }
        }
        // Sessions that a JuiceFS client cleaned leave our own records behind.
        let mut left = self.retry(&never, || scan_all(self.engine.as_ref(), Scan::Writers))?;
        let members = [Read::All(List::Extras(Extra::Member))];
        if let Some(Found::Rows(members)) = self.retry(&never, || self.engine.read(&members))?.pop() {
            left.extend(members);
        }
        for row in left {
            if let Row::Writer(sid, 0, _) | Row::Extra(_, sid, _) = row
                && sid != self.sid()
                && known.insert(sid)
            {
                self.run(DropSession { sid, dead_before: Some(now), keep_writer: false }, &never)?;
            }
        }
        Ok(())
    }

    /// Removes what is known of the commits of clients that were fenced before this time.
    fn forget_last_commits(&self, before: i64) -> FsResult<()> {
        let never = Interrupt::never();
        let fenced = [Read::All(List::Extras(Extra::LastCommits))];
        let Some(Found::Rows(rows)) = self.retry(&never, || self.engine.read(&fenced))?.pop() else {
            return Ok(());
        };
        let is_old = |json: &[u8]| LastCommits::parse(json).is_none_or(|last| last.fenced < before);
        for row in rows {
            if let Row::Extra(_, sid, json) = row
                && is_old(&json.0)
            {
                self.run(DropLastCommits { sid, before }, &never)?;
            }
        }
        Ok(())
    }

    /// Whether another client has the volume open, according to sessions that have not expired.
    pub fn has_others(&self, interrupt: &Interrupt) -> FsResult<bool> {
        let now = self.env.clock.now().sec;
        let rows = self.retry(interrupt, || scan_all(self.engine.as_ref(), Scan::Sessions))?;
        let lives = |row: &Row| matches!(row, Row::Session(sid, session) if *sid != self.sid() && session.expire >= now);
        Ok(rows.iter().any(lives))
    }

    /// Ends a session: removes its locks, its sustained files and its record. Files whose chunks
    /// are to be deleted stay recorded.
    fn end_session(
        &self,
        sid: u64,
        dead_before: Option<i64>,
        keep_writer: bool,
    ) -> FsResult<Vec<(Ino, u64)>> {
        let never = Interrupt::never();
        if !self.run(DropLocks { sid, dead_before }, &never)? {
            return Ok(Vec::new());
        }
        let files = self.read(&ListSustained(sid), &never)?;
        // A client that ends also releases its open files.
        let dead = dead_before.or(Some(i64::MAX));
        let drops = files.iter().map(|ino| DropSustained { sid, ino: *ino, dead_before: dead }).collect();
        let mut waiting = Vec::new();
        for (ino, length) in files.iter().zip(self.run_all(drops, &never)) {
            waiting.extend(length?.map(|length| (*ino, length)));
        }
        self.run(DropSession { sid, dead_before, keep_writer }, &never)?;
        Ok(waiting)
    }

    /// Ends this client's session. The engine refuses later operations, as those of a dead client.
    pub fn close(&self) -> FsResult<()> {
        self.stop_beating();
        if self.sid() != 0 {
            // The last commit cannot remove the record that every commit compares. A separate write
            // removes it.
            self.end_session(self.sid(), None, true)?;
            let lists = [crate::engine::List::Lanes(self.sid()), crate::engine::List::Changes(self.sid())];
            let writes = lists.map(crate::engine::Write::Clear).to_vec();
            let commit = crate::engine::Commit { writes, ..Default::default() };
            self.retry(&Interrupt::never(), || self.engine.commit(&commit))?;
        }
        self.sync()
    }

    /// Files without a name that this session keeps, read from the engine. The next heartbeat
    /// releases those that are not open any more.
    pub fn sustained(&self, interrupt: &Interrupt) -> FsResult<Vec<Ino>> {
        if self.sid() == 0 {
            return Ok(Vec::new());
        }
        let kept = self.read(&ListSustained(self.sid()), interrupt)?;
        for ino in &kept {
            self.env.sustains(*ino, true);
        }
        Ok(kept)
    }

    /// Leaves the session unchanged to a successor. Later operations would interfere with it.
    pub fn hand_over(&self) -> FsResult<()> {
        self.stop_beating();
        self.sync()
    }

    /// One round of the hourly jobs that no other client ran recently: chunks of deleted files,
    /// slices without references, expired trash, slices that compactions replaced, the first lines
    /// of the change log.
    pub fn clean(&self, sink: &dyn BlockSink, interrupt: &Interrupt) -> FsResult<()> {
        let now = self.env.clock.now().sec;
        let turn = |job| self.run(TakeTurn { job, due: now - HOURLY, now }, interrupt);
        if turn(Counter::LastCleanupFiles)? {
            self.forget_last_commits(now - LAST_COMMITS_KEPT)?;
            self.clean_deleted_files(now - DELFILE_AGE, sink, interrupt)?;
        }
        if turn(Counter::NextCleanupSlices)? {
            self.clean_unreferenced(sink, interrupt)?;
        }
        if turn(Counter::LastCleanupTrash)? {
            let emptied = self.clean_trash(now, interrupt, &|_| {});
            self.clean_delayed(now - 86_400 * self.env.format().trash_days, sink, interrupt)?;
            emptied?;
        }
        self.trim_log(interrupt)
    }
}
