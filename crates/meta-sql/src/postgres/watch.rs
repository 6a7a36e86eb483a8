//! Messages between the clients of a volume: NOTIFY after a commit, LISTEN on a connection of its
//! own.
//!
//! Messages may be lost when that connection breaks: the listener then reports that anything may
//! have changed. Notifications are sent after the Sync of a commit, because PostgreSQL serialises
//! the commits of transactions that use NOTIFY.

use std::{
    io::ErrorKind,
    sync::Arc,
    time::{Duration, Instant},
};

use postgres_protocol::message::backend::Message;
use sluice_meta::{
    engine::{EngineError, Watch},
    schema::Notice,
};
use sluice_net::Kind;

use crate::volume::Volume;

use super::{options::Options, pool::Pool, wire::Wire};

/// The channel of the volume. Channels belong to the database, in which there may be other volumes.
pub(super) fn channel(options: &Options) -> String {
    let schema = options.settings.iter().find(|(name, _)| name == "search_path");
    let schema = schema.map_or_else(|| "public".to_owned(), |(_, path)| path.replace('"', ""));
    format!("{}changes:{schema}", options.volume.own_prefix())
}

/// The statement that announces a commit. It runs whether the commit succeeded or not, so it checks
/// that first. The lane's next commit, on another connection, may have been faster. Messages are
/// texts of less than 8,000 bytes: twice the bytes of ours. A message need not reach the disk,
/// because the change that it announces already has. While it waited, all others would wait, too.
pub(super) fn notify(channel: &str, notice: &Notice, volume: &Volume) -> String {
    let (channel, message) = (channel.replace('\'', "''"), hex::encode(notice.encode()));
    let what = format!("set_config('synchronous_commit','off',true),pg_notify('{channel}','{message}')");
    let Notice { writer, lane, n, .. } = notice;
    if *writer == 0 {
        return format!("SELECT {what}");
    }
    let (writers, writer, n) = (volume.table("sluice_writer"), *writer as i64, *n as i64);
    format!("SELECT {what} FROM \"{writers}\" WHERE writer={writer} AND lane={lane} AND n>={n}")
}

/// Decodes a message.
fn decode(message: &str) -> Notice {
    hex::decode(message).map_or_else(|_| Notice::anything(), |bytes| Notice::decode(&bytes))
}

/// A subscription.
pub(super) struct Listener {
    pool: Arc<Pool>,
    channel: String,
    wire: Option<Wire>,
}

impl Listener {
    pub(super) fn new(pool: Arc<Pool>, channel: String) -> Result<Self, EngineError> {
        let mut listener = Self { pool, channel, wire: None };
        listener.wire = Some(listener.subscribe()?);
        Ok(listener)
    }

    fn subscribe(&self) -> Result<Wire, EngineError> {
        let mut wire = self.pool.connect()?;
        self.pool.query(&mut wire, &format!("LISTEN \"{}\"", self.channel), Kind::Read)?;
        Ok(wire)
    }
}

impl Watch for Listener {
    fn next(&mut self, timeout: Duration) -> Result<Vec<Notice>, EngineError> {
        let until = Instant::now() + timeout.max(Duration::from_millis(1));
        let Some(wire) = &mut self.wire else {
            self.wire = Some(self.subscribe()?);
            return Ok(vec![Notice::anything()]);
        };
        loop {
            match wire.receive(until) {
                Ok(Message::NotificationResponse(body)) => {
                    return Ok(vec![body.message().map_or_else(|_| Notice::anything(), decode)]);
                }
                Ok(_) => {}
                Err(error) if error.kind() == ErrorKind::TimedOut => return Ok(Vec::new()),
                Err(_) => {
                    self.wire = None;
                    self.wire = Some(self.subscribe()?);
                    return Ok(vec![Notice::anything()]);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use sluice_meta::{
        engine::{Commit, Engine, Write},
        schema::{Change, Row},
    };
    use sluice_testkit::server;
    use sluice_types::Ino;

    use super::*;
    use crate::PostgresEngine;

    #[test]
    fn a_message_whose_lane_went_on_is_sent_all_the_same() {
        let server = server::postgres().expect("a server");
        let database = server.database().expect("a database");
        let engine = PostgresEngine::open(&server.unix_url(&database)).expect("a valid URL");
        engine.prepare().expect("prepare");
        let writes = vec![Write::Insert(Row::Writer(7, 0, 3))];
        engine.commit(&Commit { writes, ..Commit::default() }).expect("the lane is at 3");
        let mut listener = engine.watch().expect("listen");
        let notice = |n| Notice { writer: 7, lane: 0, n, changes: vec![Change::Node(Ino(n))] };
        for n in [4, 2, 3] {
            let text = notify(&engine.0.channel, &notice(n), &engine.0.pool.options.volume);
            server.sql_in(&database, &text).expect("sent");
        }
        let (mut heard, until) = (Vec::new(), Instant::now() + Duration::from_mins(1));
        while heard.len() < 2 && Instant::now() < until {
            heard.extend(listener.next(Duration::from_secs(1)).expect("heard"));
        }
        assert_eq!(heard, [notice(2), notice(3)], "what never happened is not told");
    }
}
