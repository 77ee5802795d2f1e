//! A terminal on which the same lines are redrawn until the user presses `q`.

use crate::outcome::lines;
use std::io::{self, Write};
use std::os::fd::AsRawFd;
use std::time::{Duration, Instant};

/// How soon a signal is noticed while waiting for keys.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// The screen. Without a terminal, each text is printed after the previous one.
pub struct Screen {
    /// The terminal's settings before, if keys are read from one.
    keys: Option<libc::termios>,
    is_terminal: bool,
    /// The number of lines shown.
    lines: usize,
}

impl Screen {
    /// Starts: keys are no longer echoed, nor buffered until the end of a line.
    pub fn begin() -> Self {
        // SAFETY: a number.
        let is_terminal = unsafe { libc::isatty(io::stdout().as_raw_fd()) } == 1;
        let keys = is_terminal.then(raw_keys).flatten();
        Self {
            keys,
            is_terminal,
            lines: 0,
        }
    }

    /// Draws a text in place of the previous one.
    pub fn draw(&mut self, text: &str) -> io::Result<()> {
        let text = &*lines(text);
        let mut out = io::stdout().lock();
        if !self.is_terminal {
            out.write_all(text.as_bytes())?;
            return out.flush();
        }
        let (rows, columns) = size();
        // A line that is wrapped or scrolled away could not be found again.
        let lines: Vec<String> = text
            .lines()
            .take(rows.saturating_sub(1))
            .map(|line| line.chars().take(columns).collect())
            .collect();
        if self.lines > 0 {
            write!(out, "\x1b[{}F", self.lines)?;
        }
        for line in &lines {
            writeln!(out, "{line}\x1b[K")?;
        }
        // Clear the rest of a longer text.
        write!(out, "\x1b[J")?;
        self.lines = lines.len();
        out.flush()
    }

    /// Waits this long. Returns true if the user quits.
    pub fn wait(&self, most: Duration, stopped: &dyn Fn() -> bool) -> bool {
        let until = Instant::now() + most;
        loop {
            let left = until.saturating_duration_since(Instant::now());
            if stopped() || (self.keys.is_some() && is_quit_pressed(left.min(LOOK_EVERY))) {
                return true;
            }
            if left.is_zero() {
                return false;
            }
            if self.keys.is_none() {
                std::thread::sleep(left.min(LOOK_EVERY));
            }
        }
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        if let Some(before) = &self.keys {
            // SAFETY: settings read from the same terminal.
            unsafe { libc::tcsetattr(io::stdin().as_raw_fd(), libc::TCSANOW, before) };
        }
    }
}

/// Switches to reading keys one at a time. Returns the previous settings; `None` if there is no keyboard.
fn raw_keys() -> Option<libc::termios> {
    let keyboard = io::stdin().as_raw_fd();
    // SAFETY: room for the settings, which are used only if the call succeeded.
    unsafe {
        let mut before = std::mem::zeroed();
        if libc::tcgetattr(keyboard, &raw mut before) != 0 {
            return None;
        }
        // In the background the process would be stopped for changing a terminal that it does not own.
        if libc::tcgetpgrp(keyboard) != libc::getpgrp() {
            return None;
        }
        let mut now = before;
        now.c_lflag &= !(libc::ICANON | libc::ECHO);
        (libc::tcsetattr(keyboard, libc::TCSANOW, &raw const now) == 0).then_some(before)
    }
}

fn is_quit_pressed(most: Duration) -> bool {
    let mut poll = libc::pollfd {
        fd: io::stdin().as_raw_fd(),
        events: libc::POLLIN,
        revents: 0,
    };
    let millis = i32::try_from(most.as_millis()).unwrap_or(i32::MAX);
    // SAFETY: one descriptor, and a byte to read into.
    unsafe {
        if libc::poll(&raw mut poll, 1, millis) != 1 {
            return false;
        }
        let mut key = 0_u8;
        match libc::read(poll.fd, (&raw mut key).cast(), 1) {
            1 => key == b'q' || key == b'Q',
            // The terminal is gone.
            _ => true,
        }
    }
}

/// Rows and columns of the terminal.
fn size() -> (usize, usize) {
    // SAFETY: room for the result.
    let size = unsafe {
        let mut size: libc::winsize = std::mem::zeroed();
        libc::ioctl(io::stdout().as_raw_fd(), libc::TIOCGWINSZ, &raw mut size);
        size
    };
    let or = |n: u16, usual| if n == 0 { usual } else { usize::from(n) };
    (or(size.ws_row, 24), or(size.ws_col, 80))
}
