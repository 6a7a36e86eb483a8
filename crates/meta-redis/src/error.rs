//! Classifies errors: for the caller, and for the connection on which they came.
//!
//! What must stay true: every error of a server means that the command did nothing.

use std::ops::Deref;

use redis::{ServerError, Value};
use sluice_meta::engine::{EngineError, Label};
use sluice_net::Address;

/// Errors of a server that is not the right one, or not any more. The same command on another
/// server, or later, can succeed.
const WRONG_SERVER: [&str; 5] = ["READONLY", "LOADING", "MASTERDOWN", "CLUSTERDOWN", "MOVED"];

/// A redirection by a node of a cluster.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Redirect {
    /// The slot now belongs to that node.
    Moved(Address),
    /// This key was already moved to that node.
    Ask(Address),
}

impl Redirect {
    /// Decodes an answer of `by`.
    pub(crate) fn of(answer: &Value, by: &Address) -> Option<Self> {
        let Value::ServerError(error) = answer else { return None };
        let redirect = match error.code() {
            "MOVED" => Self::Moved,
            "ASK" => Self::Ask,
            _ => return None,
        };
        let (host, port) = error.details()?.rsplit(' ').next()?.rsplit_once(':')?;
        Some(redirect(named(Some(host.to_owned()), port.parse().ok()?, by)))
    }
}

/// The address in an answer. A server may leave out its own host.
pub(crate) fn named(host: Option<String>, port: u16, by: &Address) -> Address {
    match (host.filter(|host| !host.is_empty()), by) {
        (Some(host), _) => Address::Tcp(host, port),
        (None, Address::Tcp(host, _)) => Address::Tcp(host.clone(), port),
        (None, Address::Unix(_)) => Address::Tcp("127.0.0.1".into(), port),
    }
}

/// The code of an error. In scripts, servers before Redis 7 put another code before it.
fn code(error: &ServerError) -> &str {
    let details = error.details().unwrap_or_default();
    let inner = ["READONLY", "OOM", "MISCONF", "NOREPLICAS"].into_iter();
    match error.code() {
        "ERR" if details.contains("non local key") => "TRYAGAIN",
        "ERR" if details.starts_with("max number of clients") => "FULL",
        "ERR" => inner.into_iter().find(|code| details.contains(&format!(": -{code} "))).unwrap_or("ERR"),
        code => code,
    }
}

/// Whether a server reports that it is not the right one.
pub(crate) fn is_wrong_server(answer: &Value) -> bool {
    matches!(answer, Value::ServerError(error) if WRONG_SERVER.contains(&code(error)))
}

/// Makes the errors of one engine, which name its servers.
pub(crate) struct Errors {
    /// The URL without secrets.
    pub(crate) label: Label,
}

impl Deref for Errors {
    type Target = Label;

    fn deref(&self) -> &Label {
        &self.label
    }
}

impl Errors {
    /// Classifies an error of the server. Nothing was done.
    pub(crate) fn classify(&self, error: &ServerError) -> EngineError {
        let details = error.details().unwrap_or_default();
        let advice = match code(error) {
            "DAMAGED" if !details.contains("non local key") => {
                let (record, reason) = details.split_once(' ').unwrap_or((details, "wrong type"));
                return self.corrupt(record, reason);
            }
            "WRONGTYPE" => return self.corrupt("(a key)", details),
            "LOADING" => "it is still loading its data",
            "READONLY" => {
                "it is a read-only replica; the URL must name the primary, or the sentinels that know it"
            }
            "MASTERDOWN" => "it is a replica and its primary is down",
            "CLUSTERDOWN" => "its cluster is down; see CLUSTER INFO on its nodes",
            "MOVED" => "its cluster has just moved the volume to another node",
            "TRYAGAIN" | "ASK" | "DAMAGED" => {
                "its cluster is moving the volume to another node, which has to end first"
            }
            "BUSY" => "another script keeps it busy",
            "MISCONF" => "it cannot save its data to disk and takes no writes; see its log",
            "OOM" => "its memory is full (maxmemory); give it more",
            "NOREPLICAS" => "too few replicas are connected (min-replicas-to-write)",
            "FULL" => {
                "it has too many connections; raise its maxclients or lower max_open_conns of the clients"
            }
            "NOAUTH" | "WRONGPASS" => {
                return self.refused("the server refuses the user name or password");
            }
            "NOPERM" => return self.refused(format!("the user lacks a permission: {details}")),
            code => return self.refused(format!("{code} {details}")),
        };
        self.unavailable(advice)
    }

    /// The answer, if it is no error.
    pub(crate) fn sound(&self, answer: Value) -> Result<Value, EngineError> {
        if let Value::ServerError(error) = &answer { Err(self.classify(error)) } else { Ok(answer) }
    }

    /// The error for an answer of an unexpected form.
    pub(crate) fn unexpected(&self, what: &str) -> EngineError {
        self.refused(format!("its answer to {what} is of an unknown form; is it Redis 4 or newer?"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(line: &str) -> Value {
        redis::parse_redis_value(format!("-{line}\r\n").as_bytes()).expect("an answer")
    }

    #[test]
    fn redirections_name_a_node_or_the_same_host() {
        let by = Address::Tcp("h".into(), 1);
        let tcp = |host: &str, port| Address::Tcp(host.into(), port);
        for (line, redirect) in [
            ("MOVED 3999 10.0.0.1:6381", Redirect::Moved(tcp("10.0.0.1", 6381))),
            ("ASK 3999 ::1:6381", Redirect::Ask(tcp("::1", 6381))),
            ("MOVED 3999 :6381", Redirect::Moved(tcp("h", 6381))),
        ] {
            assert_eq!(Redirect::of(&error(line), &by), Some(redirect));
        }
        for other in ["ERR 1 a:2", "MOVED 1 a:b", "MOVED"] {
            assert_eq!(Redirect::of(&error(other), &by), None, "{other}");
        }
        assert_eq!(named(None, 7, &by), tcp("h", 7));
        assert_eq!(named(None, 7, &Address::Unix("/s".into())), tcp("127.0.0.1", 7));
    }

    #[test]
    fn a_server_that_is_not_the_one_to_ask_says_so_in_scripts_too() {
        for line in [
            "READONLY You can't write against a read only replica. script: x, on @user_script:1.",
            "ERR Error running script (call to f_x): @user_script:1: -READONLY You can't write against it.",
            "LOADING Redis is loading the dataset in memory",
            "MOVED 1 h:2",
        ] {
            assert!(is_wrong_server(&error(line)), "{line}");
        }
        for line in ["ASK 1 h:2", "ERR no such thing", "OOM command not allowed", "DAMAGED i1 READONLY"] {
            assert!(!is_wrong_server(&error(line)), "{line}");
        }
    }
}
