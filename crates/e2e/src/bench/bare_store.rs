//! What an object store gives to a plain client: connections that put and get whole blocks, one
//! request after the other, without a mount.
//!
//! What must stay true: the client does nothing with a byte but to take it from its connection.

use super::{Plan, rate, streams::MIB};
use crate::pattern;
use anyhow::{Context, bail, ensure};
use sluice_testkit::server::objects::{BUCKET, Objects};
use std::{
    io::{Read, Write},
    net::{SocketAddr, TcpStream},
    sync::atomic::{AtomicUsize, Ordering},
    thread,
    time::Instant,
};

/// Bytes of an object: a block of a volume.
const BLOCK: usize = 4 * MIB;
/// Connections that are tried; the best number counts.
const CONNECTIONS: [usize; 3] = [8, 16, 32];
/// Longest head of an answer.
const HEAD: usize = 8 << 10;

/// MiB per second that can be put into `store` and got from it.
pub(super) fn measure(store: &Objects, plan: &Plan) -> anyhow::Result<[f64; 2]> {
    let count = (plan.sizes.large * MIB / BLOCK).max(1);
    let mut best = [0.0_f64; 2];
    for connections in CONNECTIONS {
        let block = pattern::bytes(plan.seed, BLOCK);
        let put = together(store.address(), connections, count, |connection, number| {
            connection.request("PUT", number, &block).map(drop)
        })?;
        let got = together(store.address(), connections, count, |connection, number| {
            let bytes = connection.request("GET", number, &[])?;
            ensure!(bytes == BLOCK, "object {number} has {bytes} bytes");
            Ok(())
        })?;
        best = [best[0].max(put), best[1].max(got)];
    }
    Ok(best)
}

/// Does something to each of `count` objects, over so many connections; MiB per second.
fn together(
    store: SocketAddr,
    connections: usize,
    count: usize,
    one: impl Fn(&mut Connection, usize) -> anyhow::Result<()> + Sync,
) -> anyhow::Result<f64> {
    let next = AtomicUsize::new(0);
    let all = || -> anyhow::Result<()> {
        let mut connection = Connection::open(store)?;
        loop {
            let number = next.fetch_add(1, Ordering::Relaxed);
            if number >= count {
                return Ok(());
            }
            one(&mut connection, number)?;
        }
    };
    let start = Instant::now();
    thread::scope(|scope| {
        let threads: Vec<_> = (0..connections).map(|_| scope.spawn(all)).collect();
        threads.into_iter().try_for_each(|thread| thread.join().expect("a thread of the bench"))
    })?;
    Ok(rate(count * BLOCK / MIB, start))
}

/// A connection that stays open.
struct Connection {
    stream: TcpStream,
    buffer: Vec<u8>,
}

impl Connection {
    fn open(store: SocketAddr) -> anyhow::Result<Self> {
        let stream = TcpStream::connect(store)?;
        stream.set_nodelay(true)?;
        Ok(Self { stream, buffer: vec![0; MIB] })
    }

    /// Sends a request and takes the answer. Returns the length of its body.
    fn request(&mut self, method: &str, number: usize, body: &[u8]) -> anyhow::Result<usize> {
        let length = body.len();
        let head = format!(
            "{method} /{BUCKET}/bare/{number} HTTP/1.1\r\nHost: store\r\nContent-Length: {length}\r\n\r\n"
        );
        self.stream.write_all(head.as_bytes())?;
        self.stream.write_all(body)?;
        let mut have = 0;
        let end = loop {
            ensure!(have < HEAD, "the store answers no HTTP");
            match self.stream.read(&mut self.buffer[have..])? {
                0 => bail!("the store closed the connection"),
                count => have += count,
            }
            let head = self.buffer[..have].windows(4).position(|bytes| bytes == b"\r\n\r\n");
            if let Some(end) = head {
                break end;
            }
        };
        let head = String::from_utf8_lossy(&self.buffer[..end]).to_ascii_lowercase();
        ensure!(head.starts_with("http/1.1 2"), "the store answers {head}");
        let length = head.lines().find_map(|line| line.strip_prefix("content-length:"));
        let length: usize = length.context("an answer without a length")?.trim().parse()?;
        let mut rest = length.saturating_sub(have - end - 4);
        while rest > 0 {
            let most = rest.min(self.buffer.len());
            match self.stream.read(&mut self.buffer[..most])? {
                0 => bail!("the store closed the connection"),
                count => rest -= count,
            }
        }
        Ok(length)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn objects_are_put_and_got() -> anyhow::Result<()> {
        let store = Objects::start()?;
        let mut connection = Connection::open(store.address())?;
        assert_eq!(connection.request("PUT", 1, b"abc")?, 0);
        assert_eq!(connection.request("GET", 1, &[])?, 3);
        assert!(connection.request("GET", 2, &[]).is_err());
        Ok(())
    }
}
