//! Sessions: the records of clients.

use sluice_types::Ino;
use smallvec::smallvec;

use super::group;
use crate::{
    change_log::Line,
    engine::{Hold, List, Write},
    op::{ConflictKey, ConflictKeys, Op},
    schema::{Change, EXPIRED, Extra, Key, LastCommits, Row, Session, SessionInfo},
    view::{Stop, View},
    want::Want,
};

/// Renews this client's session at each heartbeat. Two trips.
#[derive(Clone, Debug)]
pub struct PutSession {
    /// Session id.
    pub sid: u64,
    /// How long it lasts from the attempt on that succeeds, seconds: an engine that takes no
    /// commits for a while must not leave one that has expired already.
    pub lifetime: i64,
    /// What others shall see.
    pub info: SessionInfo,
}

impl Op for PutSession {
    /// Whether it existed and was not removed: if not, another client fenced this client.
    type Out = bool;
    const NAME: &'static str = "put_session";

    fn conflict_keys(&self) -> ConflictKeys {
        smallvec![ConflictKey::Volume("session")]
    }

    fn run(&self, view: &mut View<'_>) -> Result<bool, Stop> {
        let found = view.get(&Key::Session(self.sid), Hold::Lock)?;
        let there = matches!(found, Some(Row::Session(_, session)) if session.expire != EXPIRED);
        let expire = view.now().sec + self.lifetime;
        let info = self.info.to_json();
        if !there {
            view.log(|| Line::NewSession { sid: self.sid, expire, info: info.clone() });
        }
        view.put(Row::Session(self.sid, Session { expire, info: Some(info) }));
        Ok(there)
    }
}

/// Takes its locks from a session that ended or died; from one that died also the right to commit,
/// at once, so that it does nothing under locks that others have got. Its record stays until its
/// sustained files are gone. Three trips.
#[derive(Clone, Copy, Debug)]
pub struct DropLocks {
    /// The session.
    pub sid: u64,
    /// It is dead if it expires before this, Unix seconds; `None` if it ended by itself, and still
    /// commits.
    pub dead_before: Option<i64>,
}

impl Op for DropLocks {
    /// Whether it has none now: it keeps them if it was refreshed meanwhile. Nothing is done if
    /// another client removed it meanwhile.
    type Out = bool;
    const NAME: &'static str = "drop_locks";

    fn conflict_keys(&self) -> ConflictKeys {
        smallvec![ConflictKey::Volume("session")]
    }

    fn run(&self, view: &mut View<'_>) -> Result<bool, Stop> {
        let session = Key::Session(self.sid);
        let first = [Want::all(List::LocksOf(self.sid), Hold::None), Want::get(session.clone(), Hold::Lock)];
        let fenced = self.dead_before.map(|_| wants(self.sid));
        view.want(&first.into_iter().chain(fenced.into_iter().flatten()).collect::<Vec<_>>())?;
        if let Some(before) = self.dead_before {
            // One that is gone may be back before the commit: who removed it has taken its locks.
            let Some(Row::Session(sid, session)) = view.get(&session, Hold::Lock)? else {
                return Ok(false);
            };
            if session.expire >= before {
                return Ok(false);
            }
            view.put(Row::Session(sid, Session { expire: EXPIRED, ..session }));
            fence(view, self.sid)?;
        }
        drop_locks(view, self.sid)?;
        Ok(true)
    }
}

/// Removes the locks of a session, and lets those try again who wait for them.
fn drop_locks(view: &mut View<'_>, sid: u64) -> Result<(), Stop> {
    for row in view.all(List::LocksOf(sid), Hold::None)? {
        if let Row::Flock(ino, ..) | Row::Plock(ino, ..) = row {
            view.write(Write::Discard(row.key()));
            view.write(Write::Notify(Change::Lock(ino)));
        }
    }
    Ok(())
}

/// Lists the sustained files of a session. One trip.
#[derive(Clone, Debug)]
pub struct ListSustained(pub u64);

impl Op for ListSustained {
    type Out = Vec<Ino>;
    const NAME: &'static str = "list_sustained";

    fn conflict_keys(&self) -> ConflictKeys {
        ConflictKeys::new()
    }

    fn run(&self, view: &mut View<'_>) -> Result<Vec<Ino>, Stop> {
        let rows = view.all(List::Sustained(self.0), Hold::None)?;
        Ok(rows
            .iter()
            .filter_map(|row| if let Row::Sustained(_, ino) = row { Some(*ino) } else { None })
            .collect())
    }
}

