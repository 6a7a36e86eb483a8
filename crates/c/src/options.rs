//! How a volume is opened, as text: a JSON object, or lines of `name=value`.
//!
//! What must stay true: a name that is not known is an error. Environment variables are not read. A
//! program passes such values as options of the same names, in capital letters.

use std::{collections::HashMap, fs};

use serde_json::Value;
use sluice_fs::{Accounts, Superusers, User};
use sluice_open::{VolumeOptions, parse_flag};

use crate::border::{Failure, Outcome, invalid};

/// What a program wants to open.
pub(crate) struct Wanted {
    pub(crate) options: VolumeOptions,
    pub(crate) user: User,
    pub(crate) accounts: Accounts,
    /// What the environment of the command line would say.
    pub(crate) variables: HashMap<String, String>,
}

/// Understands the text of the options; an empty one has none.
pub(crate) fn parse(text: &str) -> Outcome<Wanted> {
    let pairs = pairs(text)?;
    let find = |wanted: &str| {
        let same = |name: &str| name.replace('_', "-") == wanted;
        pairs.iter().rev().find(|(name, _)| same(name)).map(|(_, value)| value.as_str())
    };
    let accounts = accounts(find("passwd-file"), find("group-file"))?;
    let superusers = Superusers {
        user: find("superuser-name").unwrap_or_default().into(),
        group: find("supergroup").unwrap_or_default().into(),
    };
    let mut user = match find("user") {
        Some(name) => by_name(&accounts, name, &superusers)?,
        None => User::of_process(),
    };
    let mut options = VolumeOptions::default();
    let mut variables = HashMap::new();
    for (name, value) in &pairs {
        let wrong = |takes: &str| invalid(format!("{name}={value}: it takes {takes}"));
        match name.replace('_', "-").as_str() {
            "user" | "passwd-file" | "group-file" | "superuser-name" | "supergroup" => {}
            "uid" => user.uid = value.parse().map_err(|_| wrong("a number"))?,
            "gid" => user.gid = value.parse().map_err(|_| wrong("a number"))?,
            "groups" => user.groups = groups(&accounts, value)?,
            "superuser" => user.superuser = parse_flag(value).ok_or_else(|| wrong("true or false"))?,
            "umask" => {
                let umask = u16::from_str_radix(value, 8).map_err(|_| wrong("octal digits"))?;
                user.umask = umask & 0o777;
            }
            _ if name.chars().all(|c| c.is_ascii_uppercase() || c == '_' || c.is_ascii_digit()) => {
                variables.insert(name.clone(), value.clone());
            }
            known => {
                if !options.set(known, value)? {
                    return Err(invalid(format!("there is no option {name}")));
                }
            }
        }
    }
    Ok(Wanted { options, user, accounts, variables })
}

/// A user by name.
pub(crate) fn by_name(accounts: &Accounts, name: &str, superusers: &Superusers) -> Outcome<User> {
    let unknown = || invalid(format!("there is no user {name} on this machine"));
    accounts.user(name, superusers).ok_or_else(unknown)
}

fn groups(accounts: &Accounts, list: &str) -> Outcome<Vec<u32>> {
    let unknown = |group: &str| invalid(format!("there is no group {group} on this machine"));
    list.split(',')
        .map(str::trim)
        .filter(|group| !group.is_empty())
        .map(|group| group.parse().ok().or_else(|| accounts.gid(group)).ok_or_else(|| unknown(group)))
        .collect()
}

/// Those of two files, by default those of the machine. A machine without the files has none.
fn accounts(passwd: Option<&str>, group: Option<&str>) -> Outcome<Accounts> {
    let read = |path: Option<&str>, default: &str| match path {
        None => Ok(fs::read_to_string(default).unwrap_or_default()),
        Some(path) => fs::read_to_string(path).map_err(|error| {
            Failure::new(error.raw_os_error().unwrap_or(libc::EIO), format!("{path} cannot be read: {error}"))
        }),
    };
    Ok(Accounts::parse(&read(passwd, "/etc/passwd")?, &read(group, "/etc/group")?))
}

fn pairs(text: &str) -> Outcome<Vec<(String, String)>> {
    let text = text.trim();
    if text.starts_with('{') {
        let wrong = |why: String| invalid(format!("the options are no JSON object: {why}"));
        let object: serde_json::Map<String, Value> =
            serde_json::from_str(text).map_err(|error| wrong(error.to_string()))?;
        return object
            .into_iter()
            .map(|(name, value)| match value {
                Value::String(value) => Ok((name, value)),
                Value::Bool(_) | Value::Number(_) => Ok((name, value.to_string())),
                _ => Err(wrong(format!("{name} is no text, number or flag"))),
            })
            .collect();
    }
    text.lines()
        .map(str::trim)
        .filter(|line| !line.is_empty() && !line.starts_with('#'))
        .map(|line| {
            let pair = line.split_once('=').map(|(name, value)| (name.trim().into(), value.trim().into()));
            pair.ok_or_else(|| invalid(format!("the option {line} is no NAME=VALUE")))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_and_lines_say_the_same() {
        let lines = "uid=7\ngid=8\n\n# a comment\ngroups=9,10\nsuperuser=false\numask=027\ncache_size=1G\nMETA_PASSWORD=x=y\n";
        let json = r#"{"uid": 7, "gid": 8, "groups": "9,10", "superuser": false, "umask": "027",
                       "cache-size": "1G", "META_PASSWORD": "x=y"}"#;
        for text in [lines, json] {
            let wanted = parse(text).unwrap_or_else(|failure| unreachable!("{failure:?}"));
            let user = User::new(7, 8).with_groups(&[9, 10]).with_umask(0o027);
            assert_eq!((wanted.user, wanted.options.cache_size), (user, 1 << 30));
            assert_eq!(wanted.variables["META_PASSWORD"], "x=y");
        }
    }

    #[test]
    fn what_is_not_known_is_refused() {
        for text in
            ["nonsense=1", "uid=x", "just text", "{\"uid\": []}", "{", "groups=no such group", "user=no such"]
        {
            let failure = parse(text).map(drop).unwrap_err();
            assert_eq!(failure.errno, libc::EINVAL, "{text}");
        }
    }
}
