//! Runs that are watched: how far they are, and Ctrl-C, which ends them with what they have.

use crate::signals::Stop;
use anyhow::{Result, bail};
use indicatif::{MultiProgress, ProgressBar, ProgressStyle};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;
use vellum_lab::outcome::Outcome;
use vellum_lab::policy::Policy;
use vellum_lab::progress::Watch;

/// How often the bars are drawn.
const EVERY: Duration = Duration::from_millis(150);

/// Does `work` while a bar a policy shows how far it is. A signal ends the runs; what they have is kept and marked.
pub fn watched<R>(policies: &[Policy], work: impl FnOnce(&[Watch]) -> R) -> Result<R> {
    let stop = Stop::on_signals(false)?;
    let watches: Vec<Watch> = policies.iter().map(|_| Watch::default()).collect();
    let over = AtomicBool::new(false);
    let result = std::thread::scope(|scope| {
        scope.spawn(|| draw(policies, &watches, &stop, &over));
        let result = work(&watches);
        over.store(true, Ordering::Relaxed);
        result
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
        let result = work(&watch, &done);
        over.store(true, Ordering::Relaxed);
        result
    });
    Ok(result)
}

/// Reads a trace while a bar shows how much of the file is read, and how long it will still take. Nothing is
/// shown of what takes no time.
pub fn reading<R: Send>(path: &Path, work: impl FnOnce(&Watch) -> R) -> R {
    let watch = Watch::default();
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| draw_reading(path, &watch, &over));
        let result = work(&watch);
        over.store(true, Ordering::Relaxed);
        result
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

/// Fails when a run was ended: whoever reads the exit code should know, too.
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

/// What is done by itself, and nobody knows how long it takes.
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
