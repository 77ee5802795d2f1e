//! Parallel runs on all cores. Each is a separate simulation, so the results are the same on one core.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

/// The number of cores.
#[must_use]
pub fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// Applies `work` to each of `items`, at most `threads` at a time; the results are in their order.
pub fn map<T: Sync, R: Send>(
    items: &[T],
    threads: usize,
    work: impl Fn(usize, &T) -> R + Sync,
) -> Vec<R> {
    let next = AtomicUsize::new(0);
    let results: Mutex<Vec<Option<R>>> = Mutex::new(items.iter().map(|_| None).collect());
    std::thread::scope(|scope| {
        for _ in 0..threads.clamp(1, items.len().max(1)) {
            scope.spawn(|| {
                loop {
                    let at = next.fetch_add(1, Ordering::Relaxed);
                    let Some(item) = items.get(at) else { return };
                    let result = work(at, item);
                    let mut all = results.lock().unwrap_or_else(PoisonError::into_inner);
                    all[at] = Some(result);
                }
            });
        }
    });
    let results = results.into_inner().unwrap_or_else(PoisonError::into_inner);
    results.into_iter().flatten().collect()
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_order_is_that_of_the_items() {
        let items: Vec<u64> = (0..100).collect();
        for threads in [0, 1, 7, 1000] {
            let squares = super::map(&items, threads, |at, &item| at as u64 * item);
            assert_eq!(squares, items.iter().map(|i| i * i).collect::<Vec<_>>());
        }
        assert!(super::map(&[0u8; 0], 4, |_, _| 0).is_empty());
    }
}
