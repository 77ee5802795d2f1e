//! What a client says in the handshake.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| vellum_frontend::nbd::testing::fuzz_options(data));
