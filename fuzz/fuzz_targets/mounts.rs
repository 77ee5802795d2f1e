//! The kernel's table of mounts, in which users choose names.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| vellum_fuzz::mounts::table(bytes));
