//! Work that takes long, beside an interpreter that goes on.

use pyo3::prelude::*;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;
use vellum_lab::progress::Watch;

/// How often Python is asked whether somebody pressed Ctrl-C, and told how far it is.
const EVERY: Duration = Duration::from_millis(100);

/// Does `work` on a thread of its own. Meanwhile other Python threads run. A signal, or an exception of `heed`, which is called
/// now and then, ends what is watched, and is raised.
pub fn watched<R: Send>(
    py: Python<'_>,
    watches: &[Watch],
    heed: impl Fn() -> PyResult<()>,
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
            if heard.is_ok() {
                heard = py.check_signals().and_then(|()| heed());
                if heard.is_err() {
                    watches.iter().for_each(Watch::stop);
                }
            }
        }
        // It holds nothing of Python's any more.
        let result = worker.join();
        heard?;
        result.map_err(|panic| std::panic::resume_unwind(panic))
    })
}

/// Says that the work is over, also when it panics.
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

/// Calls `progress` with the requests that were served, and how many there are.
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
