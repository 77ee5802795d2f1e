//! Reports about a server's connections, limited so that clients cannot fill a disk with them.

use parking_lot::Mutex;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Receives why connections ended badly.
pub type Report = Arc<dyn Fn(&str) + Send + Sync>;

/// The most sentences in each [`WINDOW`].
const WORDS_MAX: u32 = 30;
const WINDOW: Duration = Duration::from_secs(60);

/// Passes on sentences, up to the limit.
pub struct Words {
    report: Report,
    said: Mutex<Said>,
}

#[derive(Default)]
struct Said {
    since: Option<Instant>,
    count: u32,
    left_out: u64,
}

impl Words {
    pub fn new(report: Report) -> Self {
        Self {
            report,
            said: Mutex::default(),
        }
    }

    /// Passes on a sentence, unless the limit for the window is reached. The number of omitted ones is reported later.
    pub fn say(&self, words: &str) {
        self.say_at(words, Instant::now());
    }

    fn say_at(&self, words: &str, now: Instant) {
        let mut said = self.said.lock();
        let is_over = |since: Instant| now.saturating_duration_since(since) >= WINDOW;
        if said.since.is_none_or(is_over) {
            let left_out = said.left_out;
            *said = Said {
                since: Some(now),
                ..Said::default()
            };
            if left_out > 0 {
                (self.report)(&format!(
                    "{left_out} more such lines were left out: clients cause too many"
                ));
            }
        }
        if said.count < WORDS_MAX {
            said.count += 1;
            (self.report)(words);
        } else {
            said.left_out += 1;
        }
    }
}

impl std::fmt::Debug for Words {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Words").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sentences_are_limited_per_window_and_the_rest_counted() {
        let lines = Arc::new(Mutex::new(Vec::new()));
        let mine = Arc::clone(&lines);
        let words = Words::new(Arc::new(move |line: &str| {
            mine.lock().push(line.to_owned());
        }));
        let start = Instant::now();
        for _ in 0..1000 {
            words.say_at("broke", start);
        }
        assert_eq!(lines.lock().len(), WORDS_MAX as usize);
        words.say_at("broke", start + WINDOW);
        let lines = lines.lock();
        assert_eq!(lines.len(), WORDS_MAX as usize + 2);
        assert!(lines[WORDS_MAX as usize].starts_with("970 more"));
    }
}
