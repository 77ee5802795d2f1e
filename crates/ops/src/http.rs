//! HTTP/1 as far as one who is only read needs it: a request is its head, no body is taken, a connection is asked once.

mod answer;
mod hosts;
mod request;

pub use answer::Answer;
pub use hosts::Hosts;
pub use request::{HEAD_BYTES_MAX, Request};
