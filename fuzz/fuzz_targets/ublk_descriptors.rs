//! What the kernel puts into a queue's descriptors.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| vellum_frontend::ublk::testing::fuzz_descriptors(data));
