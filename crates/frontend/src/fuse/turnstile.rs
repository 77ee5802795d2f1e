//! A turnstile after each request of the kernel. Once closed, it keeps every thread that has handled a request from reading another.
//! Then all requests read so far get answered, the kernel keeps the rest, and another process may continue with the connection.

use parking_lot::{Condvar, Mutex};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// How often to check whether all requests are answered.
const LOOK: Duration = Duration::from_micros(200);

/// A turnstile, initially open.
#[derive(Debug, Default)]
pub struct Turnstile {
    state: Mutex<State>,
    opened: Condvar,
    /// Requests that the device, or a thread of our own, has yet to answer.
    unanswered: AtomicUsize,
}

#[derive(Debug, Default)]
struct State {
    closed: bool,
    /// Threads that wait at the turnstile.
    waiting: usize,
}

/// Held while a thread handles a request. When dropped, the thread waits if the turnstile is closed.
pub struct Turn<'a>(&'a Turnstile);

/// Held until a request handed on is answered.
pub struct Unanswered(Arc<Turnstile>);

impl Turnstile {
    /// Must be taken before anything else in a request, so that it is dropped last.
    pub fn turn(&self) -> Turn<'_> {
        Turn(self)
    }

    /// Marks a request that is answered after its turn ends.
    pub fn unanswered(self: &Arc<Self>) -> Unanswered {
        self.unanswered.fetch_add(1, Ordering::SeqCst);
        Unanswered(Arc::clone(self))
    }

    /// Closes the turnstile, and waits until this many threads wait there and all requests are answered. If that takes too long, it
    /// opens again. A thread that waits for the kernel reaches the turnstile only at its next request; `ask` makes the kernel send
    /// one, and may be called often.
    pub fn close(
        self: &Arc<Self>,
        threads: usize,
        patience: Duration,
        ask: impl Fn() + Send + 'static,
    ) -> std::io::Result<bool> {
        self.state.lock().closed = true;
        let began = Instant::now();
        let turnstile = Arc::clone(self);
        let asking = std::thread::Builder::new()
            .name("fuse-ask".into())
            .spawn(move || {
                while turnstile.is_closed() && turnstile.waiting() < threads {
                    ask();
                }
            });
        if let Err(error) = asking {
            self.open();
            return Err(error);
        }
        // Check the threads first: everything they handed on is counted by then.
        while self.waiting() < threads || self.unanswered.load(Ordering::SeqCst) > 0 {
            if began.elapsed() > patience {
                self.open();
                return Ok(false);
            }
            std::thread::sleep(LOOK);
        }
        Ok(true)
    }

    /// Lets all threads continue.
    pub fn open(&self) {
        self.state.lock().closed = false;
        self.opened.notify_all();
    }

    fn is_closed(&self) -> bool {
        self.state.lock().closed
    }

    fn waiting(&self) -> usize {
        self.state.lock().waiting
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        let mut state = self.0.state.lock();
        state.waiting += 1;
        while state.closed {
            self.0.opened.wait(&mut state);
        }
        state.waiting -= 1;
    }
}

impl Drop for Unanswered {
    fn drop(&mut self) {
        self.0.unanswered.fetch_sub(1, Ordering::SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_closes_when_its_threads_wait_and_all_is_answered() {
        let turnstile = Arc::new(Turnstile::default());
        let later = turnstile.unanswered();
        let reader = std::thread::spawn({
            let turnstile = Arc::clone(&turnstile);
            move || {
                for _ in 0..10_000 {
                    drop(turnstile.turn());
                }
                // No further requests arrive on their own.
                std::thread::sleep(Duration::from_millis(20));
                drop(turnstile.turn());
            }
        });
        let patience = Duration::from_millis(300);
        assert!(
            !turnstile
                .close(1, patience, std::thread::yield_now)
                .unwrap()
        );
        drop(later);
        reader.join().unwrap();
        assert!(
            !turnstile
                .close(1, patience, std::thread::yield_now)
                .unwrap()
        );
        let asked = Arc::clone(&turnstile);
        let ask = move || {
            let turnstile = Arc::clone(&asked);
            let one = std::thread::spawn(move || drop(turnstile.turn()));
            std::thread::sleep(Duration::from_millis(20));
            drop(one);
        };
        assert!(turnstile.close(2, Duration::from_secs(60), ask).unwrap());
        turnstile.open();
    }
}
