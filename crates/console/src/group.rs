//! The members of cache groups, from their records.

use serde::Serialize;
use sluice_meta::{Interrupt, Meta, schema};
use sluice_types::FsResult;

/// A client that serves blocks of its cache to other clients.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Member {
    pub(crate) session: u64,
    /// Name of its group.
    pub(crate) group: String,
    /// Where it listens.
    pub(crate) address: String,
    /// Its share of the blocks, compared with that of the others. 0: it is drained.
    pub(crate) weight: u32,
    /// Whether it uses TLS.
    pub(crate) encrypted: bool,
    /// When it joined last, Unix seconds.
    pub(crate) joined: i64,
}

impl From<schema::Member> for Member {
    fn from(member: schema::Member) -> Self {
        Self {
            session: member.sid,
            group: member.group,
            address: member.address,
            weight: member.weight,
            encrypted: member.fingerprint.is_some(),
            joined: member.joined,
        }
    }
}

/// The cache groups of a volume.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub(crate) struct Group {
    /// Those whose sessions live, by group and session.
    pub(crate) members: Vec<Member>,
}

/// Reads the members of all groups. Two trips.
pub(crate) fn read(meta: &Meta, interrupt: &Interrupt) -> FsResult<Group> {
    let mut members: Vec<Member> =
        meta.all_members(interrupt)?.members.into_iter().map(Member::from).collect();
    members.sort_by(|a, b| (&a.group, a.session).cmp(&(&b.group, b.session)));
    Ok(Group { members })
}
