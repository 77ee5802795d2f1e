//! Untrusted input to the exporter: requests, and what drives and programs report about wear.

use vellum_ops::drive;
use vellum_ops::http::{Hosts, Request};

/// Parses the bytes as a request, whole and partly received.
pub fn request(bytes: &[u8]) {
    let whole = Request::parse(bytes);
    if let Ok(Some(request)) = &whole {
        assert!(!request.path().contains('?'));
        let host = request.host().unwrap_or_default();
        if Hosts::default().has(request.host()) && host.contains(char::is_alphabetic) {
            let is_address = host.starts_with('[') && host.contains(']');
            assert!(
                is_address || host.trim().to_ascii_lowercase().starts_with("localhost"),
                "{host}"
            );
        }
        // Bytes after a request do not change it.
        let more = [bytes, b"more"].concat();
        assert_eq!(Request::parse(&more).ok().flatten().as_ref(), Some(request));
    }
    if let Err(answer) = whole {
        assert!((400..500).contains(&answer.status()));
    }
}

/// Reads the bytes in each format in which a drive reports its wear.
pub fn wear(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    let _ = drive::of_report(&text);
    if let Ok(wear) = drive::of_estimates(&text) {
        assert!((10..=110).contains(&wear.used_percent));
    }
    if let Some(log) = bytes.first_chunk() {
        let _ = drive::of_log(log);
    }
}
