//! Which hosts are who they say: the machine's own roots, and those that a company adds.

use std::io;
use std::sync::{Arc, Mutex, PoisonError};

use rustls::ClientConfig;
use rustls::RootCertStore;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;

/// The roots, read when they are first needed.
#[derive(Default)]
pub(crate) struct Roots {
    extra: Vec<CertificateDer<'static>>,
    config: Mutex<Option<Arc<ClientConfig>>>,
}

impl Roots {
    /// With the certificates of a PEM text besides the machine's own.
    pub(crate) fn with(pem: &[u8]) -> io::Result<Self> {
        let extra: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem).collect();
        let extra = extra.map_err(io::Error::other)?;
        if extra.is_empty() {
            let why = "there is no certificate in this PEM text";
            return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
        }
        let config = Mutex::default();
        Ok(Self { extra, config })
    }

    /// How TLS is spoken with a host: HTTP/1.1, and its certificate has to be right.
    pub(crate) fn client(&self) -> io::Result<Arc<ClientConfig>> {
        let mut kept = self.config.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(config) = &*kept {
            return Ok(Arc::clone(config));
        }
        let mut roots = RootCertStore::empty();
        let native = rustls_native_certs::load_native_certs();
        roots.add_parsable_certificates(native.certs);
        for certificate in &self.extra {
            roots.add(certificate.clone()).map_err(io::Error::other)?;
        }
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(io::Error::other)?;
        let mut config = config.with_root_certificates(roots).with_no_client_auth();
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        let config = Arc::new(config);
        *kept = Some(Arc::clone(&config));
        Ok(config)
    }
}
