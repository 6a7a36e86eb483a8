//! The TLS options of an etcd URL.

use tonic::transport::{Certificate, ClientTlsConfig, Identity};

use crate::{address::Address, stored::Result};

/// The TLS configuration, if the URL asks for TLS.
pub(super) fn tls(address: &mut Address) -> Result<Option<ClientTlsConfig>> {
    if address.option("insecure-skip-verify").is_some() {
        return Err(address.refused("insecure-skip-verify is not supported; cacert names what to trust"));
    }
    let [ca, cert, key, name] = ["cacert", "cert", "key", "server-name"].map(|name| address.option(name));
    if [&ca, &cert, &key, &name].into_iter().all(Option::is_none) {
        return Ok(None);
    }
    let read = |file: String| {
        std::fs::read(&file).map_err(|error| address.refused(format!("{file} cannot be read: {error}")))
    };
    let mut tls = ClientTlsConfig::new();
    tls = match ca {
        Some(ca) => tls.ca_certificate(Certificate::from_pem(read(ca)?)),
        None => tls.with_native_roots(),
    };
    tls = match (cert, key) {
        (Some(cert), Some(key)) => tls.identity(Identity::from_pem(read(cert)?, read(key)?)),
        (None, None) => tls,
        _ => return Err(address.refused("a certificate of ours needs both cert and key")),
    };
    Ok(Some(match name {
        Some(name) => tls.domain_name(name),
        None => tls,
    }))
}
