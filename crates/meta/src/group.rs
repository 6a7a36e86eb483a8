//! Cache groups, as their members and clients see them.
//!
//! What must stay true: the version of a list of members is never newer than the list. So a client
//! that receives a later version and reads the list again gets all changes up to this version.

use std::collections::BTreeMap;

use rustc_hash::FxHashSet;
use sluice_types::{FsError, FsResult, wait};

use crate::{
    batch::Interrupt,
    engine::{Found, List, Read},
    meta::Meta,
    ops::group::{AddGroupKey, JoinGroup, LeaveGroup, ReadGroupKeys, VERSION, version},
    schema::{Extra, GroupKeys, Key, Member, Row, Secret},
};

/// The members of a cache group.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Members {
    /// How often the members of any group of the volume changed until then. It only rises.
    pub version: u64,
    /// Those whose sessions live, by their session ids.
    pub members: Vec<Member>,
}

impl Meta {
    /// Makes this client a member of a group, or changes what others know of it, and answers who
    /// the members are then. The session id, the epoch and the time are set here. If others take
    /// this client for dead, its next heartbeat joins again. Four trips.
    ///
    /// # Errors
    /// `EINVAL` without a name of the group or an address. `EROFS` if the volume is open for
    /// reading only: then there is no session that a membership could live as long as. `EAGAIN`
    /// after others fenced this client, until its next heartbeat.
    pub fn join_group(&self, member: Member, interrupt: &Interrupt) -> FsResult<Members> {
        let member = Member { sid: self.sid(), ..member };
        let mut membership = wait::lock(&self.membership);
        let fences = self.env.fences();
        self.run(JoinGroup(member.clone()), interrupt)?;
        let group = member.group.clone();
        *membership = Some((member, fences));
        drop(membership);
        self.members(&group, interrupt)
    }

    /// Ends the membership of a session, be it this client's or another's; whether it had one. The
    /// end of a session does the same. Two trips.
    ///
    /// # Errors
    /// `EROFS` if the volume is open for reading only.
    pub fn leave_group(&self, sid: u64, interrupt: &Interrupt) -> FsResult<bool> {
        let mut membership = wait::lock(&self.membership);
        if sid == self.sid() {
            *membership = None;
        }
        self.run(LeaveGroup(sid), interrupt)
    }

    /// Joins again after others fenced this client, and removed its membership.
    pub(crate) fn rejoin(&self) -> FsResult<()> {
        let mut membership = wait::lock(&self.membership);
        let fences = self.env.fences();
        match &mut *membership {
            Some((member, then)) if *then != fences => {
                self.run(JoinGroup(member.clone()), &Interrupt::never())?;
                *then = fences;
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// The members of a group whose sessions have not expired. Two trips, three if one joins
    /// meanwhile.
    ///
    /// # Errors
    /// `EIO` if the engine says nothing for too long.
    pub fn members(&self, group: &str, interrupt: &Interrupt) -> FsResult<Members> {
        self.members_of(Some(group), interrupt)
    }

    /// As [`Self::members`], of all groups of the volume.
    ///
    /// # Errors
    /// As [`Self::members`].
    pub fn all_members(&self, interrupt: &Interrupt) -> FsResult<Members> {
        self.members_of(None, interrupt)
    }

    /// [`Members::version`] now. One trip.
    ///
    /// # Errors
    /// As [`Self::members`].
    pub fn members_version(&self, interrupt: &Interrupt) -> FsResult<u64> {
        let found = self.retry(interrupt, || self.engine.read(&[Read::Get(VERSION)]))?;
        Ok(version_in(&found))
    }

    fn members_of(&self, group: Option<&str>, interrupt: &Interrupt) -> FsResult<Members> {
        let ask = |reads: &[Read], sids: &[u64]| {
            let sessions = sids.iter().map(|sid| Read::Get(Key::Session(*sid)));
            let reads: Vec<Read> = reads.iter().cloned().chain(sessions).collect();
            self.retry(interrupt, || self.engine.read(&reads))
        };
        let list = Read::All(List::Extras(Extra::Member));
        let found = ask(&[list.clone(), Read::Get(VERSION)], &[])?;
        let known: Vec<u64> = of_group(group, &found).into_keys().collect();
        let version = version_in(&found);
        // Records of one read may be seen at different moments, the list before the version. So it
        // is read again with the sessions.
        let mut found = ask(&[list], &known)?;
        let mut members = of_group(group, &found);
        let new: Vec<u64> = members.keys().filter(|sid| known.binary_search(sid).is_err()).copied().collect();
        if !new.is_empty() {
            found.extend(ask(&[], &new)?);
        }
        let now = self.env.clock.now().sec;
        let alive = |found: &Found| match found {
            Found::Row(Some(Row::Session(sid, session))) if session.expire >= now => Some(*sid),
            _ => None,
        };
        let alive: FxHashSet<u64> = found.iter().filter_map(alive).collect();
        members.retain(|sid, _| alive.contains(sid));
        Ok(Members { version, members: members.into_values().collect() })
    }

    /// The keys by which members and clients of the volume's groups know each other. The first one
    /// is made when it is first needed; one client makes it. One trip, or three.
    ///
    /// # Errors
    /// `EROFS` if there is none yet and the volume is open for reading only, `EIO` if the record is
    /// damaged.
    pub fn group_keys(&self, interrupt: &Interrupt) -> FsResult<GroupKeys> {
        match self.read(&ReadGroupKeys, interrupt)? {
            Some(keys) => Ok(keys),
            None => self.run(AddGroupKey { secret: draw()?, change: false }, interrupt),
        }
    }

    /// Makes a new key, and answers it with the one before it, which stays good until the next
    /// change. Two trips.
    ///
    /// # Errors
    /// `EROFS` if the volume is open for reading only.
    pub fn change_group_key(&self, interrupt: &Interrupt) -> FsResult<GroupKeys> {
        self.run(AddGroupKey { secret: draw()?, change: true }, interrupt)
    }
}

/// The version of the members among the records found.
fn version_in(found: &[Found]) -> u64 {
    let row = found.iter().find_map(|found| if let Found::Row(row) = found { row.as_ref() } else { None });
    version(row)
}

/// The members of a group, or of all, among the records found, by session id.
fn of_group(group: Option<&str>, found: &[Found]) -> BTreeMap<u64, Member> {
    let rows = found.iter().flat_map(|found| match found {
        Found::Rows(rows) => rows.as_slice(),
        _ => &[],
    });
    let member = |row: &Row| {
        let Row::Extra(Extra::Member, sid, value) = row else { return None };
        let member = Member::parse(&value.0);
        if member.is_none() {
            tracing::warn!(sid, "the record of a member of a cache group is damaged; it is left out");
        }
        Some((*sid, Member { sid: *sid, ..member? }))
    };
    rows.filter_map(member).filter(|(_, member)| group.is_none_or(|group| member.group == group)).collect()
}

/// Draws a secret.
fn draw() -> FsResult<Secret> {
    let mut bytes = [0; Secret::BYTES];
    let failed = |_| FsError::io("the system has no random bytes for a key of the cache groups; try again");
    aws_lc_rs::rand::fill(&mut bytes).map_err(failed)?;
    Ok(Secret::new(bytes))
}
