//! Progress: a bar on a terminal, a line for each step elsewhere.

use crate::outcome::tell;
use indicatif::{ProgressBar, ProgressStyle};
use std::io::IsTerminal;
use std::time::Duration;

/// The progress so far.
pub struct Progress {
    bar: ProgressBar,
    lines: bool,
}

impl Progress {
    /// Starts, for this many steps.
    pub fn new(steps: u64) -> Self {
        let lines = !std::io::stderr().is_terminal();
        let bar = if lines {
            ProgressBar::hidden()
        } else {
            ProgressBar::new(steps)
        };
        if let Ok(style) =
            ProgressStyle::with_template("{spinner} {elapsed} [{bar:30}] {pos}/{len} {msg}")
        {
            bar.set_style(style);
        }
        if !lines {
            bar.enable_steady_tick(Duration::from_millis(200));
        }
        Self { bar, lines }
    }

    /// Begins the next step.
    pub fn step(&self, what: &str) {
        if self.lines {
            tell(format_args!("{what}"));
        }
        self.bar.set_message(what.to_owned());
        self.bar.inc(1);
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}
