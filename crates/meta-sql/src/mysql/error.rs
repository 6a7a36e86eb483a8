//! Classifies the errors of the server and of the connection.
//!
//! What must stay true: an error after which the commit may have happened is Indeterminate. Every
//! other error says that nothing was committed.

use mysql_async::ServerError;
use sluice_meta::engine::EngineError;
use sluice_net::url;

use super::{
    options::{KNOWN, Options},
    style::{CHECK, Style},
};

const DUPLICATE: u16 = 1062;
const DEADLOCK: u16 = 1213;
/// MariaDB from 11.6: a row has changed since the snapshot was taken.
const CHANGED: u16 = 1020;
/// In a replication group, another member changed the same rows first. COMMIT rolled the
/// transaction back.
const OVERTAKEN: u16 = 3101;
/// The replication group refused the transaction: it has lost its majority, or the transaction is
/// too large. COMMIT rolled it back.
const NOT_TAKEN: u16 = 3100;
/// COMMIT failed half-way.
const DURING_COMMIT: u16 = 1180;
/// A statement set a column to NULL on purpose: the chunk to append to is damaged, or has no room.
const NO_APPEND: u16 = 1048;
const NO_TABLE: u16 = 1146;
/// The wait for a lock took too long.
const WAITED: u16 = 1205;

/// Why there is no answer.
#[derive(Debug)]
pub(crate) enum Failure {
    /// The server refused a statement. The number says how many statements before it were done.
    Server(ServerError, usize),
    /// The connection was lost, or the deadline passed.
    Lost(String),
    /// There was no connection.
    Known(EngineError),
}

/// Why the server refused a commit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Refusal {
    /// An expectation or a precondition does not hold, or a record that was to be inserted exists.
    Check,
    /// A conflict with another client; no expectation is known to fail.
    Collision,
    /// Chunks to append to are damaged, or too long.
    NoAppend,
    /// Something else.
    Other,
}

/// Classifies the refusal of a commit.
pub(super) const fn refusal(error: &ServerError) -> Refusal {
    match error.code {
        CHECK | DUPLICATE => Refusal::Check,
        DEADLOCK | CHANGED | OVERTAKEN => Refusal::Collision,
        NO_APPEND => Refusal::NoAppend,
        _ => Refusal::Other,
    }
}

pub(super) const fn is_missing_table(error: &ServerError) -> bool {
    error.code == NO_TABLE
}

/// Whether certainly nothing was committed, even if COMMIT failed: a lock was not available, the
/// server is read-only, or its group rolled it back.
const fn is_certain(error: &ServerError) -> bool {
    matches!(error.code, WAITED | 1206 | 1290 | 1637 | 1792 | 1836 | NOT_TAKEN)
}

/// Whether the connection cannot be used after this error: it is being closed, or the server is the
/// wrong one, for instance one that is cut off from its cluster.
pub(super) const fn is_last(error: &ServerError) -> bool {
    matches!(
        error.code,
        1047 | 1053 | 1077 | 1079 | 1080 | 1158..=1161 | 1184 | 1290 | 1317 | 1792 | 1836 | 1927 | NOT_TAKEN
    )
}

impl Options {
    /// Classifies a failure of a request that commits nothing.
    pub(crate) fn unanswered(&self, failure: Failure) -> EngineError {
        match failure {
            Failure::Server(error, _) => self.classify(&error),
            Failure::Lost(reason) => self.volume.unavailable(reason),
            Failure::Known(error) => error,
        }
    }

    /// What an error of the server means that may be that of COMMIT. Where statements are answered
    /// one by one it is, and what is not known to have undone the transaction may have left it
    /// committed; of a compound statement it may be that of any statement in it.
    pub(super) fn classify_commit(&self, error: &ServerError, style: Style) -> EngineError {
        match self.classify(error) {
            judged if is_certain(error) => judged,
            EngineError::Unavailable { reason, .. } => self.volume.indeterminate(reason),
            EngineError::Refused { reason, .. } if style == Style::Single || error.code == DURING_COMMIT => {
                self.volume.indeterminate(reason)
            }
            judged => judged,
        }
    }

    /// Classifies an error of the server. Nothing was done.
    pub(crate) fn classify(&self, error: &ServerError) -> EngineError {
        let database = &self.database;
        let temporary = match error.code {
            DEADLOCK | CHANGED | OVERTAKEN => return EngineError::Conflict(Vec::new()),
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
            NOT_TAKEN => "its group (Group Replication) does not take the transaction; see its log",
            1047 => "its cluster has lost its quorum (WSREP)",
            1053 | 1077 | 1079 | 1080 => "it is shutting down",
            1317 | 1927 | 1969 | 3024 => "somebody ended the statement or the connection",
            1158..=1161 | 1184 => "it gave up the connection",
            1206 | 1637 => "it has no room for more locks or transactions",
            1412 => "its tables are being altered",
            _ => "",
        };
        if !temporary.is_empty() {
            return self.volume.unavailable(temporary);
        }
        let notice = &error.message;
        self.volume.refused(match error.code {
            1045 | 1698 | 1251 => "the server refuses the user name or password".into(),
            1044 => format!("the user has no access to database {database}; GRANT it"),
            1049 => format!("there is no database {database}; make it: CREATE DATABASE {database}"),
            1142 | 1143 | 1227 | 1370 => format!("the user lacks a privilege: {notice}"),
            NO_TABLE => format!("{notice}: this is no volume yet; run `sluice format`"),
            1021 | 1114 => format!("its disk is full; make room: {notice}"),
            1153 | 1301 => format!("a value is larger than its max_allowed_packet; raise that: {notice}"),
            1264 | 1406 => format!("a value is larger than the volume format can hold here: {notice}"),
            1300 | 1366 => format!("a name holds what its text columns cannot store: {notice}"),
            1665 => "its binlog_format is STATEMENT, which cannot work; set ROW or MIXED".into(),
            // What is no option of ours is a variable of the session.
            1193 => url::unknown(notice.split('\'').nth(1).unwrap_or(notice), KNOWN),
            code => format!("error {code}: {notice}"),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The first letter of what an error means.
    fn meaning(error: &EngineError) -> char {
        match error {
            EngineError::Conflict(_) => 'c',
            EngineError::Unavailable { .. } => 'u',
            EngineError::Indeterminate { .. } => 'i',
            EngineError::Full(_) => 'f',
            EngineError::Corrupt { .. } => 'd',
            EngineError::Refused { .. } => 'r',
        }
    }

    #[test]
    fn what_may_have_left_a_commit_behind_is_in_doubt() {
        let options = Options::parse("mysql://root@(localhost:3306)/volume", None).expect("valid");
        // Of another statement, of COMMIT answered by itself, of COMMIT or another in a compound
        // statement.
        for (code, wanted) in [
            (1213, "ccc"),
            (1020, "ccc"),
            (3101, "ccc"),
            (3100, "uuu"),
            (1205, "uuu"),
            (1290, "uuu"),
            (1053, "uii"),
            (1047, "uii"),
            (1969, "uii"),
            (1180, "rii"),
            (1406, "rir"),
            (4711, "rir"),
        ] {
            let error = ServerError { code, message: "told".into(), state: "HY000".into() };
            let judged = [
                options.classify(&error),
                options.classify_commit(&error, Style::Single),
                options.classify_commit(&error, Style::Compound),
            ];
            assert_eq!(judged.iter().map(meaning).collect::<String>(), wanted, "{code}: {judged:?}");
            let collides = refusal(&error) == Refusal::Collision;
            assert_eq!(collides, wanted == "ccc", "{code}");
        }
    }
}
