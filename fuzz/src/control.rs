//! Requests on a control socket, and state files: a request yields an answer that a client can read, and a state is written as
//! it was read.

use vellum_cli::{asked, recorded};

/// The most that a server reads of a line.
const LINE_BYTES_MAX: usize = 4096;
/// The most that a client reads of an answer.
const ANSWER_BYTES_MAX: usize = 1 << 20;

/// Takes each line as a request.
pub fn requests(bytes: &[u8]) {
    for line in bytes.split(|&byte| byte == b'\n') {
        let line = &line[..line.len().min(LINE_BYTES_MAX)];
        let answer = asked(line);
        let is_done = answer.get("ok").and_then(|ok| ok.as_bool());
        let says = answer.get("error").is_some_and(|error| error.is_string());
        // Either done, or a reason.
        assert_eq!(is_done, Some(!says), "{answer}");
        let told = answer.to_string();
        assert!(!told.contains('\n') && told.len() < ANSWER_BYTES_MAX);
    }
}

/// Takes the bytes as a state file.
pub fn state(bytes: &[u8]) {
    if let Ok(written) = recorded(bytes) {
        let again = recorded(&written).map_err(|error| error.to_string());
        assert_eq!(again.as_deref(), Ok(&written[..]));
    }
}
