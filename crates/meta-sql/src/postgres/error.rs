//! Classifies PostgreSQL's errors by their SQLSTATE.
//!
//! What must stay true: an error of the server means that nothing was committed. Only without an
//! answer is the result unknown.

use fallible_iterator::FallibleIterator;
use postgres_protocol::message::backend::ErrorResponseBody;
use sluice_meta::engine::EngineError;
use sluice_net::url;

use super::options::{KNOWN, Options};

/// What the server says went wrong.
#[derive(Clone, Debug)]
pub(super) struct ServerError {
    pub(super) code: String,
    pub(super) message: String,
    /// Whether the connection ends with it.
    pub(super) fatal: bool,
}

impl ServerError {
    pub(super) fn read(body: &ErrorResponseBody) -> Self {
        let mut error = Self { code: String::new(), message: String::new(), fatal: false };
        let mut fields = body.fields();
        while let Ok(Some(field)) = fields.next() {
            let text = || String::from_utf8_lossy(field.value_bytes()).into_owned();
            match field.type_() {
                b'C' => error.code = text(),
                b'M' => error.message = text(),
                b'V' => error.fatal = matches!(field.value_bytes(), b"FATAL" | b"PANIC"),
                _ => {}
            }
        }
        error
    }

    /// Whether a unique key was met.
    pub(super) fn is_duplicate(&self) -> bool {
        self.code == "23505"
    }

    /// Whether a table is missing.
    pub(super) fn is_missing_table(&self) -> bool {
        self.code == "42P01"
    }

    /// Whether the server has no such function, or not for us.
    pub(super) fn is_lack(&self) -> bool {
        matches!(&*self.code, "42501" | "42883")
    }

    /// Whether the connection is of no use any more, though it may be open: it leads to a server
    /// that takes no writes, or something between us and the server lost our prepared statements.
    pub(super) fn spoils_connection(&self) -> bool {
        self.fatal
            || matches!(&*self.code, "25006" | "26000" | "42P05" | "0A000")
            || self.code.starts_with("08")
    }
}

impl Options {
    /// What an error of the server means: nothing was committed.
    pub(super) fn classify(&self, error: &ServerError) -> EngineError {
        let (Self { volume, .. }, ServerError { code, message, .. }) = (self, error);
        let advice = match &**code {
            // A serialization failure, or a deadlock with clients that take their locks in another
            // order.
            "40001" | "40P01" | "23505" => return EngineError::Conflict(Vec::new()),
            "53300" => {
                "it has too many connections; raise its max_connections or lower max_open_conns".into()
            }
            "53100" => "its disk is full".into(),
            "57P01" | "57P02" | "57P03" => format!("it is starting or stopping: {message}"),
            "57014" => "a statement took longer than 25 s".into(),
            "55P03" => "another client held a lock for more than 10 s".into(),
            "25006" => {
                "it is read-only (a replica?); name the primary, or all servers separated by commas".into()
            }
            "28P01" | "28000" => {
                return volume.refused(format!("it refuses user or password: {message}"));
            }
            "3D000" => return volume.refused(format!("{message}; make it with CREATE DATABASE")),
            "3F000" => {
                return volume
                    .refused(format!("{message}; make the schema of search_path with CREATE SCHEMA"));
            }
            "42501" => return volume.refused(format!("the user lacks a permission: {message}")),
            "42P01" => {
                return volume.refused(format!("{message}: this is no volume yet; run `sluice format`"));
            }
            // What is no option of ours is a setting of the server.
            "42704" if message.contains("configuration parameter") => {
                return volume.refused(url::unknown(message.split('"').nth(1).unwrap_or(message), KNOWN));
            }
            "22021" => return volume.refused("a name of an extended attribute must be UTF-8 here"),
            _ if error.spoils_connection() || code.starts_with("53") || code.starts_with("57") => {
                format!("{message} ({code})")
            }
            _ => return volume.refused(format!("{message} ({code})")),
        };
        volume.unavailable(advice)
    }
}
