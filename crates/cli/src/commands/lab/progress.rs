//! Runs with a progress display, and Ctrl-C, which ends them with the results so far.

use crate::signals::Stop;
use anyhow::{Result, bail};
use indicatif::{MultiProgress, ProgressBar, ProgressStyle};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;
use vellum_lab::outcome::Outcome;
use vellum_lab::policy::Policy;
use vellum_lab::progress::Watch;

/// How often the bars are redrawn.
const EVERY: Duration = Duration::from_millis(150);

/// Ends the thread that draws when the work is over. A panic ends it too: the scope waits for this thread.
struct Over<'a>(&'a AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Does `work` while one bar for each policy shows its progress. A signal ends the runs; their results so far are kept and marked.
pub fn watched<R>(policies: &[Policy], work: impl FnOnce(&[Watch]) -> R) -> Result<R> {
    let stop = Stop::on_signals(false)?;
    let watches: Vec<Watch> = policies.iter().map(|_| Watch::default()).collect();
    let over = AtomicBool::new(false);
    let result = std::thread::scope(|scope| {
        scope.spawn(|| draw(policies, &watches, &stop, &over));
        let _over = Over(&over);
        work(&watches)
    });
    Ok(result)
}

/// Does `work` on many runs while a bar shows how many are done. A signal ends them.
pub fn counted<R>(runs: u64, work: impl FnOnce(&Watch, &AtomicU64) -> R) -> Result<R> {
    let stop = Stop::on_signals(false)?;
    let (watch, done) = (Watch::default(), AtomicU64::new(0));
    let over = AtomicBool::new(false);
    let result = std::thread::scope(|scope| {
        scope.spawn(|| {
            let style = ProgressStyle::with_template("{bar:30} {pos} of {len} runs, {eta} left")
                .unwrap_or_else(|_| ProgressStyle::default_bar());
            let bar = ProgressBar::new(runs).with_style(style);
            while !over.load(Ordering::Relaxed) {
                if stop.wait(Some(EVERY)) {
                    watch.stop();
                    std::thread::sleep(EVERY);
                }
                bar.set_position(done.load(Ordering::Relaxed));
            }
            bar.finish_and_clear();
        });
        let _over = Over(&over);
        work(&watch, &done)
    });
    Ok(result)
}

/// Reads a trace while a bar shows how much of the file is read, and how long the rest will take. Short reads show nothing.
pub fn reading<R: Send>(path: &Path, work: impl FnOnce(&Watch) -> R) -> R {
    let watch = Watch::default();
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| draw_reading(path, &watch, &over));
        let _over = Over(&over);
        work(&watch)
    })
}

fn draw_reading(path: &Path, watch: &Watch, over: &AtomicBool) {
    let template = "reading {msg} {bar:30} {bytes}/{total_bytes} {eta:>5} left";
    let style =
        ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar());
    let mut bar = None;
    while !over.load(Ordering::Relaxed) {
        std::thread::park_timeout(EVERY / 5);
        let bar = bar.get_or_insert_with(|| {
            let name = path.file_name().unwrap_or(path.as_os_str());
            ProgressBar::new(0)
                .with_style(style.clone())
                .with_message(name.to_string_lossy().into_owned())
        });
        let (done, all) = watch.seen();
        bar.set_length(all);
        bar.set_position(done.min(all));
    }
    if let Some(bar) = bar {
        bar.finish_and_clear();
    }
}

/// Fails if a run was ended early, so that the exit code shows it too.
pub fn interrupted(outcomes: &[Outcome]) -> Result<()> {
    if outcomes.iter().any(|outcome| outcome.partial) {
        bail!("interrupted: the figures are those of a part of the load");
    }
    Ok(())
}

fn draw(policies: &[Policy], watches: &[Watch], stop: &Stop, over: &AtomicBool) {
    let bars = MultiProgress::new();
    let style = ProgressStyle::with_template("{msg:<40} {bar:30} {percent:>3}% {eta:>5} left")
        .unwrap_or_else(|_| ProgressStyle::default_bar());
    let mut lines: Vec<Option<ProgressBar>> = policies.iter().map(|_| None).collect();
    while !over.load(Ordering::Relaxed) {
        if stop.wait(Some(EVERY)) {
            watches.iter().for_each(Watch::stop);
            std::thread::sleep(EVERY);
        }
        for (at, watch) in watches.iter().enumerate() {
            let (done, all) = watch.seen();
            if all == 0 {
                continue;
            }
            let line = lines[at].get_or_insert_with(|| {
                let bar = bars.add(ProgressBar::new(all).with_style(style.clone()));
                bar.set_message(policies[at].to_string());
                bar
            });
            line.set_position(done.min(all));
            if done >= all {
                line.finish_and_clear();
            }
        }
    }
    let _ = bars.clear();
}

/// A spinner for work of unknown duration.
pub fn spinner(text: String) -> ProgressBar {
    let bar = ProgressBar::new_spinner();
    bar.set_style(
        ProgressStyle::with_template("{spinner} {msg} ({elapsed})")
            .unwrap_or_else(|_| ProgressStyle::default_spinner()),
    );
    bar.set_message(text);
    bar.enable_steady_tick(Duration::from_millis(200));
    bar
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use std::sync::mpsc;

    #[test]
    fn work_that_panics_ends_the_drawing_too() {
        let (tell, told) = mpsc::channel();
        std::thread::spawn(move || {
            let work = || reading(Path::new("trace"), |_| panic!("of the test"));
            let ended: std::thread::Result<()> = catch_unwind(AssertUnwindSafe(work));
            let _ = tell.send(ended.is_err());
        });
        assert_eq!(told.recv_timeout(Duration::from_secs(10)), Ok(true));
    }
}
