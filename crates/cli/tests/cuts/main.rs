//! Power cuts under file systems of the kernel. A file system lives once on a volume whose medium is recorded; then the medium
//! after any cut is built from the tape, as often as wanted: everything that a sync covered, and any part of the rest, in any
//! order, torn at sectors.
//!
//! After each cut the volume's check finds nothing, the volume opens, the kernel mounts it, every byte synced before the cut is
//! there, an application has every transaction that it acknowledged, and the file system's own check finds nothing. Snapshots
//! are taken during the life: each exists from its acknowledgement on, and its contents pass the same checks. One in four of
//! these lives is recorded as well, and cut again: in recovery, in the file system's replay, in the clean stop.
//!
//! `CUTS=n` sets the number of cuts (16 by default, 40 in the long set), `SEED=n` the first recording, `FS=xfs,btrfs` and `PROPERTIES=usual,all`
//! select some, `APPS=sqlite,postgresql` some applications, `CUTS_EACH=n` sets the cuts of a recording, and `KEEP=DIR` keeps
//! the medium of a failure. A seed fixes what is done and where it is cut, but not when the kernel writes: a failure repeats
//! from its kept medium, or after a few runs.
//!
//! Two faults that the kernel has without a volume, too, are reported and counted and do not fail the test: a journal that was
//! wrong when it was sent (`sent.rs` proves it each time), and names that reappear on a btrfs (`Recording::check`).
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test may panic")]

mod application;
#[path = "../common/mod.rs"]
mod common;
mod history;
mod load;
mod model;
mod recording;
mod sent;
mod world;

use application::{APPLICATIONS, Application};
use common::{can_attach, skipped};
use recording::{Complaint, Places, Recording, Sure};
use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;
use vellum_core::addr::Pba;
use vellum_medium::fault::{CutReport, Cuts, Rng};
use vellum_medium::{Medium, MemoryMedium};
use world::{FILE_SYSTEMS, FileSystem, Properties};

/// True after Ctrl-C: the life being cut ends as usual, so that no mount and no loop device stays.
static INTERRUPTED: AtomicBool = AtomicBool::new(false);

extern "C" fn interrupted(_: libc::c_int) {
    INTERRUPTED.store(true, Ordering::Relaxed);
}

fn env(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

fn number(name: &str) -> Option<u64> {
    env(name).map(|value| value.parse().expect(name))
}

/// Returns those whose name is selected.
fn chosen<T: Copy>(variable: &str, all: &[T], name: impl Fn(&T) -> &'static str) -> Vec<T> {
    let Some(asked) = env(variable) else {
        return all.to_vec();
    };
    let named = |word: &str| {
        let found = all.iter().find(|one| name(one) == word);
        *found.unwrap_or_else(|| {
            let all: Vec<_> = all.iter().map(&name).collect();
            panic!("{variable}={word}: it is none of {all:?}")
        })
    };
    asked.split(',').map(named).collect()
}

/// What was done so far.
#[derive(Default)]
struct Tally {
    cuts: usize,
    /// Those cuts that were in a life after a cut.
    again: usize,
    recordings: usize,
    /// The writes that a cut could lose, those lost and those torn.
    writes: [u64; 3],
    sure: Sure,
    /// Cuts after which the kernel failed because of what it had written itself.
    kernels: usize,
    failures: Vec<String>,
}

impl Tally {
    fn lost(&mut self, report: CutReport) {
        let more = [report.writes, report.dropped, report.torn];
        for (all, more) in self.writes.iter_mut().zip(more) {
            *all += more;
        }
    }

    fn line(&self) -> String {
        let [writes, lost, torn] = self.writes;
        format!(
            "{} cuts ({} of them in a life after a cut) of {} recordings; {writes} writes in flight, \
             {lost} of them lost, {torn} torn; {} synced files, {} transactions and {} snapshots held; \
             the kernel's own: {} journals, {} names of btrfs; {} complaints",
            self.cuts,
            self.again,
            self.recordings,
            self.sure.files,
            self.sure.transactions,
            self.sure.snapshots,
            self.kernels,
            self.sure.back,
            self.failures.len()
        )
    }
}

/// One trial: a medium as a cut leaves it.
struct Trial<'a> {
    recording: &'a Recording,
    places: &'a Places,
    /// The cut of the recording, which determines what must be there.
    cut: usize,
    told: String,
}

