//! Users and groups of a cluster by their names, with the numbers that `JuiceFS`' SDKs give them.
//!
//! What must stay true: a name has the same number in every process that opens the volume with the
//! same lists. The superuser and the supergroup have number 0. A user named `root` does not get
//! number 0 for this name.

use std::collections::HashMap;

use md5::{Digest as _, Md5};
use parking_lot::Mutex;

use crate::{
    accounts::{Accounts, Superusers},
    user::User,
};

/// The user name whose number on a machine says nothing about the cluster.
const ROOT: &str = "root";

/// Names and numbers of users and groups. Names that no list has get a number that follows from the
/// name and the volume.
#[derive(Debug)]
pub struct Identities {
    /// With what the numbers of unknown names are made: the name of the volume.
    salt: String,
    superusers: Superusers,
    users: Table,
    groups: Table,
    /// The groups of users, if a list of groups was given.
    memberships: Option<HashMap<String, Vec<String>>>,
}

/// Names and numbers in both directions.
#[derive(Debug, Default)]
struct Table {
    listed: Pairs,
    /// Numbers that were made, so that their names are shown.
    made: Mutex<HashMap<u32, String>>,
}

#[derive(Debug, Default)]
struct Pairs {
    ids: HashMap<String, u32>,
    names: HashMap<u32, String>,
}

impl Pairs {
    fn add(&mut self, name: &str, id: u32) {
        self.ids.insert(name.into(), id);
        self.names.insert(id, name.into());
    }
}

impl Identities {
    /// The identities of a volume. `users` has lines `NAME:UID`, `groups` has lines
    /// `NAME:GID:USER,USER`; they come before the accounts of the machine. With a list of groups,
    /// it alone says who is in which group.
    pub fn new(
        volume: &str,
        superusers: Superusers,
        accounts: &Accounts,
        users: Option<&str>,
        groups: Option<&str>,
    ) -> Self {
        let (mut listed_users, mut listed_groups) = (Pairs::default(), Pairs::default());
        for (name, id) in accounts.users().filter(|(name, _)| *name != ROOT) {
            listed_users.add(name, id);
        }
        for (name, id) in accounts.groups().filter(|(name, _)| *name != ROOT) {
            listed_groups.add(name, id);
        }
        for line in users.unwrap_or_default().lines() {
            let mut fields = line.trim().split(':');
            if let (Some(name), Some(Ok(id))) = (fields.next(), fields.next().map(|id| id.trim().parse())) {
                listed_users.add(name.trim(), id);
            }
        }
        let mut memberships = HashMap::<String, Vec<String>>::new();
        for line in groups.unwrap_or_default().lines() {
            let mut fields = line.trim().split(':');
            if let (Some(name), Some(Ok(id))) = (fields.next(), fields.next().map(|id| id.trim().parse())) {
                listed_groups.add(name.trim(), id);
                let members = fields.next().unwrap_or_default().split(',').map(str::trim);
                for member in members.filter(|member| !member.is_empty()) {
                    memberships.entry(member.into()).or_default().push(name.trim().into());
                }
            }
        }
        let table = |listed| Table { listed, made: Mutex::default() };
        Self {
            salt: volume.into(),
            superusers,
            users: table(listed_users),
            groups: table(listed_groups),
            memberships: groups.map(|_| memberships),
        }
    }

    /// Number of a user.
    pub fn uid(&self, user: &str) -> u32 {
        if user == self.superusers.user && !user.is_empty() { 0 } else { self.number(&self.users, user) }
    }

    /// Number of a group.
    pub fn gid(&self, group: &str) -> u32 {
        if group == self.superusers.group && !group.is_empty() { 0 } else { self.number(&self.groups, group) }
    }

    /// Name of a user; its number as a text if it has none.
    pub fn user_name(&self, uid: u32) -> String {
        if uid == 0 && !self.superusers.user.is_empty() {
            return self.superusers.user.clone();
        }
        self.users.name(uid)
    }

    /// Name of a group; its number as a text if it has none.
    pub fn group_name(&self, gid: u32) -> String {
        if gid == 0 && !self.superusers.group.is_empty() {
            return self.superusers.group.clone();
        }
        self.groups.name(gid)
    }

