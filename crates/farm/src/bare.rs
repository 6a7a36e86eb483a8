//! Bare servers, which only read requests and send bytes. They show the limit of the machine.

use std::{
    fs::File,
    io::{Read, Write},
    net::{Ipv4Addr, TcpListener, TcpStream},
    path::Path,
    sync::Arc,
};

use anyhow::{Context, Result};
use clap::ValueEnum;
use rustls::{
    ServerConfig, ServerConnection, StreamOwned,
    crypto::aws_lc_rs,
    pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer},
};

use crate::node::{LARGE, SMALL};

/// Bytes of a request of the protocol.
pub(crate) const REQUEST: usize = 44;
/// Bytes of an answer before its payload.
const HEAD: usize = 24 + 4;

/// What is sent for each request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum What {
    /// A small answer from memory, all that were asked for in one write.
    Echo,
    /// A small answer from memory through TLS.
    EchoTls,
    /// A large file, by sendfile.
    Sendfile,
    /// A large buffer through TLS.
    Tls,
}

impl What {
    pub(crate) fn is_encrypted(self) -> bool {
        matches!(self, Self::EchoTls | Self::Tls)
    }

    pub(crate) fn is_large(self) -> bool {
        matches!(self, Self::Sendfile | Self::Tls)
    }

    /// Bytes of an answer.
    pub(crate) fn answer(self) -> usize {
        HEAD + if self.is_large() { LARGE } else { SMALL } as usize
    }
}

/// Serves each connection in a thread of its own until it is killed. Says where.
pub(crate) fn run(what: What, dir: &Path) -> Result<()> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    let path = dir.join("bare");
    std::fs::write(&path, vec![7; what.answer()])?;
    let file = Arc::new(File::open(&path)?);
    let tls = if what.is_encrypted() { Some(config()?) } else { None };
    let print = tls.as_ref().map(|(_, cert)| hex::encode(cert));
    println!("{} {}", listener.local_addr()?.port(), print.unwrap_or_default());
    std::io::stdout().flush()?;
    loop {
        let (stream, _) = listener.accept()?;
        stream.set_nodelay(true)?;
        let (tls, file) = (tls.as_ref().map(|(config, _)| Arc::clone(config)), Arc::clone(&file));
        // The end of a connection is an error, too.
        drop(std::thread::spawn(move || serve(what, stream, &file, tls)));
    }
}

fn serve(what: What, stream: TcpStream, file: &File, tls: Option<Arc<ServerConfig>>) -> Result<()> {
    match tls {
        Some(config) => send(what, StreamOwned::new(ServerConnection::new(config)?, stream)),
        None if what == What::Sendfile => send_file(stream, file, what.answer()),
        None => send(what, stream),
    }
}

fn send(what: What, mut stream: impl Read + Write) -> Result<()> {
    let answer = vec![7; what.answer()];
    let (mut arrived, mut open, mut out) = (vec![0; 64 << 10], 0, Vec::new());
    loop {
        let read = stream.read(&mut arrived)?;
        anyhow::ensure!(read > 0, "the client is gone");
        open += read;
        out.clear();
        while open >= REQUEST {
            open -= REQUEST;
            if what.is_large() { stream.write_all(&answer)? } else { out.extend_from_slice(&answer) }
        }
        stream.write_all(&out)?;
    }
}

fn send_file(mut stream: TcpStream, file: &File, length: usize) -> Result<()> {
    let (mut arrived, mut open) = (vec![0; 4 << 10], 0);
    loop {
        let read = stream.read(&mut arrived)?;
        anyhow::ensure!(read > 0, "the client is gone");
        open += read;
        while open >= REQUEST {
            open -= REQUEST;
            let mut at = 0;
            while (at as usize) < length {
                let left = length - at as usize;
                rustix::fs::sendfile(&stream, file, Some(&mut at), left)?;
            }
        }
    }
}

fn config() -> Result<(Arc<ServerConfig>, CertificateDer<'static>)> {
    let made = rcgen::generate_simple_self_signed(["bare".to_owned()])?;
    let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(made.signing_key.serialize_der()));
    let cert: CertificateDer<'static> = made.cert.der().clone();
    let config = ServerConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
        .with_protocol_versions(&[&rustls::version::TLS13])?
        .with_no_client_auth()
        .with_single_cert(vec![cert.clone()], key)
        .context("a certificate")?;
    Ok((Arc::new(config), cert))
}