/// Removes the record of a session whose locks and sustained files are gone, and of one that died
/// the locks that came since. Nothing is removed if it was refreshed meanwhile. Its writer records
/// go in the same commit, so that whoever still commits under it learns of it, and so does its
/// membership in a cache group. Two trips, three if it has writer records.
#[derive(Clone, Debug)]
pub struct DropSession {
    /// The session.
    pub sid: u64,
    /// It is dead if it expires before this, Unix seconds; `None` removes it in any case.
    pub dead_before: Option<i64>,
    /// Whether this client's own writer records stay, since it still commits with them.
    pub keep_writer: bool,
}

impl Op for DropSession {
    type Out = bool;
    const NAME: &'static str = "drop_session";

    fn conflict_keys(&self) -> ConflictKeys {
        smallvec![ConflictKey::Volume("session")]
    }

    fn run(&self, view: &mut View<'_>) -> Result<bool, Stop> {
        let key = Key::Session(self.sid);
        let locks = self.dead_before.map(|_| Want::all(List::LocksOf(self.sid), Hold::None));
        let member = group::wants(self.sid).into_iter();
        let fenced = (!self.keep_writer).then(|| wants(self.sid));
        let wants = member.chain(locks).chain([Want::get(key.clone(), Hold::Lock)]);
        view.want(&wants.chain(fenced.into_iter().flatten()).collect::<Vec<_>>())?;
        let alive = match (view.get(&key, Hold::Lock)?, self.dead_before) {
            (Some(Row::Session(_, session)), Some(before)) => session.expire >= before,
            _ => false,
        };
        if alive {
            return Ok(false);
        }
        // A lock may have been granted just before the session lost the right to commit.
        if self.dead_before.is_some() {
            drop_locks(view, self.sid)?;
        }
        group::leave(view, self.sid)?;
        view.write(Write::Discard(key));
        view.log(|| Line::DropSession(self.sid));
        if !self.keep_writer {
            fence(view, self.sid)?;
        }
        Ok(true)
    }
}

/// What [`fence`] reads first.
fn wants(sid: u64) -> [Want; 2] {
    let last = Want::get(Key::Extra(Extra::LastCommits, sid), Hold::Lock);
    [Want::all(List::Lanes(sid), Hold::None), last]
}

/// Takes the right to commit from a session. Keeps which commits it had reached.
fn fence(view: &mut View<'_>, sid: u64) -> Result<(), Stop> {
    let lanes = view.all(List::Lanes(sid), Hold::None)?;
    if !lanes.is_empty() {
        let mut last = match view.get(&Key::Extra(Extra::LastCommits, sid), Hold::Lock)? {
            Some(Row::Extra(_, _, json)) => LastCommits::parse(&json.0).unwrap_or_default(),
            _ => LastCommits::default(),
        };
        last.fenced = view.now().sec;
        // What is known of a lane from an earlier time is true as long as the lane has no record.
        let known = last.lanes.keys().map(|lane| Key::Writer(sid, *lane));
        let lanes: Vec<Key> = lanes.iter().map(Row::key).chain(known).collect();
        view.want(&lanes.iter().map(|lane| Want::get(lane.clone(), Hold::Lock)).collect::<Vec<_>>())?;
        for lane in lanes {
            if let Some(Row::Writer(_, lane, n)) = view.get(&lane, Hold::Lock)? {
                last.lanes.insert(lane, n);
            }
        }
        group::store(view, Extra::LastCommits, sid, last.to_json())?;
    }
    view.write(Write::Clear(List::Lanes(sid)));
    view.write(Write::Clear(List::Changes(sid)));
    Ok(())
}

/// Removes what was kept of the commits of a session ([`LastCommits`]), if it was fenced before
/// `before`. Two trips.
#[derive(Clone, Copy, Debug)]
pub struct DropLastCommits {
    /// The session.
    pub sid: u64,
    /// Unix seconds.
    pub before: i64,
}

impl Op for DropLastCommits {
    /// Whether it is gone.
    type Out = bool;
    const NAME: &'static str = "drop_last_commits";

    fn conflict_keys(&self) -> ConflictKeys {
        smallvec![ConflictKey::Volume("session")]
    }

    fn run(&self, view: &mut View<'_>) -> Result<bool, Stop> {
        let key = Key::Extra(Extra::LastCommits, self.sid);
        let Some(Row::Extra(_, _, json)) = view.get(&key, Hold::Lock)? else { return Ok(true) };
        let old = LastCommits::parse(&json.0).is_none_or(|last| last.fenced < self.before);
        if old {
            view.write(Write::Discard(key));
        }
        Ok(old)
    }
}
