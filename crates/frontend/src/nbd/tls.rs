//! TLS from PEM files.

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig};
use sha2::{Digest, Sha256};
use std::fmt;
use std::fs::File;
use std::io::BufReader;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Arc;

/// A certificate's SHA-256, as `openssl x509 -noout -fingerprint -sha256` prints it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Fingerprint([u8; 32]);

impl Fingerprint {
    pub(super) fn of(certificate: &CertificateDer<'_>) -> Self {
        Self(Sha256::digest(certificate).into())
    }
}

impl FromStr for Fingerprint {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || {
            format!(
                "{text:?} is no fingerprint, 64 digits: \
                 `openssl x509 -noout -fingerprint -sha256 -in FILE` tells it"
            )
        };
        let digits: Option<Vec<u8>> = text
            .chars()
            .filter(|c| *c != ':')
            .map(|c| c.to_digit(16).and_then(|digit| u8::try_from(digit).ok()))
            .collect();
        let digits = digits.ok_or_else(wrong)?;
        let (pairs, []) = digits.as_chunks::<2>() else {
            return Err(wrong());
        };
        let bytes: Vec<u8> = pairs.iter().map(|[high, low]| high << 4 | low).collect();
        bytes.try_into().map(Self).map_err(|_| wrong())
    }
}

impl fmt::Debug for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let digits: Vec<_> = self.0.iter().map(|byte| format!("{byte:02X}")).collect();
        f.write_str(&digits.join(":"))
    }
}

/// The files of the server's certificate and key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsFiles {
    /// The certificate, then its chain, in PEM.
    pub certificate: PathBuf,
    /// Its private key, in PEM.
    pub key: PathBuf,
    /// Certificates, in PEM, one of which must vouch for each client's certificate.
    pub client_ca: Option<PathBuf>,
    /// Revocation lists, in PEM, of the certificates in `client_ca`. If given, each certificate that vouches for a
    /// client must have a list here.
    pub revoked: Option<PathBuf>,
}

/// Why TLS cannot be set up.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// A file cannot be read, or holds no PEM of the kind wanted.
    #[error("{}: {reason}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// The reason.
        reason: String,
    },
    /// Certificate and key do not match, or the like.
    #[error("TLS certificate or key: {0}")]
    Config(String),
}

fn file(path: &Path, reason: impl ToString) -> TlsError {
    TlsError::File {
        path: path.to_owned(),
        reason: reason.to_string(),
    }
}

/// All of a kind that a file in PEM holds.
fn all<T: PemObject>(path: &Path, kind: &str) -> Result<Vec<T>, TlsError> {
    let found: Result<Vec<_>, _> = T::pem_file_iter(path).and_then(Iterator::collect);
    match found {
        Err(e) => Err(file(path, words(&e))),
        Ok(found) if found.is_empty() => Err(file(path, format!("holds no {kind} in PEM"))),
        Ok(found) => Ok(found),
    }
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    all(path, "certificate")
}

/// Reads the key. Refuses a file that another user can read or may have created.
fn private_key(path: &Path) -> Result<PrivateKeyDer<'static>, TlsError> {
    let opened = File::open(path).map_err(|e| file(path, e))?;
    // Metadata of the opened file, not of whatever has its name by now.
    let found = opened.metadata().map_err(|e| file(path, e))?;
    if found.mode() & 0o007 != 0 {
        let told = "any user of this machine may use this private key: chmod o= it";
        return Err(file(path, told));
    }
    if found.mode() & 0o020 != 0 {
        let told = "others than its owner may change this private key: chmod g-w it";
        return Err(file(path, told));
    }
    // SAFETY: no preconditions.
    let own = unsafe { libc::geteuid() };
    if found.uid() != 0 && found.uid() != own {
        let told = format!(
            "this private key belongs to user {}: chown it to root, or to who runs the server",
            found.uid()
        );
        return Err(file(path, told));
    }
    PrivateKeyDer::from_pem_reader(BufReader::new(opened)).map_err(|e| file(path, words(&e)))
}

fn words(error: &rustls::pki_types::pem::Error) -> String {
    match error {
        rustls::pki_types::pem::Error::Io(e) => e.to_string(),
        other => format!("not PEM: {other}"),
    }
}

impl TlsFiles {
    /// Reads the files.
    ///
    /// # Errors
    /// Which file is wrong, and why.
    pub fn load(&self) -> Result<Arc<ServerConfig>, TlsError> {
        let chain = certificates(&self.certificate)?;
        let key = private_key(&self.key)?;
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
                let lists = |path: &PathBuf| all(path, "revocation list (X509 CRL)");
                let revoked = self.revoked.as_ref().map(lists).transpose()?;
                let verifier =
                    WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider)
                        .with_crls(revoked.unwrap_or_default())
                        .build()
                        .map_err(|e| file(self.revoked.as_ref().unwrap_or(path), e))?;
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fingerprint_is_read_as_it_is_written() {
        let text = ["AB:01"; 16].join(":");
        let read: Fingerprint = text.parse().unwrap();
        assert_eq!(format!("{read:?}"), text);
        assert_eq!(text.replace(':', "").to_lowercase().parse(), Ok(read));
        for wrong in [
            "",
            "AB",
            &text[1..],
            &format!("{text}:00"),
            &text.replace('A', "G"),
        ] {
            assert!(wrong.parse::<Fingerprint>().is_err(), "{wrong}");
        }
    }
}
