//! The common parts of the URLs of all stores:
//! `scheme://user:password@host1:port,host2/path?option=value`.

use sluice_meta::engine::{EngineError, Label};
use sluice_net::{
    Address as Host,
    url::{self, Url},
};

use crate::{keys::Keys, kv::Volume, stored::Result};

/// The default port, for all stores.
const PORT: u16 = 2379;

/// A URL in its parts, without escapes.
pub(crate) struct Address {
    scheme: &'static str,
    /// Name and password.
    pub(crate) user: Option<(String, String)>,
    /// `host:port`, at least one.
    pub(crate) hosts: Vec<String>,
    /// The path, with its first slash.
    pub(crate) path: String,
    /// Options that were not read yet. Names have hyphens.
    options: Vec<(String, String)>,
}

impl Address {
    /// Parses a URL.
    pub(crate) fn parse(url: &str, scheme: &'static str) -> Result<Self> {
        let unread = |reason: String| Label(scheme.into()).refused(reason);
        let wrong = |what: &str| {
            let form = format!("write {scheme}://host1:{PORT},host2:{PORT}/prefix");
            unread(format!("the URL {what}; {form}"))
        };
        let Url { scheme: named, user, password, hosts, path, options } = Url::parse(url).map_err(unread)?;
        if named != scheme {
            return Err(wrong(&format!("does not begin with {scheme}://")));
        }
        // A password without a user name is ignored.
        let user = user.map(|name| (name, password.map(|password| password.0).unwrap_or_default()));
        let hosts = hosts.split(',').filter(|host| !host.is_empty());
        let hosts = hosts.map(|host| Ok(Host::parse(host, PORT).map_err(unread)?.to_string()));
        let hosts: Vec<String> = hosts.collect::<Result<_>>()?;
        if hosts.is_empty() {
            return Err(wrong("names no server"));
        }
        let options = url::options(options).map_err(unread)?.into_iter();
        let options = options.map(|(name, value)| (name.replace('_', "-"), value)).collect();
        Ok(Self { scheme, user, hosts, path: url::decoded(path).map_err(unread)?, options })
    }

    /// Removes an option and returns it.
    pub(crate) fn option(&mut self, name: &str) -> Option<String> {
        let at = self.options.iter().position(|(named, _)| named == name)?;
        Some(self.options.remove(at).1)
    }

    /// Removes a numeric option and returns it; `usual` if it is not given.
    pub(crate) fn number(&mut self, name: &str, usual: usize) -> Result<usize> {
        let given = self.option(name).map(|value| url::number(name, &value)).transpose();
        given.map(|given| given.unwrap_or(usual)).map_err(|reason| self.refused(reason))
    }

    /// Removes the option for how many commits may be under way at once. With one, all waiting
    /// changes go into the next batch. Several conflict in the directories that they change, and
    /// make batches smaller (TiKV, files in one directory: 5,300/s with 1, 2,750 with 2, 1,580 with
    /// 4).
    pub(crate) fn lanes(&mut self) -> Result<usize> {
        // For other drivers, 0 means no limit.
        Ok(self.number("max-open-conns", 1)?.clamp(1, 64))
    }

    /// Warns of options that were not read.
    pub(crate) fn warn(&self) {
        for (option, _) in &self.options {
            tracing::warn!(option, "this option of the {} URL has no effect", self.scheme);
        }
    }

    /// The volume whose keys begin with `prefix`.
    pub(crate) fn volume(&self, prefix: &str) -> Volume {
        let label = format!("{}://{}{}", self.scheme, self.hosts.join(","), self.path);
        Volume { keys: Keys::new(prefix), label: Label(label.into()) }
    }

    /// The error for a wrong URL.
    pub(crate) fn refused(&self, reason: impl Into<String>) -> EngineError {
        Label(self.scheme.into()).refused(reason)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_as_they_are_written_for_juicefs() {
        let url = "etcd://me:a%40b@h1:99,h2,[::1]/jfs/v%31?cacert=/ca&max_txn_ops=512";
        let mut address = Address::parse(url, "etcd").expect("valid");
        assert_eq!(address.hosts, ["h1:99", "h2:2379", "[::1]:2379"]);
        assert_eq!(
            (address.path.as_str(), address.user.clone()),
            ("/jfs/v1", Some(("me".into(), "a@b".into())))
        );
        let options = [("cacert", "/ca"), ("max-txn-ops", "512")];
        assert_eq!(address.options, options.map(|(name, value)| (name.to_owned(), value.to_owned())));
        assert_eq!((address.option("cacert").as_deref(), address.option("cacert")), (Some("/ca"), None));
        assert_eq!((address.number("max-txn-ops", 1), address.number("max-txn-ops", 1)), (Ok(512), Ok(1)));
        let mut address = Address::parse("etcd://h?max-open-conns=0", "etcd").expect("valid");
        assert_eq!((address.lanes(), address.path.as_str(), address.user), (Ok(1), "", None));
        for bad in ["http://x", "etcd:///v"] {
            assert!(Address::parse(bad, "etcd").is_err(), "{bad}");
        }
    }

    #[test]
    fn no_part_of_a_password_is_shown() {
        for wrong in ["etcd://me:se/cret@h", "etcd://me:12/3@h", "etcd://me:se?cret@h", "me:secret@h"] {
            let error = Address::parse(wrong, "etcd").err().expect(wrong).to_string();
            assert!(!error.contains("se/") && !error.contains("me:"), "{error}");
        }
    }
}
