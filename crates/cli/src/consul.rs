//! Tells a Consul where the metrics of a mount are, so that a Prometheus that asks it finds them.
//!
//! What must stay true: nothing waits for it, and each step has a deadline.

use std::{
    io::{Read, Write},
    net::{IpAddr, SocketAddr, TcpStream, ToSocketAddrs},
    time::Duration,
};

use anyhow::{Context, Result, bail};
use serde_json::json;

use crate::volume;

/// Deadline of each step.
const PATIENCE: Duration = Duration::from_secs(10);
/// Most bytes of an answer that are looked at.
const ANSWER: u64 = 64 << 10;

/// A connection to the Consul at `address` (`HOST:PORT`).
pub(crate) fn connect(address: &str) -> Result<TcpStream> {
    let about = || format!("cannot reach Consul at {address}; correct --consul HOST:PORT");
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

/// Registers the metrics that are shown at `shown`, under the name `juicefs`. Consul forgets them
/// when they are not there for 30 seconds.
pub(crate) fn register(mut consul: TcpStream, shown: SocketAddr, mountpoint: &str) -> Result<()> {
    // All addresses mean the one by which Consul is reached.
    let host = if shown.ip().is_unspecified() { consul.local_addr()?.ip() } else { shown.ip() };
    let body = service(host, shown.port(), mountpoint).to_string();
    let at = consul.peer_addr()?;
    let length = body.len();
    write!(
        consul,
        "PUT /v1/agent/service/register HTTP/1.0\r\nHost: {at}\r\nContent-Type: application/json\r\n\
         Content-Length: {length}\r\n\r\n{body}"
    )?;
    let mut answer = Vec::new();
    consul.take(ANSWER).read_to_end(&mut answer)?;
    let answer = String::from_utf8_lossy(&answer).into_owned();
    let status = answer.split(' ').nth(1).unwrap_or_default();
    if status != "200" {
        let reason = answer.split_once("\r\n\r\n").map_or("", |(_, reason)| reason.trim());
        bail!("Consul at {at} refuses to register the metrics: {status} {reason}");
    }
    Ok(())
}

/// What is registered.
fn service(host: IpAddr, port: u16, mountpoint: &str) -> serde_json::Value {
    let shown = SocketAddr::new(host, port);
    json!({
        "ID": format!("{host}:{mountpoint}"),
        "Name": "juicefs",
        "Address": host.to_string(),
        "Port": port,
        "Meta": { "hostName": volume::host_name(), "mountPoint": mountpoint },
        "Check": {
            "HTTP": format!("http://{shown}/metrics"),
            "Timeout": "5s",
            "Interval": "5s",
            "DeregisterCriticalServiceAfter": "30s",
        },
    })
}
