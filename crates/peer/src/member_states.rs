//! The list of members, with the state ([`Node`]) of each member.
//!
//! What must stay true: the state of a member is kept when the list changes, as long as its address
//! and certificate are the same.

use std::{sync::Arc, time::Duration};

use rustc_hash::FxHashSet;

use crate::{
    members::{Member, Members},
    node::Node,
    placement::Share,
};

/// The list. The vectors have the same order: each member, its share of the blocks, and its state.
#[derive(Debug, Default)]
pub(crate) struct MemberStates {
    pub(crate) version: u64,
    pub(crate) members: Vec<Member>,
    pub(crate) shares: Vec<Share>,
    pub(crate) nodes: Vec<Arc<Node>>,
    /// The position of this client.
    pub(crate) own: Option<usize>,
}

impl MemberStates {
    /// The states for another list, for the client of the name `own`; `node` makes the state of a
    /// new member.
    pub(crate) fn next(&self, mut list: Members, own: Option<&str>, node: impl Fn(&Member) -> Node) -> Self {
        // Of several with one name, which may be two containers or one that came back before its
        // former session expired, the last one owns the blocks. Otherwise a member could ask
        // itself, and each of them would take the other one for the owner.
        let mut names = FxHashSet::default();
        list.members.reverse();
        list.members.retain(|member| names.insert(member.name.clone()));
        list.members.reverse();
        let node = |member: &Member| {
            let known = self.nodes.iter().find(|node| node.is(&member.address, member.fingerprint));
            known.cloned().unwrap_or_else(|| Arc::new(node(member)))
        };
        Self {
            version: list.version,
            shares: list.members.iter().map(|member| Share::new(&member.name, member.weight)).collect(),
            nodes: list.members.iter().map(node).collect(),
            own: list.members.iter().position(|member| Some(&*member.name) == own),
            members: list.members,
        }
    }

    pub(crate) fn position(&self, node: &Arc<Node>) -> Option<usize> {
        self.nodes.iter().position(|other| Arc::ptr_eq(other, node))
    }

    /// The response time of the fastest of the other members.
    pub(crate) fn fastest_but(&self, at: usize) -> Option<Duration> {
        let others = self.nodes.iter().enumerate().filter(|(other, _)| *other != at);
        others.filter_map(|(_, node)| node.usual_cost()).min()
    }
}
