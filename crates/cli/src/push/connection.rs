//! What both destinations need: a connection with deadlines, and labels.

use std::{
    net::{TcpStream, ToSocketAddrs},
    time::Duration,
};

use anyhow::{Context, Result};

/// Deadline of each step.
const PATIENCE: Duration = Duration::from_secs(5);

/// Labels with their values.
pub(crate) type Labels = Vec<(String, String)>;

/// A connection to `address` (`HOST:PORT`), each step on which has a deadline.
pub(super) fn connect(address: &str) -> Result<TcpStream> {
    let about = || format!("cannot reach {address}");
    let mut last = None;
    for place in address.to_socket_addrs().with_context(about)? {
        match TcpStream::connect_timeout(&place, PATIENCE) {
            Ok(stream) => {
                stream.set_read_timeout(Some(PATIENCE))?;
                stream.set_write_timeout(Some(PATIENCE))?;
                return Ok(stream);
            }
            Err(error) => last = Some(error),
        }
    }
    Err(last.map_or_else(|| anyhow::anyhow!("the name has no address"), Into::into)).with_context(about)
}
