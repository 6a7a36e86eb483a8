//! What the URLs of all stores have in common:
//! `scheme://user:password@host1:port,host2/path?option=value`.

use sluice_meta::engine::EngineError;

/// A URL in its parts, without escapes.
pub(crate) struct Address {
    /// Name and password.
    pub(crate) user: Option<(String, String)>,
    /// `host:port`, at least one.
    pub(crate) hosts: Vec<String>,
    /// With the slash that it begins with.
    pub(crate) path: String,
    /// Names with hyphens.
    pub(crate) options: Vec<(String, String)>,
}

impl Address {
    /// Takes a URL apart; `port` is that of a host that names none.
    pub(crate) fn parse(url: &str, scheme: &'static str, port: u16) -> Result<Self, EngineError> {
        let wrong = |what: &str| {
            let form = format!("write {scheme}://host1:{port},host2:{port}/prefix");
            refused(scheme, format!("the URL {what}; {form}"))
        };
        let rest = url.strip_prefix(scheme).and_then(|rest| rest.strip_prefix("://"));
        let rest = rest.ok_or_else(|| wrong(&format!("does not begin with {scheme}://")))?;
        let (place, query) = rest.split_once('?').unwrap_or((rest, ""));
        let (hosts, path) = place.find('/').map_or((place, ""), |at| place.split_at(at));
        let (user, hosts) = hosts.rsplit_once('@').unwrap_or(("", hosts));
        let plain = |text| unescaped(text).ok_or_else(|| wrong("holds escapes that are no UTF-8"));
        let (name, password) = user.split_once(':').unwrap_or((user, ""));
        // A password alone shows nobody.
        let user = if name.is_empty() { None } else { Some((plain(name)?, plain(password)?)) };
        let hosts = hosts.split(',').filter(|host| !host.is_empty());
        let hosts: Vec<String> = hosts.map(|host| with_port(host, port)).collect();
        if hosts.is_empty() {
            return Err(wrong("names no server"));
        }
        let options = url::form_urlencoded::parse(query.as_bytes());
        let options = options.map(|(name, value)| (name.replace('_', "-"), value.into_owned())).collect();
        Ok(Self { user, hosts, path: plain(path)?, options })
    }
}

/// Something is wrong with a URL.
pub(crate) fn refused(scheme: &str, reason: String) -> EngineError {
    EngineError::Refused { engine: scheme.into(), reason }
}

fn with_port(host: &str, port: u16) -> String {
    let named = host.rsplit_once(':').is_some_and(|(_, port)| port.parse::<u16>().is_ok());
    if named && !host.ends_with(']') { host.into() } else { format!("{host}:{port}") }
}

fn unescaped(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((byte, tail)) = rest.split_first() {
        let hex = tail.get(..2).and_then(|hex| u8::from_str_radix(std::str::from_utf8(hex).ok()?, 16).ok());
        if let (b'%', Some(value)) = (byte, hex) {
            bytes.push(value);
            rest = &tail[2..];
        } else {
            bytes.push(*byte);
            rest = tail;
        }
    }
    String::from_utf8(bytes).ok()
}

/// Commits under way at once, as an option says; 0 means no limit to other drivers and `usual`
/// here.
pub(crate) fn lanes(name: &str, value: &str, usual: usize) -> Result<usize, String> {
    let lanes: usize = value.parse().map_err(|_| format!("{name}={value} is no number"))?;
    Ok(if lanes == 0 { usual } else { lanes.clamp(1, 64) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_as_they_are_written_for_juicefs() {
        let url = "etcd://me:a%40b@h1:99,h2,[::1]/jfs/v%31?cacert=/ca&max_txn_ops=512";
        let address = Address::parse(url, "etcd", 2379).expect("valid");
        assert_eq!(address.hosts, ["h1:99", "h2:2379", "[::1]:2379"]);
        assert_eq!((address.path.as_str(), address.user), ("/jfs/v1", Some(("me".into(), "a@b".into()))));
        let options = [("cacert", "/ca"), ("max-txn-ops", "512")];
        assert_eq!(address.options, options.map(|(name, value)| (name.to_owned(), value.to_owned())));
        let address = Address::parse("etcd://h", "etcd", 2379).expect("valid");
        assert_eq!((address.path.as_str(), address.user), ("", None));
        for bad in ["http://x", "etcd:///v"] {
            assert!(Address::parse(bad, "etcd", 2379).is_err(), "{bad}");
        }
    }
}
