//! What a client sends after the handshake, on a real socket.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| vellum_frontend::nbd::testing::fuzz_transmission(data));
