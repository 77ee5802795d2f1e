//! The vellum command. The work is in the library beside it, where tests and fuzzers reach it.

use std::process::ExitCode;

fn main() -> ExitCode {
    vellum_cli::run()
}
