//! TLS, with the system's certificates or given ones.

use std::path::Path;
use std::sync::Arc;

use tokio::io::{AsyncRead, AsyncWrite};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName};
use tokio_rustls::rustls::{ClientConfig, RootCertStore, crypto};

use super::error::NatsError;

/// Encrypts a connection to this host.
pub(super) async fn connect<S>(stream: S, host: &str, roots: Option<&Path>) -> Result<TlsStream<S>, NatsError>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let mut store = RootCertStore::empty();
    if let Some(path) = roots {
        let unreadable = |error: &dyn std::fmt::Display| NatsError::Tls(format!("{}: {error}", path.display()));
        for certificate in CertificateDer::pem_file_iter(path).map_err(|error| unreadable(&error))? {
            let certificate = certificate.map_err(|error| unreadable(&error))?;
            store.add(certificate).map_err(|error| unreadable(&error))?;
        }
    } else {
        // A certificate that can't be read is no reason to trust none of the others.
        store.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    }
    if store.is_empty() {
        return Err(NatsError::Tls(
            "there are no root certificates: give a file by `.root_certificates(…)`".to_owned(),
        ));
    }
    let config = ClientConfig::builder_with_provider(Arc::new(crypto::ring::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(|error| NatsError::Tls(error.to_string()))?
        .with_root_certificates(store)
        .with_no_client_auth();
    let name = ServerName::try_from(host.to_owned()).map_err(|error| NatsError::Tls(error.to_string()))?;
    let connected = TlsConnector::from(Arc::new(config)).connect(name, stream).await;
    connected.map_err(|error| NatsError::Tls(error.to_string()))
}
