//! What the errors of the server and of the connection mean.
//!
//! What must stay true: an error that may have left a commit behind is Indeterminate, everything else says that
//! nothing was committed.

use mysql_async::ServerError;
use sluice_meta::engine::EngineError;

use super::{connection::Failure, options::Options};
use crate::codec::Damage;

/// A value that a statement computed on purpose lies outside its type: a check failed.
pub(super) const CHECK: u16 = 1690;
const DUPLICATE: u16 = 1062;
const DEADLOCK: u16 = 1213;
/// MariaDB from 11.6 says so of a row that changed since a snapshot was taken.
const CHANGED: u16 = 1020;
/// A statement set a column to NULL on purpose: what it was to add to is damaged.
const DAMAGED: u16 = 1048;
const NO_TABLE: u16 = 1146;
/// A lock was waited for too long.
const WAITED: u16 = 1205;

/// What became of a commit that the server refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Refusal {
    /// An expectation or a precondition does not hold.
    Check,
    /// A record that was to be inserted exists.
    Duplicate,
    /// Others were in the way; nothing is known to be wrong.
    Collision,
    /// Records to be appended to are damaged.
    Damaged,
    /// Something else.
    Other,
}

/// What the refusal of a commit is about.
pub(super) const fn refusal(error: &ServerError) -> Refusal {
    match error.code {
        CHECK => Refusal::Check,
        DUPLICATE => Refusal::Duplicate,
        DEADLOCK | CHANGED => Refusal::Collision,
        DAMAGED => Refusal::Damaged,
        _ => Refusal::Other,
    }
}

pub(super) const fn is_missing_table(error: &ServerError) -> bool {
    error.code == NO_TABLE
}

/// Whether nothing was committed, for certain, although it may be COMMIT that failed: a lock was not to be had, or the
/// server is read-only.
pub(super) const fn is_certain(error: &ServerError) -> bool {
    matches!(error.code, WAITED | 1206 | 1290 | 1637 | 1792 | 1836)
}

/// Whether the connection is worth nothing after this error: it is being closed, or leads to the wrong server.
pub(super) const fn is_last(error: &ServerError) -> bool {
    matches!(error.code, 1053 | 1077 | 1079 | 1080 | 1158..=1161 | 1184 | 1290 | 1317 | 1792 | 1836 | 1927)
}

impl Options {
    pub(crate) fn unavailable(&self, reason: impl Into<String>) -> EngineError {
        EngineError::Unavailable { engine: self.label.clone(), reason: reason.into() }
    }

    pub(crate) fn indeterminate(&self, reason: String) -> EngineError {
        EngineError::Indeterminate { engine: self.label.clone(), reason }
    }

    pub(crate) fn refused(&self, reason: impl Into<String>) -> EngineError {
        EngineError::Refused { engine: self.label.clone(), reason: reason.into() }
    }

    pub(crate) fn damaged(&self, damage: Damage) -> EngineError {
        EngineError::Corrupt {
            engine: self.label.clone(),
            record: format!("{}{}", self.naming.prefix(), damage.record),
            reason: damage.reason,
        }
    }

    /// What a failure means where nothing can have been committed.
    pub(crate) fn failed(&self, failure: &Failure) -> EngineError {
        match failure {
            Failure::Server(error, _) => self.judge(error),
            Failure::Lost(reason) => self.unavailable(reason),
        }
    }

    /// What an error of the server means. Nothing was done.
    pub(crate) fn judge(&self, error: &ServerError) -> EngineError {
        let database = &self.database;
        let temporary = match error.code {
            DEADLOCK | CHANGED => return EngineError::Conflict(Vec::new()),
            WAITED => "another client holds a lock that is needed here for too long",
            1040 => {
                "it has too many connections; raise its max_connections or lower max_open_conns of the clients"
            }
            1203 | 1226 => {
                "the user has too many connections; raise its limit or lower max_open_conns of the clients"
            }
            1129 => "it blocks this host after many failed connections; run FLUSH HOSTS there",
            1290 | 1792 | 1836 => {
                "it is read-only: a replica, or switched off; the URL must name the primary"
            }
            1047 => "its cluster has lost its quorum (WSREP)",
            1053 | 1077 | 1079 | 1080 => "it is shutting down",
            1317 | 1927 | 3024 => "somebody ended the statement or the connection",
            1158..=1161 | 1184 => "it gave up the connection",
            1206 | 1637 => "it has no room for more locks or transactions",
            1412 => "its tables are being altered",
            _ => "",
        };
        if !temporary.is_empty() {
            return self.unavailable(temporary);
        }
        let told = &error.message;
        self.refused(match error.code {
            1045 | 1698 | 1251 => "the server refuses the user name or password".into(),
            1044 => format!("the user has no access to database {database}; GRANT it"),
            1049 => format!("there is no database {database}; make it: CREATE DATABASE {database}"),
            1142 | 1143 | 1227 | 1370 => format!("the user lacks a privilege: {told}"),
            NO_TABLE => format!("{told}: this is no volume yet; run `sluice format`"),
            1021 | 1114 => format!("its disk is full; make room: {told}"),
            1153 | 1301 => format!("a value is larger than its max_allowed_packet; raise that: {told}"),
            1264 | 1406 => format!("a value is larger than the volume format can hold here: {told}"),
            1300 | 1366 => format!("a name holds what its text columns cannot store: {told}"),
            1665 => "its binlog_format is STATEMENT, which cannot work; set ROW or MIXED".into(),
            1193 => format!("the URL sets a variable that the server does not know: {told}"),
            code => format!("error {code}: {told}"),
        })
    }
}
