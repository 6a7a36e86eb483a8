//! Cache groups: their members, and the keys by which members and clients authenticate each other.
//!
//! What must stay true: each change of the members raises the version of the list in the same
//! commit. A member record exists only as long as its session.

use sluice_types::FsError;
use smallvec::smallvec;

use super::rules;
use crate::{
    engine::{Hold, Write},
    op::{ConflictKey, ConflictKeys, Op},
    schema::{Extra, GroupKeys, Key, Member, Row, Secret},
    view::{Stop, View},
    want::Want,
};

/// The record that holds the version of the members.
pub(crate) const VERSION: Key = Key::Extra(Extra::GroupVersion, 0);

const KEYS: Key = Key::Extra(Extra::GroupKeys, 0);

/// The version of the members that its record says, 0 before anybody joined.
pub(crate) fn version(row: Option<&Row>) -> u64 {
    match row {
        Some(Row::Extra(_, _, value)) => value.0[..].try_into().map_or(0, u64::from_be_bytes),
        _ => 0,
    }
}

/// Raises the version of the members.
fn raise_version(view: &mut View<'_>) -> Result<(), Stop> {
    let raised = version(view.get(&VERSION, Hold::Lock)?.as_ref()) + 1;
    store(view, Extra::GroupVersion, 0, raised.to_be_bytes().to_vec())
}

/// Replaces or makes a record.
pub(super) fn store(view: &mut View<'_>, kind: Extra, number: u64, value: Vec<u8>) -> Result<(), Stop> {
    let row = Row::Extra(kind, number, value.into());
    match view.get(&row.key(), Hold::Lock)? {
        Some(_) => view.put(row),
        None => view.insert(row),
    }
    Ok(())
}

/// What [`leave`] reads.
pub(super) fn wants(sid: u64) -> [Want; 2] {
    [Key::Extra(Extra::Member, sid), VERSION].map(|key| Want::get(key, Hold::Lock))
}

/// Removes the membership of a session, if it has one; whether it had.
pub(super) fn leave(view: &mut View<'_>, sid: u64) -> Result<bool, Stop> {
    let key = Key::Extra(Extra::Member, sid);
    let there = view.get(&key, Hold::Lock)?.is_some();
    if there {
        raise_version(view)?;
    }
    view.write(Write::Discard(key));
    Ok(there)
}

/// Makes a session a member of a group, or replaces what its record says. Two trips.
#[derive(Clone, Debug)]
pub struct JoinGroup(
    /// What shall be known of it. Its epoch and the time are set here.
    pub Member,
);

impl Op for JoinGroup {
    type Out = ();
    const NAME: &'static str = "join_group";

    fn conflict_keys(&self) -> ConflictKeys {
        smallvec![ConflictKey::Volume("session")]
    }

    /// # Errors
    /// `EINVAL` without a name of the group or an address, `EAGAIN` if others took this client for
    /// dead: its next heartbeat brings its session back.
    fn run(&self, view: &mut View<'_>) -> Result<(), Stop> {
        let named = !self.0.group.is_empty() && !self.0.address.is_empty();
        rules::require(named, FsError::Invalid)?;
        let (sid, session) = (self.0.sid, Key::Session(self.0.sid));
        let [member, version] = wants(sid);
        view.want(&[Want::get(session.clone(), Hold::Guard), member, version])?;
        // Whoever removes the session removes its membership: it must be there at the commit.
        rules::require(view.get(&session, Hold::Guard)?.is_some(), FsError::Again)?;
        let before = match view.get(&Key::Extra(Extra::Member, sid), Hold::Lock)? {
            Some(Row::Extra(_, _, value)) => Member::parse(&value.0).map_or(0, |member| member.epoch),
            _ => 0,
        };
        let member = Member { epoch: before + 1, joined: view.now().sec, ..self.0.clone() };
        store(view, Extra::Member, sid, member.to_json())?;
        raise_version(view)
    }
}

/// Removes the membership of a session, which goes on. Two trips.
#[derive(Clone, Copy, Debug)]
pub struct LeaveGroup(
    /// Its id.
    pub u64,
);

impl Op for LeaveGroup {
    /// Whether it was a member.
    type Out = bool;
    const NAME: &'static str = "leave_group";

    fn conflict_keys(&self) -> ConflictKeys {
        smallvec![ConflictKey::Volume("session")]
    }

    fn run(&self, view: &mut View<'_>) -> Result<bool, Stop> {
        view.want(&wants(self.0))?;
        leave(view, self.0)
    }
}

/// Reads the keys that are good. One trip.
#[derive(Clone, Copy, Debug)]
pub struct ReadGroupKeys;

impl Op for ReadGroupKeys {
    /// Nothing as long as nobody needed one.
    type Out = Option<GroupKeys>;
    const NAME: &'static str = "read_group_keys";

    fn conflict_keys(&self) -> ConflictKeys {
        ConflictKeys::new()
    }

    /// # Errors
    /// `EIO` if the record is damaged.
    fn run(&self, view: &mut View<'_>) -> Result<Option<GroupKeys>, Stop> {
        let Some(Row::Extra(_, _, value)) = view.get(&KEYS, Hold::None)? else { return Ok(None) };
        // What is wrong with it is not said: it would quote the secret.
        let damaged = || FsError::io("the keys of the cache groups are damaged; change the key");
        Ok(Some(GroupKeys::parse(&value.0).ok_or_else(damaged)?))
    }
}

/// Makes the first key, or a new one in front of the newest. Two trips.
#[derive(Clone, Debug)]
pub struct AddGroupKey {
    /// The secret of the new key, drawn before: an operation may run several times.
    pub secret: Secret,
    /// Whether there shall be a new key even if there is one.
    pub change: bool,
}

impl Op for AddGroupKey {
    /// The keys that are good then.
    type Out = GroupKeys;
    const NAME: &'static str = "add_group_key";

    fn conflict_keys(&self) -> ConflictKeys {
        smallvec![ConflictKey::Volume("group keys")]
    }

    fn run(&self, view: &mut View<'_>) -> Result<GroupKeys, Stop> {
        let stored = match view.get(&KEYS, Hold::Lock)? {
            Some(Row::Extra(_, _, value)) => GroupKeys::parse(&value.0),
            _ => None,
        };
        let now = view.now().sec;
        let keys = match stored {
            Some(keys) if !self.change => return Ok(keys),
            Some(keys) => keys.changed(now, self.secret.clone()),
            // Damaged ones are good for nothing.
            None => GroupKeys::first(now, self.secret.clone()),
        };
        store(view, Extra::GroupKeys, 0, keys.to_json())?;
        Ok(keys)
    }
}
