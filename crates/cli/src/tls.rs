//! How TCP connections are protected: options of `vellum serve`.

use crate::outcome::usage;
use anyhow::Result;
use std::collections::BTreeSet;
use std::path::PathBuf;
use std::str::FromStr;
use vellum_frontend::nbd::{Fingerprint, Protection, TlsFiles};

/// Options of TLS.
#[derive(clap::Args, Default)]
pub struct TlsArgs {
    /// The server's certificate chain (PEM).
    #[arg(long, value_name = "FILE", requires_all = ["tcp", "tls_key"])]
    tls_cert: Option<PathBuf>,
    /// The certificate's key (PEM).
    #[arg(long, value_name = "FILE", requires_all = ["tcp", "tls_cert"])]
    tls_key: Option<PathBuf>,
    /// Clients must show a certificate signed by one of these (PEM).
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    tls_client_ca: Option<PathBuf>,
    /// Allow only the client with this certificate to use this export over TCP; * means all exports. May be
    /// repeated. Exports not named are then closed to all clients. `openssl x509 -noout -fingerprint -sha256 -in
    /// FILE` prints a fingerprint.
    #[arg(long, value_name = "NAME=FINGERPRINT", requires = "tls_client_ca")]
    tls_allow: Vec<Allow>,
    /// Client certificates that were revoked: the lists (CRL, PEM) of all who sign them. They are read at the start.
    #[arg(long, value_name = "FILE", requires = "tls_client_ca")]
    tls_crl: Option<PathBuf>,
    /// Serve TCP without TLS: anyone who can reach the port reads and writes everything.
    #[arg(long, requires = "tcp", conflicts_with = "tls_cert")]
    insecure_tcp: bool,
}

/// A client that may use an export.
#[derive(Clone)]
struct Allow {
    /// The export; `None`: all of them.
    name: Option<String>,
    client: Fingerprint,
}

impl FromStr for Allow {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (name, client) = text
            .rsplit_once('=')
            .ok_or_else(|| format!("{text:?} is not NAME=FINGERPRINT"))?;
        Ok(Self {
            name: Some(name.to_owned()).filter(|name| name != "*"),
            client: client.parse()?,
        })
    }
}

impl TlsArgs {
    /// Checks whether TCP may be served with exports of these names.
    pub fn check<'a>(
        &self,
        is_tcp: bool,
        mut names: impl Iterator<Item = &'a str> + Clone,
    ) -> Result<()> {
        if is_tcp && self.tls_cert.is_none() && !self.insecure_tcp {
            return Err(usage(
                "--tcp needs --tls-cert and --tls-key; on a network you trust, --insecure-tcp",
            ));
        }
        for named in self
            .tls_allow
            .iter()
            .filter_map(|allow| allow.name.as_deref())
        {
            if !names.clone().any(|name| name == named) {
                let first = names.next().unwrap_or("?");
                return Err(usage(format!(
                    "--tls-allow: no export is called {named:?}; one is called {first:?}"
                )));
            }
        }
        Ok(())
    }

    /// The clients that may use this export over TCP; `None`: all.
    pub fn clients(&self, export: &str) -> Option<BTreeSet<Fingerprint>> {
        let is_meant = |allow: &&Allow| allow.name.as_ref().is_none_or(|name| name == export);
        let meant = self.tls_allow.iter().filter(is_meant);
        (!self.tls_allow.is_empty()).then(|| meant.map(|allow| allow.client).collect())
    }

    /// The protection of TCP, and the URL scheme of its addresses.
    pub fn protection(&self) -> (Protection, &'static str) {
        match (&self.tls_cert, &self.tls_key) {
            (Some(certificate), Some(key)) => {
                let files = TlsFiles {
                    certificate: certificate.clone(),
                    key: key.clone(),
                    client_ca: self.tls_client_ca.clone(),
                    revoked: self.tls_crl.clone(),
                };
                (Protection::Tls(files), "nbds")
            }
            _ => (Protection::InsecureTcp, "nbd"),
        }
    }
}
