//! What a client sends to a server that requires TLS, on a real socket.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    vellum_frontend::nbd::testing::fuzz_tls(data);
});
