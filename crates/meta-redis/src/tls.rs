//! Encryption: what a server has to prove before it is told anything, and what we prove to it.
//!
//! What must stay true: unless the URL says so, no certificate is accepted that no trusted
//! authority signed for the name of the server.

use std::{fs::File, io, path::Path, sync::Arc};

use rustls::{
    ClientConfig, ClientConnection, DigitallySignedStruct, RootCertStore, SignatureScheme,
    client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
    crypto::{CryptoProvider, aws_lc_rs},
    pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime, pem::PemObject},
};

use crate::config::Tls;

/// Makes encrypted sessions.
pub(crate) struct Encryption {
    config: Arc<ClientConfig>,
    /// The name that the certificates of all servers have, if not that of the host.
    name: Option<String>,
}

impl Encryption {
    /// Reads the certificates that the options name.
    pub(crate) fn new(tls: &Tls) -> Result<Self, String> {
        let provider = Arc::new(aws_lc_rs::default_provider());
        let config = ClientConfig::builder_with_provider(provider.clone())
            .with_safe_default_protocol_versions()
            .map_err(|error| error.to_string())?;
        let config = if tls.insecure {
            config.dangerous().with_custom_certificate_verifier(Arc::new(Anyone(provider)))
        } else {
            config.with_root_certificates(roots(tls.ca_file.as_deref())?)
        };
        let config = match (&tls.cert_file, &tls.key_file) {
            (Some(cert), Some(key)) => {
                let key_file = PrivateKeyDer::from_pem_file(key)
                    .map_err(|error| format!("tls-key-file={}: {error}", key.display()))?;
                config
                    .with_client_auth_cert(certificates(cert)?, key_file)
                    .map_err(|error| error.to_string())?
            }
            (None, None) => config.with_no_client_auth(),
            _ => return Err("tls-cert-file and tls-key-file go together".into()),
        };
        Ok(Self { config: Arc::new(config), name: tls.server_name.clone() })
    }

    /// A session with the server of that name or IP address.
    pub(crate) fn session(&self, host: &str) -> io::Result<ClientConnection> {
        let name = self.name.as_deref().unwrap_or(host).to_owned();
        let name = ServerName::try_from(name).map_err(io::Error::other)?;
        ClientConnection::new(self.config.clone(), name).map_err(io::Error::other)
    }
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, String> {
    let wrong = |error: &dyn std::fmt::Display| format!("{}: {error}", path.display());
    let file = File::open(path).map_err(|error| wrong(&error))?;
    CertificateDer::pem_reader_iter(file).collect::<Result<_, _>>().map_err(|error| wrong(&error))
}

fn roots(file: Option<&Path>) -> Result<RootCertStore, String> {
    let mut roots = RootCertStore::empty();
    match file {
        Some(path) => {
            for certificate in certificates(path)? {
                let added = roots.add(certificate);
                added.map_err(|error| format!("tls-ca-cert-file={}: {error}", path.display()))?;
            }
        }
        None => drop(roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs)),
    }
    Ok(roots)
}

/// Takes any certificate, as `insecure-skip-verify` wants it, but not a forged signature with it.
#[derive(Debug)]
struct Anyone(Arc<CryptoProvider>);

impl ServerCertVerifier for Anyone {
    fn verify_server_cert(
        &self,
        _end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let known = &self.0.signature_verification_algorithms;
        rustls::crypto::verify_tls12_signature(message, cert, dss, known)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let known = &self.0.signature_verification_algorithms;
        rustls::crypto::verify_tls13_signature(message, cert, dss, known)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}
