//! Fresh seeds for as many seconds as `VELLUM_SOAK` says, from `VELLUM_FROM` on or from the clock: `make soak`. There are no digests,
//! because a volume has threads.

use std::ops::Range;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// These seeds, or fresh ones for one of `parts` of the seconds to soak. The first of them is printed.
pub fn seeds(test: &str, fixed: Range<u64>, parts: u64) -> impl Iterator<Item = u64> {
    let seconds: Option<u64> = std::env::var("VELLUM_SOAK")
        .ok()
        .map(|seconds| seconds.parse().unwrap());
    let until = seconds.map(|seconds| Instant::now() + Duration::from_secs(seconds) / parts as u32);
    let all = match until {
        None => fixed,
        Some(_) => {
            let from = std::env::var("VELLUM_FROM").ok();
            let clock = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
            let first = from.map_or(clock.as_micros() as u64, |from| from.parse().unwrap());
            println!("seeds from {first} on: {test}");
            first..u64::MAX
        }
    };
    all.take_while(move |_| until.is_none_or(|until| Instant::now() < until))
}

/// Says which seed it was if a test fails with it.
pub struct Tells(pub u64);

impl Drop for Tells {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("replay: VELLUM_FROM={} VELLUM_SOAK=1", self.0);
        }
    }
}
