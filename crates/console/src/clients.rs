//! The clients of a volume, from the records of sessions.

use serde::Serialize;
use sluice_meta::{
    Interrupt, Meta,
    engine::Scan,
    schema::{Row, Session},
};
use sluice_types::{FsResult, Time};

/// A client.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub(crate) struct Client {
    pub(crate) session: u64,
    pub(crate) host: String,
    pub(crate) addresses: Vec<String>,
    pub(crate) mount_point: String,
    pub(crate) version: String,
    pub(crate) process: u32,
    /// Unix seconds when it was mounted; `None` if its record does not say so.
    pub(crate) mounted: Option<i64>,
    /// Unix seconds when its session expires unless it shows that it lives.
    pub(crate) expires: i64,
    /// Where people find a console, as the client was told.
    pub(crate) console_url: Option<String>,
    /// Where it says that it shows its metrics: address and port, empty if it does not say so.
    #[serde(skip)]
    pub(crate) metrics: String,
}

impl Client {
    fn new(session: u64, record: &Session) -> Self {
        let who = record.who().unwrap_or_default();
        Self {
            session,
            host: who.host_name,
            addresses: who.ip_addrs,
            mount_point: who.mount_point,
            version: who.version,
            process: who.process_id,
            mounted: Time::from_rfc3339(&who.mount_time).map(|time| time.sec),
            expires: record.expire,
            console_url: (!who.console_url.is_empty()).then_some(who.console_url),
            metrics: who.metrics_addr,
        }
    }

    /// Whether it had not shown for too long that it lives when it was read, in Unix seconds.
    pub(crate) fn is_stale(&self, read: i64) -> bool {
        self.expires < read
    }

    /// How people name it.
    pub(crate) fn name(&self) -> String {
        match (self.host.as_str(), self.mount_point.as_str()) {
            ("", "") => format!("session {}", self.session),
            (host, "") => host.to_owned(),
            (host, point) => format!("{host}:{point}"),
        }
    }
}

/// Clients that were read.
#[derive(Clone, Debug, Default)]
pub(crate) struct Clients {
    /// The first of them, by session.
    pub(crate) known: Vec<Client>,
    /// How many there are.
    pub(crate) total: usize,
    /// Unix seconds when they were read.
    pub(crate) at: i64,
}

/// Reads the records of all clients, and keeps up to `most` of them; `at` is now, in Unix seconds.
pub(crate) fn read(meta: &Meta, most: usize, at: i64, interrupt: &Interrupt) -> FsResult<Clients> {
    let mut clients = Clients { at, ..Clients::default() };
    meta.each_page(Scan::Sessions, interrupt, |rows| {
        for row in rows {
            if let Row::Session(sid, session) = row {
                clients.total += 1;
                if clients.known.len() < most {
                    clients.known.push(Client::new(sid, &session));
                }
            }
        }
        Ok(())
    })?;
    clients.known.sort_by_key(|client| client.session);
    Ok(clients)
}
