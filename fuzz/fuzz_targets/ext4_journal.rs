#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    vellum_fuzz::ext4::journal(bytes);
    vellum_fuzz::ext4::commits(bytes);
});
