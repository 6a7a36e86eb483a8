//! The options in the URL of an SQLite engine, `sqlite3://path?option=value`.
//!
//! The path is used unchanged. The options are those of JuiceFS' driver. What must stay true:
//! without options, the database has the same settings as with JuiceFS.

use std::{path::PathBuf, time::Duration};

use sluice_meta::engine::EngineError;
use sluice_net::url::{self, number};

use crate::volume::Volume;

/// The path of the database, and its settings.
#[derive(Clone, Debug)]
pub(crate) struct Options {
    /// The database file.
    pub(crate) path: PathBuf,
    /// How long to wait for another process that holds the database.
    pub(crate) timeout: Duration,
    /// `journal_mode`, upper case.
    pub(crate) journal: &'static str,
    /// What the tables and the engine are called.
    pub(crate) volume: Volume,
}

const SCHEME: &str = "sqlite3://";
const JOURNALS: [&str; 6] = ["DELETE", "TRUNCATE", "PERSIST", "MEMORY", "WAL", "OFF"];

/// Options that have an effect.
const KNOWN: &str = "_timeout, _busy_timeout, _journal, _journal_mode, table_prefix";
/// Options of the driver that JuiceFS uses, and of JuiceFS, that change nothing here.
const IDLE: &str = "_auth, _auth_crypt, _auth_pass, _auth_salt, _auth_user, _auto_vacuum, _cache_size, \
     _case_sensitive_like, _cslike, _defer_fk, _defer_foreign_keys, _fk, _foreign_keys, \
     _ignore_check_constraints, _loc, _locking, _locking_mode, _mutex, _query_only, _recursive_triggers, \
     _rt, _secure_delete, _sync, _synchronous, _txlock, _vacuum, _writable_schema, cache, immutable, \
     max_idle_conns, max_idle_time, max_life_time, max_open_conns, mode";

impl Options {
    pub(crate) fn parse(url: &str) -> Result<Self, EngineError> {
        let refuse = |reason: String| EngineError::Refused { engine: url.to_owned(), reason };
        let rest = url.strip_prefix(SCHEME).or_else(|| url.strip_prefix("sqlite://")).unwrap_or(url);
        let (path, query) = rest.split_once('?').unwrap_or((rest, ""));
        if path.is_empty() {
            return Err(refuse(format!("no path; write {SCHEME}/path/of/the/volume.db")));
        }
        if path.starts_with("file:") || path.contains(":memory:") {
            return Err(refuse(format!(
                "only plain paths are understood; write {SCHEME}/path/of/the/volume.db"
            )));
        }
        let mut options = Self {
            path: PathBuf::from(path),
            timeout: Duration::from_secs(5),
            journal: "WAL",
            volume: Volume::new(&format!("{SCHEME}{path}")),
        };
        for (name, value) in url::options(query).map_err(refuse)? {
            options.set(&name.replace('-', "_"), &value).map_err(refuse)?;
        }
        Ok(options)
    }

    /// Applies one option.
    fn set(&mut self, name: &str, value: &str) -> Result<(), String> {
        match name {
            "_timeout" | "_busy_timeout" => self.timeout = Duration::from_millis(number(name, value)?),
            "_journal" | "_journal_mode" => {
                let journals = JOURNALS.map(|journal| (journal, journal));
                self.journal = url::one_of(name, &value.to_ascii_uppercase(), &journals)?;
            }
            "table_prefix" => self.volume.set_prefix(value)?,
            _ => url::unused(name, IDLE, KNOWN)?,
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_options_of_juicefs_are_understood() {
        let plain = Options::parse("sqlite3://my.db").expect("plain");
        assert_eq!((plain.path.to_str(), plain.journal), (Some("my.db"), "WAL"));
        assert_eq!((plain.timeout.as_millis(), plain.volume.prefix().as_str()), (5000, "jfs_"));
        let all = Options::parse(
            "sqlite3:///a b%20.db?cache=shared&_journal=delete&_timeout=70&table_prefix=x&max_open_conns=3",
        )
        .expect("all");
        assert_eq!((all.path.to_str(), all.journal), (Some("/a b%20.db"), "DELETE"));
        assert_eq!((all.timeout.as_millis(), all.volume.prefix().as_str()), (70, "jfs_x_"));
        for bad in [
            "sqlite3://",
            "sqlite3://a?_timeout=soon",
            "sqlite3://a?_journal=none",
            "sqlite3://a?table_prefix=a;b",
            "sqlite3://a?_timeuot=5",
        ] {
            assert!(matches!(Options::parse(bad), Err(EngineError::Refused { .. })), "{bad}");
        }
        for name in KNOWN.split(", ") {
            let taken = Options::parse(&format!("sqlite3://a?{name}=?")).map_err(|error| error.to_string());
            assert!(taken.err().is_none_or(|reason| !reason.contains("has no option")), "{name}");
        }
    }
}
