//! How much a server has to prove before it is told anything, by the words of `sslmode`.
//!
//! What must stay true: `verify-ca` and `verify-full` never accept a certificate that no trusted
//! authority signed.

use std::{fs::File, io, path::Path, sync::Arc};

use rustls::{
    ClientConfig, ClientConnection, DigitallySignedStruct, RootCertStore, SignatureScheme,
    client::{
        WebPkiServerVerifier,
        danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
    },
    crypto::{CryptoProvider, aws_lc_rs},
    pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime, pem::PemObject},
};

use super::options::{Tls, TlsMode};

/// Makes encrypted sessions.
pub(super) struct Encryption(Arc<ClientConfig>);

impl Encryption {
    /// Reads the certificates that the options name.
    pub(super) fn new(tls: &Tls) -> Result<Self, String> {
        let provider = Arc::new(aws_lc_rs::default_provider());
        let checked = tls.mode >= TlsMode::VerifyCa || tls.root.is_some();
        let inner = if checked {
            let roots = Arc::new(roots(tls.root.as_deref())?);
            let verifier = WebPkiServerVerifier::builder_with_provider(roots, provider.clone()).build();
            Some(verifier.map_err(|error| format!("no certificates to trust: {error}"))?)
        } else {
            None
        };
        let verifier = Verifier { inner, named: tls.mode == TlsMode::VerifyFull, provider: provider.clone() };
        let config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|error| error.to_string())?
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(verifier));
        let config = match (&tls.cert, &tls.key) {
            (Some(cert), Some(key)) => {
                let key_file = PrivateKeyDer::from_pem_file(key)
                    .map_err(|error| format!("sslkey={}: {error}", key.display()))?;
                config
                    .with_client_auth_cert(certificates(cert)?, key_file)
                    .map_err(|error| error.to_string())?
            }
            (None, None) => config.with_no_client_auth(),
            _ => return Err("sslcert and sslkey go together".into()),
        };
        Ok(Self(Arc::new(config)))
    }

    /// A session with the server of that name.
    pub(super) fn session(&self, host: &str) -> io::Result<ClientConnection> {
        let name = ServerName::try_from(host.to_owned()).map_err(io::Error::other)?;
        ClientConnection::new(self.0.clone(), name).map_err(io::Error::other)
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
                roots.add(certificate).map_err(|error| format!("sslrootcert={}: {error}", path.display()))?;
            }
        }
        None => drop(roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs)),
    }
    Ok(roots)
}

/// Checks what the mode asks for.
#[derive(Debug)]
struct Verifier {
    /// Knows the authorities; without it any certificate will do.
    inner: Option<Arc<WebPkiServerVerifier>>,
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
        let Some(inner) = &self.inner else { return Ok(ServerCertVerified::assertion()) };
        match inner.verify_server_cert(end_entity, intermediates, server_name, ocsp_response, now) {
            Err(rustls::Error::InvalidCertificate(
                rustls::CertificateError::NotValidForName
                | rustls::CertificateError::NotValidForNameContext { .. },
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
