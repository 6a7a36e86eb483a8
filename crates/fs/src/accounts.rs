//! Users and groups by their names.
//!
//! What must stay true: an unknown name never gets a number.

use std::{collections::HashMap, fs, io};

use crate::user::User;

/// Users and groups of the machine, as files list them. Directory services are not asked.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Accounts {
    /// Ids and main groups of users.
    users: HashMap<String, (u32, u32)>,
    /// Ids of groups.
    groups: HashMap<String, u32>,
    /// The groups that list a user as a member.
    memberships: HashMap<String, Vec<u32>>,
    user_names: HashMap<u32, String>,
    group_names: HashMap<u32, String>,
}

/// Who is a superuser: a user by name, and all members of a group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Superusers {
    /// Name of the user; empty for nobody.
    pub user: String,
    /// Name of the group; empty for none.
    pub group: String,
}

impl Accounts {
    /// Those of `/etc/passwd` and `/etc/group`. A container may have neither file.
    ///
    /// # Errors
    /// One of the files cannot be read.
    pub fn system() -> io::Result<Self> {
        let read = |path| match fs::read(path) {
            Ok(text) => Ok(String::from_utf8_lossy(&text).into_owned()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(String::new()),
            Err(error) => Err(error),
        };
        Ok(Self::parse(&read("/etc/passwd")?, &read("/etc/group")?))
    }

    /// Those of texts in the formats of `passwd(5)` and `group(5)`. Lines that are not in the
    /// format are left out. The first line of a name or a number counts.
    pub fn parse(passwd: &str, group: &str) -> Self {
        let mut accounts = Self::default();
        for line in passwd.lines() {
            let mut fields = line.split(':');
            let (Some(name), Some(_), Some(uid), Some(gid)) =
                (fields.next(), fields.next(), number(fields.next()), number(fields.next()))
            else {
                continue;
            };
            accounts.users.entry(name.into()).or_insert((uid, gid));
            accounts.user_names.entry(uid).or_insert_with(|| name.into());
        }
        for line in group.lines() {
            let mut fields = line.split(':');
            let (Some(name), Some(_), Some(gid)) = (fields.next(), fields.next(), number(fields.next()))
            else {
                continue;
            };
            accounts.groups.entry(name.into()).or_insert(gid);
            accounts.group_names.entry(gid).or_insert_with(|| name.into());
            let members = fields.next().unwrap_or_default().split(',').map(str::trim);
            for member in members.filter(|member| !member.is_empty()) {
                accounts.memberships.entry(member.into()).or_default().push(gid);
            }
        }
        accounts
    }

    /// Id of a user.
    pub fn uid(&self, user: &str) -> Option<u32> {
        self.users.get(user).map(|(uid, _)| *uid)
    }

    /// Id of a group.
    pub fn gid(&self, group: &str) -> Option<u32> {
        self.groups.get(group).copied()
    }

    /// All users with their ids.
    pub fn users(&self) -> impl Iterator<Item = (&str, u32)> {
        self.users.iter().map(|(name, (uid, _))| (name.as_str(), *uid))
    }

    /// All groups with their ids.
    pub fn groups(&self) -> impl Iterator<Item = (&str, u32)> {
        self.groups.iter().map(|(name, gid)| (name.as_str(), *gid))
    }

    /// Name of a user.
    pub fn user_name(&self, uid: u32) -> Option<&str> {
        self.user_names.get(&uid).map(String::as_str)
    }

    /// Name of a group.
    pub fn group_name(&self, gid: u32) -> Option<&str> {
        self.group_names.get(&gid).map(String::as_str)
    }

    /// A user by name with its groups; `None` if there is no such user.
    pub fn user(&self, name: &str, superusers: &Superusers) -> Option<User> {
        let (uid, gid) = *self.users.get(name)?;
        let groups = self.memberships.get(name).cloned().unwrap_or_default();
        let supergroup = self.gid(&superusers.group).filter(|_| !superusers.group.is_empty());
        let member = supergroup.is_some_and(|group| group == gid || groups.contains(&group));
        let named = !superusers.user.is_empty() && superusers.user == name;
        Some(User { groups, superuser: named || member, ..User::new(uid, gid) })
    }
}

fn number(field: Option<&str>) -> Option<u32> {
    field?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const PASSWD: &str = "root:x:0:0:root:/root:/bin/sh\nann:x:1000:100::/:\nbob:x:1001:101::/:\nbroken\n";
    const GROUP: &str = "root:x:0:\nusers:x:100:bob\nstaff:x:200:ann,bob\nadmins:x:300: ann\nx\n";

    #[test]
    fn names_and_numbers_are_found() {
        let accounts = Accounts::parse(PASSWD, GROUP);
        assert_eq!((accounts.uid("ann"), accounts.gid("staff")), (Some(1000), Some(200)));
        assert_eq!((accounts.uid("broken"), accounts.gid("ann")), (None, None));
        assert_eq!((accounts.user_name(1001), accounts.group_name(300)), (Some("bob"), Some("admins")));
    }

    #[test]
    fn root_is_a_superuser_only_if_it_is_named() {
        let accounts = Accounts::parse(PASSWD, GROUP);
        let superusers = Superusers { user: "bob".into(), group: "admins".into() };
        let is = |name| accounts.user(name, &superusers).map(|user| (user.superuser, user.groups));
        assert_eq!(is("root"), Some((false, vec![])));
        assert_eq!(is("ann"), Some((true, vec![200, 300])));
        assert_eq!(is("bob"), Some((true, vec![100, 200])));
        assert_eq!(is("eve"), None);
        let nobody = Superusers { user: String::new(), group: String::new() };
        assert!(accounts.user("ann", &nobody).is_some_and(|ann| !ann.superuser));
    }
}
