//! The host names under which requests are accepted.
//!
//! A browser lets a page of another site read answers that come from that site's own name, and the owner of that name can
//! later point it at this machine ("DNS rebinding"). Such a request carries a Host that is not ours. An address is not a name
//! and cannot be pointed elsewhere.

use std::net::{IpAddr, Ipv6Addr};

/// The accepted names, besides addresses and `localhost`.
#[derive(Clone, Debug, Default)]
pub struct Hosts(Vec<String>);

impl Hosts {
    /// Accepts these names as well.
    pub fn new(names: Vec<String>) -> Self {
        Self(names)
    }

    /// True if a request's Host is accepted. A request without one does not come from a browser.
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

/// Ports are not compared, because a client behind a tunnel uses a different one.
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
