//! Encryption between clients of a group: each member has a certificate of its own, and its record
//! says which.
//!
//! What must stay true: a client talks only to who holds the key of the certificate whose
//! fingerprint the member's record names. No authority is asked.

use std::{io, sync::Arc};

use aws_lc_rs::digest::{SHA256, digest};
use rustls::{
    ClientConfig, DigitallySignedStruct, ServerConfig, SignatureScheme,
    client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
    crypto::{CryptoProvider, aws_lc_rs as provider, verify_tls12_signature, verify_tls13_signature},
    pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer, ServerName, UnixTime},
};

/// SHA-256 of a certificate.
pub type Fingerprint = [u8; 32];

/// The name in all certificates, which proves nothing.
const NAME: &str = "sluice-peer";
/// Label of the binding that both sides of a connection derive.
const BINDING: &[u8] = b"EXPORTER-sluice-peer";

/// What a member shows to its clients.
#[derive(Clone, Debug)]
pub(crate) struct Identity {
    pub(crate) fingerprint: Fingerprint,
    pub(crate) config: Arc<ServerConfig>,
}

impl Identity {
    /// A new certificate with a new key, which stays in memory.
    ///
    /// # Errors
    /// If the cryptographic library fails.
    pub(crate) fn new() -> io::Result<Self> {
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
pub(crate) fn client(fingerprint: Fingerprint) -> io::Result<(Arc<ClientConfig>, ServerName<'static>)> {
    let provider = Arc::new(provider::default_provider());
    let verifier = Pinned { fingerprint, provider: provider.clone() };
    let config = ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13])
        .map_err(io::Error::other)?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(verifier))
        .with_no_client_auth();
    Ok((Arc::new(config), ServerName::try_from(NAME).map_err(io::Error::other)?))
}

/// What both sides of a TLS connection know, and nobody else.
pub(crate) fn binding<Data>(connection: &rustls::ConnectionCommon<Data>) -> io::Result<[u8; 32]> {
    connection.export_keying_material([0; 32], BINDING, None).map_err(io::Error::other)
}

fn fingerprint(cert: &CertificateDer<'_>) -> Fingerprint {
    let mut out = [0; 32];
    out.copy_from_slice(digest(&SHA256, cert).as_ref());
    out
}

/// Accepts one certificate.
#[derive(Debug)]
struct Pinned {
    fingerprint: Fingerprint,
    provider: Arc<CryptoProvider>,
}

impl ServerCertVerifier for Pinned {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        if fingerprint(end_entity) == self.fingerprint {
            return Ok(ServerCertVerified::assertion());
        }
        Err(rustls::Error::General("the certificate is not that of the member's record".into()))
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(message, cert, dss, &self.provider.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, cert, dss, &self.provider.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}
