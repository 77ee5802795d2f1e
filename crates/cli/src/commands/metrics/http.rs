//! The metrics over HTTP.

use super::families;
use crate::outcome::tell;
use crate::signals::Stop;
use anyhow::{Result, anyhow};
use std::net::SocketAddr;
use std::time::Duration;
use tiny_http::{Header, Method, Request, Response, Server};

const OLDER: &str = "text/plain; version=0.0.4; charset=utf-8";
const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Answers `/metrics` with what `text` gives, until a signal.
pub fn serve(address: SocketAddr, text: &dyn Fn() -> Result<String>) -> Result<()> {
    let stop = Stop::on_signals(true)?;
    let server = Server::http(address).map_err(|error| anyhow!(error))?;
    let address = server.server_addr();
    tell(format_args!("ready: http://{address}/metrics"));
    while !stop.asked() {
        let Some(request) = server.recv_timeout(Duration::from_millis(200))? else {
            continue;
        };
        answer(request, text);
    }
    Ok(())
}

fn takes_open_metrics(request: &Request) -> bool {
    let mut headers = request.headers().iter();
    headers
        .any(|header| header.field.equiv("Accept") && header.value.as_str().contains("openmetrics"))
}

fn answer(request: Request, text: &dyn Fn() -> Result<String>) {
    let (status, kind, body) = match (request.method(), request.url()) {
        (Method::Get | Method::Head, "/metrics") => match text() {
            Ok(text) if takes_open_metrics(&request) => (200, OPEN_METRICS, text),
            Ok(text) => (200, OLDER, families::older(&text)),
            Err(error) => (500, "text/plain", format!("{error:#}\n")),
        },
        (Method::Get | Method::Head, _) => (404, "text/plain", "see /metrics\n".to_owned()),
        _ => (405, "text/plain", "only GET\n".to_owned()),
    };
    let mut response = Response::from_string(body).with_status_code(status);
    if let Ok(header) = Header::from_bytes("Content-Type", kind) {
        response.add_header(header);
    }
    // Whoever asked is gone: nobody is left to be told.
    let _ = request.respond(response);
}