impl Trial<'_> {
    fn run(&self, medium: &MemoryMedium, tally: &mut Tally) -> Option<vellum_medium::fault::Tape> {
        tally.cuts += 1;
        match self.recording.live_on(medium, self.cut, self.places) {
            Ok((tape, sure)) => {
                tally.sure += sure;
                Some(tape)
            }
            Err(Complaint::Kernels(why)) => {
                println!("KERNEL {}: {why}", self.told);
                tally.kernels += 1;
                None
            }
            Err(Complaint::Ours(error)) => {
                let failure = format!("{}: {error}", self.told);
                println!("COMPLAINT {failure}");
                if let Some(folder) = env("KEEP") {
                    keep(medium, &folder, &self.told);
                }
                tally.failures.push(failure);
                None
            }
        }
    }
}

/// Writes a medium to a file that `vellum check` reads.
fn keep(medium: &MemoryMedium, folder: &str, told: &str) {
    fs::create_dir_all(folder).unwrap();
    let name = told.replace([' ', ','], "_");
    let file = fs::File::create(format!("{folder}/{name}")).unwrap();
    file.set_len(medium.blocks() * 4096).unwrap();
    let mut block = [0; 4096];
    for at in 0..medium.blocks() {
        medium.read(Pba(at), &mut block).unwrap();
        if block.iter().any(|byte| *byte != 0) {
            file.write_all_at(&block, at * 4096).unwrap();
        }
    }
}

/// Cuts a recording `count` times.
fn cut(recording: &Recording, seed: u64, count: usize, places: &Places, tally: &mut Tally) {
    let (file_system, properties) = recording.world;
    let of = format!("{} {}", file_system.name, properties.name());
    let mut rng = Rng::new(seed);
    let blank = MemoryMedium::new(file_system.blocks);
    let mut cuts = Cuts::new(&blank, &recording.tape, seed);
    let end = tally.cuts + count;
    for instant in recording.instants(count, &mut rng) {
        if tally.cuts >= end || tally.failures.len() > 4 {
            return;
        }
        cuts.advance_to(instant);
        let by = rng.bits() >> 32;
        let (medium, report) = cuts.cut(by);
        tally.lost(report);
        let mut trial = Trial {
            recording,
            places,
            cut: instant,
            told: format!("{of} seed {seed} instant {instant} by {by}"),
        };
        let Some(tape) = trial.run(&medium, tally) else {
            continue;
        };
        if !rng.chance(1, 4) {
            continue;
        }
        let told = trial.told.clone();
        let mut again = Cuts::new(&medium, &tape, by);
        let mut instants: Vec<_> = (0..2)
            .map(|_| rng.below(tape.len() as u64 + 1) as usize)
            .collect();
        instants.sort_unstable();
        for instant in instants {
            again.advance_to(instant);
            let by = rng.bits() >> 32;
            trial.told = format!("{told} and then instant {instant} by {by}");
            tally.again += 1;
            let (medium, report) = again.cut(by);
            tally.lost(report);
            trial.run(&medium, tally);
        }
    }
}

/// Returns what is cut: each file system with the first properties, then with the next.
fn worlds() -> Vec<(FileSystem, Properties)> {
    let mut file_systems = chosen("FS", &FILE_SYSTEMS, |one| one.name);
    file_systems.retain(|one| {
        let is_here = one.is_here();
        if !is_here {
            skipped(format_args!(
                "{}: this machine has not its programs",
                one.name
            ));
        }
        is_here
    });
    let with = |properties: Properties| {
        let suit = file_systems.iter().filter(move |one| properties.suits(one));
        suit.map(move |one| (*one, properties))
    };
    let properties = chosen("PROPERTIES", &Properties::ALL, |one| one.name());
    properties.into_iter().flat_map(with).collect()
}

