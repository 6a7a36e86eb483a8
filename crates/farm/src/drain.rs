//! Clients that do as little as possible: each connection has a thread, which keeps some requests
//! under way and throws the answers away.

use std::{
    io::{Read, Write},
    time::{Duration, Instant},
};

use anyhow::{Result, ensure};
use rustls::StreamOwned;
use sluice_data::pages;
use sluice_peer::{
    Fingerprint,
    wire::{Head, Kind, Request, binding, client, prove},
};
use tokio_rustls::TlsConnector;

use crate::{
    bare::blocking,
    node::{block, ring},
};

/// What a connection asks for.
#[derive(Clone)]
pub(crate) struct Drain {
    pub(crate) address: String,
    pub(crate) fingerprint: Option<Fingerprint>,
    /// Bytes of each block, and how many there are.
    pub(crate) size: u32,
    pub(crate) count: u64,
    /// Requests that are under way at once.
    pub(crate) depth: usize,
    /// The first block.
    pub(crate) first: u64,
    pub(crate) period: Duration,
}

trait Stream: Read + Write {}

impl<T: Read + Write> Stream for T {}

impl Drain {
    /// Asks one connection for blocks. Returns how many answers there were.
    pub(crate) fn run(&self) -> Result<u64> {
        let mut stream = self.connect()?;
        let (mut number, mut id, mut out) = (self.first, 0, Vec::new());
        let mut ask = |out: &mut Vec<u8>| {
            (number, id) = ((number + 7919) % self.count, id + 1);
            let (key, range) = (block(number, self.size), 0..self.size);
            Request { id, kind: Kind::Get, version: 1, key, range }.encode(out);
        };
        let whole = 0..self.size;
        let answer = (Head::BYTES + 4 * pages(&whole).count() + self.size as usize) as u64;
        let (mut buffer, mut got, mut answered) = (vec![0; 256 << 10], 0, 0);
        (0..self.depth).for_each(|_| ask(&mut out));
        let started = Instant::now();
        while started.elapsed() < self.period {
            stream.write_all(&out)?;
            stream.flush()?;
            let read = stream.read(&mut buffer)?;
            ensure!(read > 0, "the server is gone");
            got += read as u64;
            let all = got / answer;
            out.clear();
            (answered..all).for_each(|_| ask(&mut out));
            answered = all;
        }
        Ok(answered)
    }

    fn connect(&self) -> Result<Box<dyn Stream>> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        runtime.block_on(async {
            let mut stream = tokio::net::TcpStream::connect(&self.address).await?;
            stream.set_nodelay(true)?;
            let Some(fingerprint) = self.fingerprint else {
                prove(&mut stream, &ring(), 0, b"").await?;
                return Ok(Box::new(blocking(stream)?) as Box<dyn Stream>);
            };
            let (config, name) = client(fingerprint)?;
            let mut stream = TlsConnector::from(config).connect(name, stream).await?;
            let binding = binding(stream.get_ref().1)?;
            prove(&mut stream, &ring(), 0, &binding).await?;
            let (stream, session) = stream.into_inner();
            Ok(Box::new(StreamOwned::new(session, blocking(stream)?)) as Box<dyn Stream>)
        })
    }
}
