//! TLS: how the client verifies the server before it sends data, and how the client authenticates
//! itself.
//!
//! What must stay true: a certificate is accepted only if it passes the requested checks. Its
//! signature is always checked.

use std::{
    fmt::Display,
    io,
    path::{Path, PathBuf},
    sync::Arc,
};

use aws_lc_rs::digest::{SHA256, digest};
use rustls::{
    CertificateError, ClientConfig, ClientConnection, DigitallySignedStruct, RootCertStore, SignatureScheme,
    client::{
        WebPkiServerVerifier,
        danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
    },
    crypto::{CryptoProvider, aws_lc_rs as provider},
    pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime, pem::PemObject},
};

use crate::url::boolean;

/// What the certificate of a server must prove.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verify {
    /// Nothing: any server is accepted.
    Nothing,
    /// A trusted authority signed it.
    Authority,
    /// That, and it names the host.
    Host,
    /// It is this one, whoever signed it: see [`fingerprint`].
    Certificate([u8; 32]),
}

/// SHA-256 of a certificate.
pub fn fingerprint(cert: &CertificateDer<'_>) -> [u8; 32] {
    let mut out = [0; 32];
    out.copy_from_slice(digest(&SHA256, cert).as_ref());
    out
}

/// The TLS options of a URL.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Files {
    /// File with the client's certificate, PEM.
    pub cert_file: Option<PathBuf>,
    /// File with the client's key, PEM.
    pub key_file: Option<PathBuf>,
    /// File with the certificates to trust instead of the system's, PEM.
    pub ca_file: Option<PathBuf>,
    /// The name in the servers' certificates, if it is not that of their host.
    pub server_name: Option<String>,
    /// Take any certificate.
    pub insecure: bool,
}

impl Files {
    /// Applies an option of a URL, by its name in JuiceFS. Returns whether it is an option of TLS.
    ///
    /// # Errors
    /// A message, if its value cannot be read.
    pub fn set(&mut self, name: &str, value: &str) -> Result<bool, String> {
        let file = || Some(PathBuf::from(value));
        match &*name.replace('_', "-") {
            "tls-cert-file" => self.cert_file = file(),
            "tls-key-file" => self.key_file = file(),
            "tls-ca-cert-file" => self.ca_file = file(),
            "tls-server-name" => self.server_name = Some(value.into()),
            "insecure-skip-verify" | "skip-verify" => self.insecure = boolean(name, value)?,
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// Reads the files. A server must prove all, unless the options take any certificate.
    ///
    /// # Errors
    /// As [`Tls::new`].
    pub fn load(&self) -> Result<Tls, String> {
        Tls::new(if self.insecure { Verify::Nothing } else { Verify::Host }, self)
    }

    /// The files of the client's certificate and of its key.
    ///
    /// # Errors
    /// A message, if there is one without the other.
    pub fn identity(&self) -> Result<Option<(&Path, &Path)>, String> {
        match (&self.cert_file, &self.key_file) {
            (Some(cert), Some(key)) => Ok(Some((cert, key))),
            (None, None) => Ok(None),
            _ => Err("the client's certificate and its key go together: name both files".into()),
        }
    }
}

/// Makes encrypted sessions.
#[derive(Clone)]
pub struct Tls(Arc<ClientConfig>);

impl Tls {
    /// Reads the certificates: those to trust, and the client's own with its key.
    ///
    /// # Errors
    /// A message, if a file cannot be read or does not hold what it should, or if there is a
    /// certificate without a key, or a key without one.
    pub fn new(verify: Verify, files: &Files) -> Result<Self, String> {
        let provider = Arc::new(provider::default_provider());
        let pinned = if let Verify::Certificate(print) = verify { Some(print) } else { None };
        let inner = if verify == Verify::Nothing || pinned.is_some() {
            None
        } else {
            let roots = Arc::new(trusted(files.ca_file.as_deref())?);
            let verifier = WebPkiServerVerifier::builder_with_provider(roots, provider.clone()).build();
            Some(verifier.map_err(|error| format!("no certificates to trust: {error}"))?)
        };
        let named = verify == Verify::Host;
        let verifier = Verifier { inner, pinned, named, provider: provider.clone() };
        let config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|error| error.to_string())?
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(verifier));
        let config = match files.identity()? {
            Some((cert, key)) => {
                let key_file = PrivateKeyDer::from_pem_file(key).map_err(|error| wrong(key, &error))?;
                config
                    .with_client_auth_cert(certificates(cert)?, key_file)
                    .map_err(|error| wrong(cert, &error))?
            }
            None => config.with_no_client_auth(),
        };
        Ok(Self(Arc::new(config)))
    }

    /// For a client that drives its sessions itself.
    pub fn config(&self) -> Arc<ClientConfig> {
        Arc::clone(&self.0)
    }

    /// A session with the server of that name or IP address.
    #[cfg(unix)]
    pub(crate) fn session(&self, host: &str) -> io::Result<ClientConnection> {
        let name = ServerName::try_from(host.to_owned()).map_err(io::Error::other)?;
        ClientConnection::new(self.0.clone(), name).map_err(io::Error::other)
    }
}

/// Why the server's certificate was not accepted, if this is the reason of an error. A retry does
/// not change it.
pub fn rejected_certificate(error: &io::Error) -> Option<String> {
    match error.get_ref()?.downcast_ref() {
        Some(rustls::Error::InvalidCertificate(reason)) => Some(match reason {
            // An authority of the same name may be known, with another key.
            CertificateError::UnknownIssuer | CertificateError::BadSignature => {
                "no trusted authority signed it".into()
            }
            reason => reason.to_string(),
        }),
        _ => None,
    }
}

fn wrong(path: &Path, error: &dyn Display) -> String {
    format!("{}: {error}", path.display())
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, String> {
    let read = CertificateDer::pem_file_iter(path).and_then(Iterator::collect);
    read.map_err(|error| wrong(path, &error))
}

fn trusted(file: Option<&Path>) -> Result<RootCertStore, String> {
    let mut roots = RootCertStore::empty();
    match file {
        Some(path) => {
            for certificate in certificates(path)? {
                roots.add(certificate).map_err(|error| wrong(path, &error))?;
            }
        }
        None => drop(roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs)),
    }
    Ok(roots)
}

/// Checks what [`Verify`] requires.
#[derive(Debug)]
struct Verifier {
    /// Knows the authorities; if `None`, any certificate is accepted.
    inner: Option<Arc<WebPkiServerVerifier>>,
    /// The only certificate that is accepted.
    pinned: Option<[u8; 32]>,
    /// Whether the certificate must name the host.
    named: bool,
    provider: Arc<CryptoProvider>,
}

impl ServerCertVerifier for Verifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        if self.pinned.is_some_and(|pinned| pinned != fingerprint(end_entity)) {
            return Err(CertificateError::ApplicationVerificationFailure.into());
        }
        let Some(inner) = &self.inner else { return Ok(ServerCertVerified::assertion()) };
        match inner.verify_server_cert(end_entity, intermediates, server_name, ocsp_response, now) {
            Err(rustls::Error::InvalidCertificate(
                CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. },
            )) if !self.named => Ok(ServerCertVerified::assertion()),
            verified => verified,
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let known = &self.provider.signature_verification_algorithms;
        rustls::crypto::verify_tls12_signature(message, cert, dss, known)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let known = &self.provider.signature_verification_algorithms;
        rustls::crypto::verify_tls13_signature(message, cert, dss, known)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}