    /// A user by name. `groups` are the groups that the program knows, the first of which owns what
    /// the user makes; a list of groups overrides them.
    pub fn user(&self, name: &str, groups: &[&str], umask: u16) -> User {
        let listed = self.memberships.as_ref().and_then(|memberships| memberships.get(name));
        let groups: Vec<&str> = match (listed, &self.memberships) {
            (Some(listed), _) => listed.iter().map(String::as_str).collect(),
            (None, Some(_)) => Vec::new(),
            (None, None) => groups.iter().copied().filter(|group| !group.is_empty()).collect(),
        };
        let named = !self.superusers.user.is_empty() && name == self.superusers.user;
        let member = !self.superusers.group.is_empty() && groups.contains(&self.superusers.group.as_str());
        let ids: Vec<u32> = groups.iter().map(|group| self.gid(group)).collect();
        // Nobody has group 0 but those of the supergroup.
        let main = ids.first().copied().unwrap_or_else(|| if named { 0 } else { self.gid("nogroup") });
        User { groups: ids, superuser: named || member, ..User::new(self.uid(name), main).with_umask(umask) }
    }

    fn number(&self, table: &Table, name: &str) -> u32 {
        if let Some(id) = table.listed.ids.get(name) {
            return *id;
        }
        let id = self.made(name);
        table.made.lock().insert(id, name.into());
        id
    }

    /// The number that `JuiceFS` makes for a name.
    fn made(&self, name: &str) -> u32 {
        let digest = Md5::digest([&self.salt, name, &self.salt].concat());
        let half =
            |at: usize| digest[at..at + 4].iter().rev().fold(0, |id: u32, byte| id << 8 | u32::from(*byte));
        half(0) ^ half(8)
    }
}

impl Table {
    fn name(&self, id: u32) -> String {
        let listed = self.listed.names.get(&id).cloned();
        listed.or_else(|| self.made.lock().get(&id).cloned()).unwrap_or_else(|| id.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PASSWD: &str = "root:x:0:0:root:/root:/bin/sh\nann:x:1000:100::/:\n";
    const GROUP: &str = "root:x:0:\nusers:x:100:bob\n";

    fn identities(users: Option<&str>, groups: Option<&str>) -> Identities {
        let superusers = Superusers { user: "hdfs".into(), group: "supergroup".into() };
        Identities::new("vol", superusers, &Accounts::parse(PASSWD, GROUP), users, groups)
    }

    #[test]
    fn names_have_numbers_of_lists_or_their_own() {
        let ids = identities(Some("eve:77\nbroken\nann:78\n"), None);
        assert_eq!((ids.uid("eve"), ids.uid("ann"), ids.uid("hdfs"), ids.gid("supergroup")), (77, 78, 0, 0));
        assert_eq!(
            (ids.gid("users"), ids.user_name(77), ids.user_name(0)),
            (100, "eve".into(), "hdfs".into())
        );
        let root = ids.uid("root");
        assert_ne!(root, 0, "root of a machine is nobody special");
        assert_eq!((ids.user_name(root), ids.user_name(12)), ("root".into(), "12".into()));
        // MD5 of "volzoevol", its quarters 0 and 2 as little-endian numbers.
        let digest = Md5::digest("volzoevol");
        let number =
            |at: usize| u32::from_le_bytes([digest[at], digest[at + 1], digest[at + 2], digest[at + 3]]);
        assert_eq!(ids.uid("zoe"), number(0) ^ number(8));
    }

    #[test]
    fn groups_come_from_the_program_or_from_a_list() {
        let of = |ids: &Identities, name, groups: &[&str]| {
            let user = ids.user(name, groups, 0o22);
            (user.gid, user.groups, user.superuser)
        };
        let ids = identities(None, None);
        assert_eq!(of(&ids, "ann", &["users"]), (100, vec![100], false));
        assert_eq!(of(&ids, "ann", &["users", "supergroup"]), (100, vec![100, 0], true));
        assert_eq!(of(&ids, "hdfs", &[]), (0, vec![], true));
        let ids = identities(None, Some("crew:9:ann\nusers:10:bob, ann"));
        assert_eq!(of(&ids, "ann", &["supergroup"]), (9, vec![9, 10], false));
        assert_eq!(of(&ids, "zoe", &["supergroup"]), (ids.gid("nogroup"), vec![], false));
    }
}
