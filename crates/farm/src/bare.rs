//! Bare servers, which let a client in, read its requests and send bytes that they have in memory
//! or in an open file. They show the limit of the machine: requests and answers are those of a
//! member, byte for byte.

use std::{
    fs::File,
    io::{self, IoSlice, Read, Write},
    net::{Ipv4Addr, TcpListener, TcpStream},
    ops::Range,
    path::Path,
    sync::Arc,
};

use anyhow::{Context, Result, ensure};
use clap::ValueEnum;
use rustix::net::SendFlags;
use rustls::StreamOwned;
use sluice_data::pages;
use sluice_peer::wire::{Head, Identity, Request, Status, admit, binding};
use tokio_rustls::TlsAcceptor;

use crate::node::{LARGE, LARGES, SMALL, SMALLS, content, ring};

/// What is sent for each request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum What {
    /// Small answers from memory, all that were asked for in one write.
    Echo,
    /// Small answers from memory through TLS.
    EchoTls,
    /// Large files, by sendfile.
    Sendfile,
    /// Large answers from memory through TLS.
    Tls,
}

impl What {
    pub(crate) fn is_encrypted(self) -> bool {
        matches!(self, Self::EchoTls | Self::Tls)
    }

    pub(crate) fn is_large(self) -> bool {
        matches!(self, Self::Sendfile | Self::Tls)
    }

    /// As the command line has it.
    pub(crate) fn name(self) -> String {
        self.to_possible_value().map(|name| name.get_name().to_owned()).unwrap_or_default()
    }
}

/// All answers, but for their heads.
struct Answers {
    size: u32,
    /// Checksums and bytes of each block.
    frames: Vec<Vec<u8>>,
    /// The bytes of each block, if they are sent from a file.
    files: Vec<File>,
}

impl Answers {
    fn new(what: What, dir: &Path) -> Result<Self> {
        let (size, count) = if what.is_large() { (LARGE, LARGES) } else { (SMALL, SMALLS) };
        let (mut frames, mut files) = (Vec::new(), Vec::new());
        for number in 0..count {
            let bytes = content(number, size);
            let sum = |page: Range<u32>| crc32c::crc32c(&bytes[page.start as usize..page.end as usize]);
            let mut frame: Vec<u8> = pages(&(0..size)).flat_map(|page| sum(page).to_le_bytes()).collect();
            if what == What::Sendfile {
                let path = dir.join(format!("bare-{number}"));
                std::fs::write(&path, &bytes)?;
                files.push(File::open(&path)?);
            } else {
                frame.extend_from_slice(&bytes);
            }
            frames.push(frame);
        }
        Ok(Self { size, frames, files })
    }

    /// The head of the answer to a request, and the number of the block.
    fn head(&self, request: &[u8; Request::BYTES]) -> Result<([u8; Head::BYTES], usize)> {
        let request = Request::decode(request).context("a request is none of the protocol")?;
        let number = request.key.id.wrapping_sub(self.size.into()) as usize;
        ensure!(number < self.frames.len() && request.range == (0..self.size), "no such block");
        let sums = pages(&request.range).count() as u16;
        let (id, length, version) = (request.id, self.size, request.version);
        Ok((Head { id, status: Status::Done, sums, length, version }.encode(), number))
    }
}

/// Serves each connection in a thread of its own until it is killed. Says where.
pub(crate) fn run(what: What, dir: &Path) -> Result<()> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    let answers = Arc::new(Answers::new(what, dir)?);
    let tls = if what.is_encrypted() { Some(Arc::new(Identity::new()?)) } else { None };
    let print = tls.as_ref().map_or_else(String::new, |tls| hex::encode(tls.fingerprint));
    println!("{} {print}", listener.local_addr()?.port());
    io::stdout().flush()?;
    loop {
        let (stream, _) = listener.accept()?;
        stream.set_nodelay(true)?;
        let (tls, answers) = (tls.clone(), Arc::clone(&answers));
        // The end of a connection is an error, too.
        drop(std::thread::spawn(move || serve(stream, &answers, tls.as_deref())));
    }
}

