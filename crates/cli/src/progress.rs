//! Progress of long work, for a user who watches.

use indicatif::{ProgressBar, ProgressStyle};
use std::time::Duration;

/// A bar for this many bytes, on a terminal.
pub fn of_bytes(what: &'static str, bytes: u64) -> ProgressBar {
    let bar = ProgressBar::new(bytes);
    if let Ok(style) = ProgressStyle::with_template(
        "{prefix} {bar:30} {binary_bytes} of {binary_total_bytes}, {eta}",
    ) {
        bar.set_style(style);
    }
    bar.set_prefix(what);
    bar
}

/// A sign of life during work of unknown length, on a terminal.
pub fn of_time(what: &'static str) -> ProgressBar {
    let bar = ProgressBar::new_spinner();
    if let Ok(style) = ProgressStyle::with_template("{prefix} {spinner} {elapsed}") {
        bar.set_style(style);
    }
    bar.set_prefix(what);
    bar.enable_steady_tick(Duration::from_millis(200));
    bar
}
