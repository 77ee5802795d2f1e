#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    vellum_fuzz::watch::live(bytes, 1);
});
