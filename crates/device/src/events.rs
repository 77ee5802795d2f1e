//! What went wrong lately: each kind of trouble once, with how often it happened.

use crate::limits::EVENTS;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};
use vellum_medium::MediumError;

/// A kind of trouble, and how often it happened.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Event {
    /// What failed: `"read"`, `"sync"`, `"checksum"`, ...
    pub kind: String,
    /// The last one, in words.
    pub message: String,
    /// How often.
    pub count: u64,
    /// When it first happened, in seconds since 1970.
    pub first_at_s: u64,
    /// When it last happened, in seconds since 1970.
    pub last_at_s: u64,
}

/// Called when a kind of trouble first happens, and whenever a thin volume fills up to a level. Runs on the volume's threads, so
/// it must not block.
pub type OnEvent = Arc<dyn Fn(&Event) + Send + Sync>;

/// The last kinds of trouble, bounded.
#[derive(Default)]
pub(crate) struct Events {
    ring: Mutex<VecDeque<Event>>,
    sink: Option<OnEvent>,
}

impl Events {
    pub fn new(sink: Option<OnEvent>) -> Self {
        Self {
            ring: Mutex::default(),
            sink,
        }
    }

    pub fn medium(&self, error: &MediumError) {
        self.add(
            &format!("{}: {:?}", error.operation, error.source.kind()),
            error.to_string(),
        );
    }

    /// Reports a kind of trouble when it first happens.
    pub fn add(&self, kind: &str, message: String) {
        self.record(kind, message, false);
    }

    /// Reports trouble each time, for kinds that seldom happen.
    pub fn tell(&self, kind: &str, message: String) {
        self.record(kind, message, true);
    }

    fn record(&self, kind: &str, message: String, each_time: bool) {
        let now = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .map_or(0, |since| since.as_secs());
        let mut ring = self.ring.lock();
        if let Some(known) = ring.iter_mut().find(|event| event.kind == kind) {
            known.count += 1;
            (known.message, known.last_at_s) = (message, now);
            if each_time && let Some(sink) = &self.sink {
                let event = known.clone();
                drop(ring);
                sink(&event);
            }
            return;
        }
        if ring.len() == EVENTS {
            ring.pop_front();
        }
        let event = Event {
            kind: kind.to_owned(),
            message,
            count: 1,
            first_at_s: now,
            last_at_s: now,
        };
        ring.push_back(event.clone());
        drop(ring);
        if let Some(sink) = &self.sink {
            sink(&event);
        }
    }

    pub fn list(&self) -> Vec<Event> {
        self.ring.lock().iter().cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU32, Ordering};

    #[test]
    fn each_kind_is_told_once_and_counted() {
        let told = Arc::new(AtomicU32::new(0));
        let seen = Arc::clone(&told);
        let events = Events::new(Some(Arc::new(move |_| {
            seen.fetch_add(1, Ordering::Relaxed);
        })));
        for n in 0..5 {
            events.add("read", format!("block {n}"));
        }
        assert_eq!(told.load(Ordering::Relaxed), 1);
        events.tell("read", "block 4".to_owned());
        assert_eq!(told.load(Ordering::Relaxed), 2);
        let list = events.list();
        assert_eq!(
            (list.len(), list[0].count, list[0].message.as_str()),
            (1, 6, "block 4")
        );
        for n in 0..2 * EVENTS {
            events.add(&n.to_string(), String::new());
        }
        assert_eq!(events.list().len(), EVENTS);
    }
}