/// Records one life, and cuts it.
fn round(
    world: (FileSystem, Properties),
    application: Application,
    seed: u64,
    places: &Places,
    tally: &mut Tally,
) {
    let mut rng = Rng::new(seed);
    // Short lives are cut before the volume has been written once, long ones while it collects.
    let usual = 200 << rng.below(4);
    let operations = number("OPERATIONS").unwrap_or(usual) as usize;
    let modes = application.modes;
    let mode = modes[rng.below(modes.len() as u64) as usize];
    let each = number("CUTS_EACH").unwrap_or(8) as usize;
    let (start, before) = (Instant::now(), tally.cuts);
    let recording = Recording::make(world, (application, mode), (seed, operations), places);
    let recorded = start.elapsed();
    tally.recordings += 1;
    cut(&recording, seed, each, places, tally);
    println!(
        "seed {seed}: {} {} {} {mode}, {} instants recorded in {:.1} s, {}; {} cuts in {:.1} s; so far {}",
        world.0.name,
        world.1.name(),
        application.name,
        recording.tape.len(),
        recorded.as_secs_f32(),
        recording.journal(),
        tally.cuts - before,
        (start.elapsed() - recorded).as_secs_f32(),
        tally.line()
    );
}

#[test]
fn nothing_synced_is_lost_by_a_power_cut_under_any_file_system() {
    if !can_attach("nothing_synced_is_lost_by_a_power_cut_under_any_file_system") {
        return;
    }
    let (mut worlds, places) = (worlds(), Places::new());
    let mut applications = chosen("APPS", &APPLICATIONS, |one| one.name);
    applications.retain(Application::is_here);
    worlds.retain(|(file_system, _)| applications.iter().any(|one| one.suits(file_system)));
    assert!(
        !worlds.is_empty(),
        "no application that is asked for is held on one of these file systems"
    );
    let handler = interrupted as extern "C" fn(libc::c_int);
    // SAFETY: the handler only stores into an atomic.
    unsafe { libc::signal(libc::SIGINT, handler as libc::sighandler_t) };
    let is_long = std::env::var_os("VELLUM_LONG").is_some();
    let all = number("CUTS").unwrap_or(if is_long { 40 } else { 16 }) as usize;
    let first = number("SEED").unwrap_or(0);
    let mut tallies: BTreeMap<_, Tally> = BTreeMap::new();
    let began = Instant::now();
    for seed in first.. {
        let of = seed as usize;
        let world = worlds[of % worlds.len()];
        // Each application meets each world, even if there are as many of the one as of the other.
        let suited: Vec<_> = applications
            .iter()
            .filter(|one| one.suits(&world.0))
            .collect();
        let application = *suited[(of + of / worlds.len()) % suited.len()];
        let tally = tallies
            .entry((world.0.name, world.1.name(), application.name))
            .or_default();
        round(world, application, seed, &places, tally);
        let done: usize = tallies.values().map(|tally| tally.cuts).sum();
        let is_failing = tallies.values().any(|tally| tally.failures.len() > 4);
        if done >= all || is_failing || INTERRUPTED.load(Ordering::Relaxed) {
            break;
        }
    }
    for ((file_system, properties, application), tally) in &tallies {
        println!("{file_system} {properties} {application}: {}", tally.line());
    }
    let minutes = began.elapsed().as_secs_f64() / 60.0;
    let done: usize = tallies.values().map(|tally| tally.cuts).sum();
    let rate = done as f64 / minutes;
    println!("{done} cuts in {minutes:.1} minutes: {rate:.0} a minute");
    let failures = tallies.into_values().flat_map(|tally| tally.failures);
    let failures: Vec<_> = failures.collect();
    assert!(
        failures.is_empty(),
        "{} complaints: {failures:#?}",
        failures.len()
    );
}
