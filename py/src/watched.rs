//! Runs long work while the interpreter goes on.

use pyo3::prelude::*;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;
use vellum_lab::progress::Watch;

/// How often Ctrl-C is checked and progress is reported.
const EVERY: Duration = Duration::from_millis(100);

/// Does `work` on a separate thread while other Python threads run. `heed` is called now and then. Its exception, or a signal's, stops what
/// is watched, and is raised. `interrupt` is called then, and at each further signal: a Python function that `work` waits for may never return.
pub fn watched<R: Send>(
    py: Python<'_>,
    watches: &[Watch],
    heed: impl Fn() -> PyResult<()>,
    interrupt: impl Fn() -> PyResult<()>,
    work: impl FnOnce() -> R + Send,
) -> PyResult<R> {
    let over = &AtomicBool::new(false);
    let asker = thread::current();
    thread::scope(|scope| {
        let worker = scope.spawn(move || {
            let _ended = Ended { over, asker };
            work()
        });
        let mut heard = Ok(());
        while !over.load(Ordering::Acquire) {
            py.detach(|| thread::park_timeout(EVERY));
            let is_on = heard.is_ok();
            let now = py.check_signals();
            let now = now.and_then(|()| if is_on { heed() } else { Ok(()) });
            if now.is_err() {
                watches.iter().for_each(Watch::stop);
                // The caller asked for the end, and not for this, should it fail.
                interrupt().ok();
                heard = now;
            }
        }
        // The work is over, so this does not block Python.
        let result = worker.join();
        heard?;
        result.map_err(|panic| std::panic::resume_unwind(panic))
    })
}

/// Reports that the work is over, even if it panics.
struct Ended<'a> {
    over: &'a AtomicBool,
    asker: thread::Thread,
}

impl Drop for Ended<'_> {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Release);
        self.asker.unpark();
    }
}

/// Calls `progress` with the numbers of served requests and of all requests.
pub fn tell(watches: &[Watch], progress: Option<&Bound<'_, PyAny>>) -> PyResult<()> {
    let Some(progress) = progress else {
        return Ok(());
    };
    let (mut done, mut all) = (0, 0);
    for watch in watches {
        let (of_one, all_of_one) = watch.seen();
        done += of_one.min(all_of_one);
        all += all_of_one;
    }
    progress.call1((done, all)).map(|_| ())
}