fn serve(stream: TcpStream, answers: &Answers, tls: Option<&Identity>) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    stream.set_nonblocking(true)?;
    let entered = runtime.enter();
    let mut stream = tokio::net::TcpStream::from_std(stream)?;
    drop(entered);
    let Some(tls) = tls else {
        runtime.block_on(admit(&mut stream, &ring(), b""))?;
        let stream = blocking(stream)?;
        return if answers.files.is_empty() {
            echo(stream, answers, false)
        } else {
            send_files(stream, answers)
        };
    };
    let stream = runtime.block_on(async {
        let mut stream = TlsAcceptor::from(Arc::clone(&tls.config)).accept(stream).await?;
        let binding = binding(stream.get_ref().1)?;
        admit(&mut stream, &ring(), &binding).await?;
        Ok::<_, io::Error>(stream)
    })?;
    let (stream, session) = stream.into_inner();
    echo(StreamOwned::new(session, blocking(stream)?), answers, true)
}

/// A stream without a runtime, whose calls wait.
pub(crate) fn blocking(stream: tokio::net::TcpStream) -> io::Result<TcpStream> {
    let stream = stream.into_std()?;
    stream.set_nonblocking(false)?;
    Ok(stream)
}

/// The requests that have arrived on a connection.
struct Arrived {
    bytes: Vec<u8>,
    count: usize,
}

impl Arrived {
    fn new() -> Self {
        Self { bytes: vec![0; 64 << 10], count: 0 }
    }

    /// Waits until there is at least a part of a request.
    fn wait(&mut self, stream: &mut impl Read) -> Result<()> {
        let read = stream.read(&mut self.bytes[self.count..])?;
        ensure!(read > 0, "the client is gone");
        self.count += read;
        Ok(())
    }

    /// Calls `answer` for each request that is complete.
    fn each(&mut self, mut answer: impl FnMut(&[u8; Request::BYTES]) -> Result<()>) -> Result<()> {
        let (whole, _) = self.bytes[..self.count].as_chunks::<{ Request::BYTES }>();
        whole.iter().try_for_each(&mut answer)?;
        let done = whole.len() * Request::BYTES;
        self.bytes.copy_within(done..self.count, 0);
        self.count -= done;
        Ok(())
    }
}

/// Answers all requests that have arrived in one write. TLS makes fewer records of bytes that lie
/// one behind the other (`joined`).
fn echo(mut stream: impl Read + Write, answers: &Answers, joined: bool) -> Result<()> {
    let (mut arrived, mut out, mut bytes) = (Arrived::new(), Vec::new(), Vec::new());
    loop {
        arrived.wait(&mut stream)?;
        out.clear();
        arrived.each(|request| {
            out.push(answers.head(request)?);
            Ok(())
        })?;
        let parts = out.iter().flat_map(|(head, number)| [&head[..], &answers.frames[*number][..]]);
        if joined {
            bytes.clear();
            parts.for_each(|part| bytes.extend_from_slice(part));
            stream.write_all(&bytes)?;
            stream.flush()?;
            continue;
        }
        let mut slices: Vec<_> = parts.map(IoSlice::new).collect();
        let mut left = &mut slices[..];
        while !left.is_empty() {
            let sent = stream.write_vectored(left)?;
            IoSlice::advance_slices(&mut left, sent);
        }
        stream.flush()?;
    }
}

fn send_files(mut stream: TcpStream, answers: &Answers) -> Result<()> {
    let mut arrived = Arrived::new();
    loop {
        arrived.wait(&mut stream)?;
        arrived.each(|request| {
            let (head, number) = answers.head(request)?;
            for part in [&head[..], &answers.frames[number][..]] {
                let sent = rustix::net::send(&stream, part, SendFlags::MORE)?;
                ensure!(sent == part.len(), "a head was cut");
            }
            let (mut at, end) = (0, u64::from(answers.size));
            while at < end {
                let left = (end - at) as usize;
                rustix::fs::sendfile(&stream, &answers.files[number], Some(&mut at), left)?;
            }
            Ok(())
        })?;
    }
}
