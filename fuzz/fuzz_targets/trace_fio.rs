#![no_main]

use vellum_lab::trace::Format;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| vellum_fuzz::trace::read(Format::Fio, bytes));
