//! Encryption between clients of a group: each member has its own certificate, and the member
//! record contains its fingerprint.
//!
//! What must stay true: a client sends data only to a server that has the private key of the
//! certificate with the fingerprint in the member record. No certificate authority is used.

use std::{io, sync::Arc};

use rustls::{
    ClientConfig, ServerConfig,
    crypto::aws_lc_rs as provider,
    pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer, ServerName},
};
use sluice_net::{
    Tls,
    tls::{Files, Verify, fingerprint},
};

/// SHA-256 of a certificate.
pub type Fingerprint = [u8; 32];

/// The name in all certificates, which proves nothing.
const NAME: &str = "sluice-peer";
/// Label of the binding that both sides of a connection derive.
const BINDING: &[u8] = b"EXPORTER-sluice-peer";

/// What a member shows to its clients.
#[derive(Clone, Debug)]
pub struct Identity {
    /// SHA-256 of the certificate.
    pub fingerprint: Fingerprint,
    /// For the server side of connections.
    pub config: Arc<ServerConfig>,
}

impl Identity {
    /// A new certificate with a new key, which stays in memory.
    ///
    /// # Errors
    /// If the cryptographic library fails.
    pub fn new() -> io::Result<Self> {
        let made = rcgen::generate_simple_self_signed([NAME.to_owned()]).map_err(io::Error::other)?;
        let cert = made.cert.der().clone();
        let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(made.signing_key.serialize_der()));
        let fingerprint = fingerprint(&cert);
        let config = ServerConfig::builder_with_provider(Arc::new(provider::default_provider()))
            .with_protocol_versions(&[&rustls::version::TLS13])
            .map_err(io::Error::other)?
            .with_no_client_auth()
            .with_single_cert(vec![cert], key)
            .map_err(io::Error::other)?;
        Ok(Self { fingerprint, config: Arc::new(config) })
    }
}

/// The configuration of a client that accepts this certificate alone, and the name to ask for.
///
/// # Errors
/// If the cryptographic library fails.
pub fn client(fingerprint: Fingerprint) -> io::Result<(Arc<ClientConfig>, ServerName<'static>)> {
    let tls = Tls::new(Verify::Certificate(fingerprint), &Files::default()).map_err(io::Error::other)?;
    Ok((tls.config(), ServerName::try_from(NAME).map_err(io::Error::other)?))
}

/// What both sides of a TLS connection know, and nobody else.
///
/// # Errors
/// If the handshake is not complete.
pub fn binding<Data>(connection: &rustls::ConnectionCommon<Data>) -> io::Result<[u8; 32]> {
    connection.export_keying_material([0; 32], BINDING, None).map_err(io::Error::other)
}
