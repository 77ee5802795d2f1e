//! HTTP/1, as much as a read-only server needs: a request is its head, bodies are not accepted, and a connection serves one request.

mod answer;
mod hosts;
mod request;

pub use answer::Answer;
pub use hosts::Hosts;
pub use request::{HEAD_BYTES_MAX, Request};
