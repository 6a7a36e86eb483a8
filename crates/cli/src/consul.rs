//! Registers the address of a mount's metrics in Consul, where Prometheus finds it.
//!
//! What must stay true: nothing waits for it, and each step has a deadline.

use std::net::{IpAddr, SocketAddr, TcpStream};

use anyhow::{Context, Result};
use serde_json::json;

use crate::{small_request, volume};

/// A connection to the Consul at `address` (`HOST:PORT`).
pub(crate) fn connect(address: &str) -> Result<TcpStream> {
    small_request::connect(address)
        .with_context(|| format!("there is no Consul at {address}; correct --consul HOST:PORT"))
}

/// Registers the metrics that are shown at `shown`, under the name `juicefs`. Consul forgets them
/// when they are not there for 30 seconds.
pub(crate) fn register(consul: TcpStream, shown: SocketAddr, mountpoint: &str) -> Result<()> {
    // All addresses mean the one by which Consul is reached.
    let host = if shown.ip().is_unspecified() { consul.local_addr()?.ip() } else { shown.ip() };
    let body = service(host, shown.port(), mountpoint).to_string();
    let at = consul.peer_addr()?.to_string();
    let headers = "Content-Type: application/json\r\n";
    small_request::put(consul, &at, "/v1/agent/service/register", headers, &body)
        .context("Consul did not register the metrics")
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
