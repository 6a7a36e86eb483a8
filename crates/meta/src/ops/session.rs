//! Sessions: the records by which clients know of each other.

use sluice_types::Ino;
use smallvec::smallvec;

use crate::{
    engine::{Hold, List, Read, Write},
    op::{Lane, Lanes, Op},
    schema::{Change, Key, Row, Session},
    view::{Stop, View},
};

/// Renews this client's session at each heartbeat. Two trips.
#[derive(Clone, Debug)]
pub struct PutSession {
    /// Session id.
    pub sid: u64,
    /// What others shall see.
    pub session: Session,
}

impl Op for PutSession {
    /// Whether it was there: if not, somebody took this client for dead.
    type Out = bool;
    const NAME: &'static str = "put_session";

    fn lanes(&self) -> Lanes {
        smallvec![Lane::Volume("session")]
    }

    fn run(&self, view: &mut View<'_>) -> Result<bool, Stop> {
        let there = view.get(&Key::Session(self.sid), Hold::Lock)?.is_some();
        view.put(Row::Session(self.sid, self.session.clone()));
        Ok(there)
    }
}

/// Removes the locks of a session that ended or died. Two trips.
#[derive(Clone, Debug)]
pub struct DropLocks(pub u64);

impl Op for DropLocks {
    type Out = ();
    const NAME: &'static str = "drop_locks";

    fn lanes(&self) -> Lanes {
        smallvec![Lane::Volume("session")]
    }

    fn run(&self, view: &mut View<'_>) -> Result<(), Stop> {
        for row in view.all(List::LocksOf(self.0), Hold::None)? {
            if let Row::Flock(ino, ..) | Row::Plock(ino, ..) = row {
                view.write(Write::Discard(row.key()));
                view.write(Write::Tell(Change::Lock(ino)));
            }
        }
        Ok(())
    }
}

/// Lists the sustained files of a session. One trip.
#[derive(Clone, Debug)]
pub struct ListSustained(pub u64);

impl Op for ListSustained {
    type Out = Vec<Ino>;
    const NAME: &'static str = "list_sustained";

    fn lanes(&self) -> Lanes {
        Lanes::new()
    }

    fn run(&self, view: &mut View<'_>) -> Result<Vec<Ino>, Stop> {
        let rows = view.all(List::Sustained(self.0), Hold::None)?;
        Ok(rows
            .iter()
            .filter_map(|row| if let Row::Sustained(_, ino) = row { Some(*ino) } else { None })
            .collect())
    }
}

/// Removes the record of a session whose locks and sustained files are gone. Nothing is removed if it was refreshed
/// meanwhile. Its writer records go in the same commit, so that whoever still commits under it learns of it. Two
/// trips.
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

    fn lanes(&self) -> Lanes {
        smallvec![Lane::Volume("session")]
    }

    fn run(&self, view: &mut View<'_>) -> Result<bool, Stop> {
        let key = Key::Session(self.sid);
        view.want(&[Read::Get(key.clone(), Hold::Lock)])?;
        let alive = match (view.get(&key, Hold::Lock)?, self.dead_before) {
            (Some(Row::Session(_, session)), Some(before)) => session.expire >= before,
            _ => false,
        };
        if alive {
            return Ok(false);
        }
        view.write(Write::Discard(key));
        if !self.keep_writer {
            view.write(Write::Clear(List::Lanes(self.sid)));
            view.write(Write::Clear(List::Changes(self.sid)));
        }
        Ok(true)
    }
}
