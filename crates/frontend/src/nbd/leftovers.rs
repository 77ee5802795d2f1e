//! Memory for replies that clients do not take.
//!
//! A reply that its client does not take soon moves from the shared frames to memory of the server's. Each connection uses little
//! of it, but there can be many, so all share a limited amount. When it runs out, the connections that have kept theirs longest
//! are cut off. A client that reads its replies, however slowly, is not among the first.

use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Cuts off a connection. It must not wait or take a session's lock.
pub type Cut = Arc<dyn Fn() + Send + Sync>;

/// The shared memory.
pub struct Leftovers {
    bytes_max: u64,
    kept: Mutex<Kept>,
}

#[derive(Default)]
struct Kept {
    /// The number of the next stay.
    next: u64,
    /// In the order in which they started.
    stays: BTreeMap<u64, (u64, Cut)>,
}

/// A share of it, given back when dropped.
#[derive(Debug)]
pub struct Stay {
    leftovers: Arc<Leftovers>,
    number: u64,
}

impl Leftovers {
    /// Makes room for this many bytes.
    pub fn new(bytes_max: u64) -> Arc<Self> {
        Arc::new(Self {
            bytes_max,
            kept: Mutex::default(),
        })
    }

    /// Takes this many bytes for a connection. If that exceeds the limit, the connections with the oldest stays are cut off;
    /// their memory is given back within moments.
    pub fn take(self: &Arc<Self>, bytes: u64, cut: Cut) -> Stay {
        let mut kept = self.kept.lock();
        let number = kept.next;
        kept.next += 1;
        kept.stays.insert(number, (bytes, cut));
        let all: u64 = kept.stays.values().map(|(bytes, _)| bytes).sum();
        let mut over = all.saturating_sub(self.bytes_max);
        let mut cuts = Vec::new();
        for (bytes, cut) in kept.stays.values() {
            if over == 0 {
                break;
            }
            cuts.push(Arc::clone(cut));
            over = over.saturating_sub(*bytes);
        }
        drop(kept);
        // Without the lock: dropping the last reference to a session gives back its memory.
        cuts.iter().for_each(|cut| cut());
        Stay {
            leftovers: Arc::clone(self),
            number,
        }
    }
}

#[cfg(test)]
impl Leftovers {
    /// The bytes that are taken.
    pub fn bytes(&self) -> u64 {
        self.kept
            .lock()
            .stays
            .values()
            .map(|(bytes, _)| bytes)
            .sum()
    }
}

impl Drop for Stay {
    fn drop(&mut self) {
        self.leftovers.kept.lock().stays.remove(&self.number);
    }
}

impl std::fmt::Debug for Leftovers {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Leftovers")
            .field("bytes_max", &self.bytes_max)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::channel;

    #[test]
    fn the_connection_that_has_kept_memory_longest_is_cut_off_first() {
        let leftovers = Leftovers::new(100);
        let (told, cut) = channel();
        let take = |name: &'static str, bytes| {
            let told = told.clone();
            leftovers.take(bytes, Arc::new(move || told.send(name).unwrap()))
        };
        let a = take("a", 60);
        let _b = take("b", 40);
        assert!(cut.try_recv().is_err());
        let _c = take("c", 1);
        assert_eq!(cut.try_iter().collect::<Vec<_>>(), ["a"]);
        drop(a);
        let _d = take("d", 59);
        assert!(cut.try_recv().is_err(), "as much was given back");
        let _e = take("e", 41);
        assert_eq!(cut.try_iter().collect::<Vec<_>>(), ["b", "c"]);
    }
}
