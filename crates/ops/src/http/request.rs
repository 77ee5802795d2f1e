//! A request, parsed from bytes of an untrusted client.

use crate::http::answer::Answer;

/// The most bytes in a head; a longer one is refused.
pub const HEAD_BYTES_MAX: usize = 8 << 10;
const HEADERS_MAX: usize = 64;

/// A request's head.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    path: String,
    has_body: bool,
    host: Option<String>,
    takes_open_metrics: bool,
}

impl Request {
    /// Parses the request that these bytes begin with; `None` while its head is incomplete.
    ///
    /// # Errors
    /// The answer to bytes that are not a request, or to a request that is not allowed here.
    pub fn parse(bytes: &[u8]) -> Result<Option<Self>, Answer> {
        let mut headers = [httparse::EMPTY_HEADER; HEADERS_MAX];
        let mut parsed = httparse::Request::new(&mut headers);
        match parsed.parse(bytes) {
            Ok(httparse::Status::Complete(head)) if head <= HEAD_BYTES_MAX => {}
            Ok(httparse::Status::Partial) if bytes.len() < HEAD_BYTES_MAX => return Ok(None),
            Ok(_) | Err(httparse::Error::TooManyHeaders) => {
                return Err(Answer::refused(431, "the head of the request is too long"));
            }
            Err(error) => {
                return Err(Answer::refused(
                    400,
                    &format!("this is not HTTP/1: {error}"),
                ));
            }
        }
        let has_body = match parsed.method {
            Some("GET") => true,
            Some("HEAD") => false,
            _ => return Err(Answer::refused(405, "only GET and HEAD")),
        };
        let values = |name: &str| -> Vec<String> {
            let named = parsed.headers.iter();
            let named = named.filter(|header| header.name.eq_ignore_ascii_case(name));
            named
                .map(|header| String::from_utf8_lossy(header.value).into_owned())
                .collect()
        };
        let mut hosts = values("Host");
        // A browser always sends a Host. If there are two, it is unclear which one a proxy used.
        if hosts.len() > 1 || (hosts.is_empty() && parsed.version == Some(1)) {
            return Err(Answer::refused(400, "a request names one Host"));
        }
        let path = parsed.path.unwrap_or_default();
        let path = path.split_once('?').map_or(path, |(path, _)| path);
        Ok(Some(Self {
            path: path.to_owned(),
            has_body,
            host: hosts.pop(),
            takes_open_metrics: values("Accept").concat().contains("openmetrics"),
        }))
    }

    /// The requested path, without the query.
    pub fn path(&self) -> &str {
        &self.path
    }

    /// The host name it used, with the port; `None` in HTTP/1.0.
    pub fn host(&self) -> Option<&str> {
        self.host.as_deref()
    }

    /// True if it wants the body of the answer as well as the head.
    pub fn has_body(&self) -> bool {
        self.has_body
    }

    /// True if it accepts OpenMetrics.
    pub fn takes_open_metrics(&self) -> bool {
        self.takes_open_metrics
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_head_comes_in_pieces() {
        let text = b"GET /metrics?x=1 HTTP/1.1\r\nhost: here:1\r\n\
            Accept: application/openmetrics-text\r\n\r\n";
        for length in 0..text.len() {
            assert_eq!(Request::parse(&text[..length]), Ok(None), "{length}");
        }
        let request = Request::parse(text).unwrap().unwrap();
        assert_eq!(
            (request.path(), request.host()),
            ("/metrics", Some("here:1"))
        );
        assert!(request.takes_open_metrics() && request.has_body());
        let older = Request::parse(b"HEAD / HTTP/1.0\r\n\r\n").unwrap().unwrap();
        assert_eq!((older.host(), older.has_body()), (None, false));
    }

    #[test]
    fn malformed_requests_are_refused_and_heads_are_bounded() {
        let long = [b"GET / HTTP/1.1\r\nX: ".as_slice(), &[b'x'; HEAD_BYTES_MAX]].concat();
        let many = [
            b"GET / HTTP/1.1\r\n".as_slice(),
            &b"X: y\r\n".repeat(65),
            b"\r\n",
        ]
        .concat();
        for (bytes, status) in [
            (b"GET / HTTP/1.1\r\n\r\n".as_slice(), 400),
            (b"GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", 400),
            (b"POST / HTTP/1.1\r\nHost: a\r\n\r\n", 405),
            (b"\x16\x03\x01\x02\x00\x01", 400),
            (&long, 431),
            (&many, 431),
        ] {
            let answer = Request::parse(bytes).unwrap_err();
            assert_eq!(answer.status(), status, "{bytes:?}");
        }
    }
}
