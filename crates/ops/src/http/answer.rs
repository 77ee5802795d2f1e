//! An HTTP answer.

/// An answer to a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    status: u16,
    kind: &'static str,
    body: Vec<u8>,
}

/// Answers must not be stored, framed, sniffed or read by other sites; the page fetches from here alone.
const HEADERS: &str = "Cache-Control: no-store\r\n\
    Content-Security-Policy: default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; \
    img-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'\r\n\
    Cross-Origin-Resource-Policy: same-origin\r\n\
    Referrer-Policy: no-referrer\r\n\
    X-Content-Type-Options: nosniff\r\n\
    Connection: close\r\n";

impl Answer {
    /// A successful answer with this content.
    pub fn of(kind: &'static str, body: impl Into<Vec<u8>>) -> Self {
        Self {
            status: 200,
            kind,
            body: body.into(),
        }
    }

    /// A refusal, with its reason.
    pub fn refused(status: u16, why: &str) -> Self {
        Self {
            status,
            kind: "text/plain; charset=utf-8",
            body: format!("{why}\n").into_bytes(),
        }
    }

    /// Its status code.
    pub fn status(&self) -> u16 {
        self.status
    }

    /// The answer as bytes, with or without its body.
    pub fn bytes(&self, has_body: bool) -> Vec<u8> {
        let reason = match self.status {
            200 => "OK",
            400 => "Bad Request",
            404 => "Not Found",
            405 => "Method Not Allowed",
            421 => "Misdirected Request",
            431 => "Request Header Fields Too Large",
            _ => "Internal Server Error",
        };
        let (status, kind, length) = (self.status, self.kind, self.body.len());
        let allow = match status {
            405 => "Allow: GET, HEAD\r\n",
            _ => "",
        };
        let head = format!(
            "HTTP/1.1 {status} {reason}\r\nContent-Type: {kind}\r\nContent-Length: {length}\r\n\
            {allow}{HEADERS}\r\n"
        );
        let mut bytes = head.into_bytes();
        if has_body {
            bytes.extend_from_slice(&self.body);
        }
        bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_says_how_long_it_is_with_and_without_its_body() {
        let answer = Answer::of("text/plain", "four");
        let whole = String::from_utf8(answer.bytes(true)).unwrap();
        assert!(whole.starts_with("HTTP/1.1 200 OK\r\n"));
        assert!(whole.contains("\r\nContent-Length: 4\r\n"));
        assert!(whole.ends_with("\r\n\r\nfour"));
        assert_eq!(answer.bytes(false), whole.as_bytes()[..whole.len() - 4]);
    }
}
