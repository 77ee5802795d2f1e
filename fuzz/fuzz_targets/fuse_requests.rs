//! What the kernel asks of a directory with volumes as files.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| vellum_frontend::fuse::testing::fuzz_requests(data));
