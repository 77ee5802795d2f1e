//! TLS from PEM files.

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Where the server's certificate and key are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsFiles {
    /// The certificate, then those that vouch for it, in PEM.
    pub certificate: PathBuf,
    /// Its private key, in PEM.
    pub key: PathBuf,
    /// Certificates, in PEM, of which one must vouch for each client's own.
    pub client_ca: Option<PathBuf>,
}

/// Why TLS cannot be set up.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// A file cannot be read, or holds no PEM of the kind wanted.
    #[error("{}: {reason}", path.display())]
    File {
        /// Which.
        path: PathBuf,
        /// Why.
        reason: String,
    },
    /// Certificate and key do not fit, or something like it.
    #[error("TLS certificate or key: {0}")]
    Config(String),
}

fn file(path: &Path, reason: impl ToString) -> TlsError {
    TlsError::File {
        path: path.to_owned(),
        reason: reason.to_string(),
    }
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let found: Result<Vec<_>, _> = CertificateDer::pem_file_iter(path)
        .map_err(|e| file(path, words(&e)))?
        .collect();
    match found {
        Err(e) => Err(file(path, words(&e))),
        Ok(found) if found.is_empty() => Err(file(path, "holds no certificate in PEM")),
        Ok(found) => Ok(found),
    }
}

fn words(error: &rustls::pki_types::pem::Error) -> String {
    match error {
        rustls::pki_types::pem::Error::Io(e) => e.to_string(),
        other => format!("not PEM: {other}"),
    }
}

impl TlsFiles {
    /// Reads them.
    ///
    /// # Errors
    /// Which file is wrong, and why.
    pub fn load(&self) -> Result<Arc<ServerConfig>, TlsError> {
        let chain = certificates(&self.certificate)?;
        let mode = std::fs::metadata(&self.key).map_err(|e| file(&self.key, e))?;
        if mode.permissions().mode() & 0o007 != 0 {
            return Err(file(
                &self.key,
                "any user of this machine may use this private key: chmod o= it",
            ));
        }
        let key =
            PrivateKeyDer::from_pem_file(&self.key).map_err(|e| file(&self.key, words(&e)))?;
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = |e: &dyn std::fmt::Display| TlsError::Config(e.to_string());
        let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
            .with_safe_default_protocol_versions()
            .map_err(|e| config(&e))?;
        let builder = match &self.client_ca {
            None => builder.with_no_client_auth(),
            Some(path) => {
                let mut roots = RootCertStore::empty();
                for certificate in certificates(path)? {
                    roots.add(certificate).map_err(|e| file(path, e))?;
                }
                let verifier =
                    WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider)
                        .build()
                        .map_err(|e| file(path, e))?;
                builder.with_client_cert_verifier(verifier)
            }
        };
        Ok(Arc::new(
            builder
                .with_single_cert(chain, key)
                .map_err(|e| config(&e))?,
        ))
    }
}
