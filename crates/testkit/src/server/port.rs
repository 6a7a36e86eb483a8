//! Where a server can listen.

use std::net::{Ipv4Addr, TcpListener};

/// A TCP port of the loopback address that is free now.
pub(super) fn free_port() -> std::io::Result<u16> {
    Ok(TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?.port())
}
