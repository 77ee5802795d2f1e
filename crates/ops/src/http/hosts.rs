//! By which names we may be asked.
//!
//! A browser lets a page of another site read what comes from that site's own name, and its owner may let the name lead to this
//! machine afterwards ("DNS rebinding"). Such a request names a Host that is not ours. An address is no name, and cannot
//! lead elsewhere.

use std::net::{IpAddr, Ipv6Addr};

/// The names that are ours, besides addresses and `localhost`.
#[derive(Clone, Debug, Default)]
pub struct Hosts(Vec<String>);

impl Hosts {
    /// These as well.
    pub fn new(names: Vec<String>) -> Self {
        Self(names)
    }

    /// Whether a request's Host is ours. One that has none comes from no browser.
    pub fn has(&self, host: Option<&str>) -> bool {
        let Some(host) = host else { return true };
        let name = without_port(host.trim());
        if let Some(address) = name.strip_prefix('[').and_then(|it| it.strip_suffix(']')) {
            return address.parse::<Ipv6Addr>().is_ok();
        }
        let is = |ours: &str| name.eq_ignore_ascii_case(ours);
        name.parse::<IpAddr>().is_ok() || is("localhost") || self.0.iter().any(|ours| is(ours))
    }
}

/// The port may be another one: who comes through a tunnel has one of his own.
fn without_port(host: &str) -> &str {
    match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|b| b.is_ascii_digit()) => name,
        _ => host,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_others_are_not_ours() {
        let hosts = Hosts::new(vec!["disk.example.org".to_owned()]);
        for ours in [
            "127.0.0.1",
            "127.0.0.1:9822",
            "[::1]:9822",
            "[::1]",
            "192.168.7.1:80",
            "localhost:9822",
            "LOCALHOST",
            "Disk.example.org:9822",
        ] {
            assert!(hosts.has(Some(ours)), "{ours}");
        }
        for others in [
            "evil.example.org",
            "evil.example.org:9822",
            "127.0.0.1.evil.org",
            "localhost.evil.org:80",
            "",
            ":80",
            "[evil.org]",
            "[::1].evil.org",
            "127.0.0.1@evil.org",
            "xdisk.example.org",
            "0x7f.1",
        ] {
            assert!(!hosts.has(Some(others)), "{others}");
        }
        assert!(hosts.has(None));
    }
}
