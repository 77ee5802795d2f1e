//! The user-written parts of a scenario: policies, a sweep's axes, zones, drives. Any text yields one of these or an error.

use vellum_lab::drives::DriveFile;
use vellum_lab::fio_job::FioFile;
use vellum_lab::jobs::Asking;
use vellum_lab::policy::Policy;
use vellum_lab::rng::Rng;
use vellum_lab::sim::Pace;
use vellum_lab::sweep::{self, Axis};
use vellum_lab::trace::Op;
use vellum_lab::zones::Zones;

/// A policy that is accepted is the same when it is parsed from its own name.
pub fn policy(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else {
        return;
    };
    match text.parse::<Policy>() {
        Ok(policy) => {
            let over = policy.over_provisioning.unwrap_or(20);
            assert!((20..=10_000).contains(&over), "{text:?}");
            assert_eq!(policy.to_string().parse(), Ok(policy), "{text:?}: {policy}");
        }
        // Errors are shown to users: their length is bounded, whatever the input.
        Err(error) => assert!(error.to_string().len() < 1000),
    }
}

/// One axis a line: their grid lies within its bounds.
pub fn axes(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else {
        return;
    };
    let axes: Vec<Axis> = text.lines().filter_map(|line| line.parse().ok()).collect();
    let runs = axes.iter().map(|axis| axis.values.len() as u128);
    let runs = runs.fold(1u128, u128::saturating_mul);
    if let Ok(points) = sweep::points(&axes) {
        assert_eq!(points.len() as u128, runs);
        assert!(points.iter().all(|point| point.len() == axes.len()));
    }
}

/// Zones of a load that are accepted are the same when parsed again, and no place is outside the volume.
pub fn zones(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else {
        return;
    };
    match text.parse::<Zones>() {
        Ok(zones) => {
            assert_eq!(zones.to_string().parse().as_ref(), Ok(&zones), "{text:?}");
            let mut rng = Rng::new(1);
            for places in [1, 2, 999, 1 << 40] {
                for read in [false, true].repeat(20) {
                    assert!(zones.draw(&mut rng, places, read) < places, "{text:?}");
                }
            }
        }
        Err(error) => assert!(error.to_string().len() < 1000),
    }
}

/// A drive file that is accepted is the same drive when written and read again.
pub fn drive(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else {
        return;
    };
    match DriveFile::read("fuzz", text) {
        Ok(drive) => assert_eq!(DriveFile::read("fuzz", &drive.written()), Ok(drive)),
        Err(error) => {
            assert!(error.to_string().len() < 2000, "{error}");
            assert!(error.line <= text.matches('\n').count() + 1, "{error}");
        }
    }
}

/// A job file of fio that is accepted is a load that can be run.
pub fn fio(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else {
        return;
    };
    let file = match FioFile::read(text) {
        Ok(file) => file,
        Err(error) => return assert!(error.to_string().len() < 1000),
    };
    if let Some((load, pace)) = file.one() {
        let depth = match pace {
            Pace::Closed { depth } | Pace::Elastic { depth, .. } | Pace::Working { depth } => depth,
            Pace::Open => 0,
        };
        assert!((1..=65_536).contains(&depth), "{text:?}");
        assert!(load.requests > 0 && load.request_blocks > 0, "{text:?}");
        let Some(area) = load.area else {
            panic!("{text:?}")
        };
        assert!(area.blocks >= u64::from(load.request_blocks), "{text:?}");
        assert!(load.zeros + load.duplicates <= 100 && load.workload.reads <= 100);
    }
    let jobs = file.jobs();
    assert_ne!(jobs.is_some(), file.one().is_some(), "{text:?}");
    for (at, job) in jobs.iter().flat_map(|jobs| jobs.all()).take(4).enumerate() {
        assert!(
            job.when.depth > 0 && job.zeros + job.duplicates <= 100,
            "{text:?}"
        );
        assert!(job.when.after.iter().all(|other| *other < at), "{text:?}");
        // A job that fits a volume of 4 GiB requests nothing outside its area.
        let Ok(placed) = job.on(1 << 20) else {
            continue;
        };
        assert!(placed.first + placed.blocks <= 1 << 20, "{text:?}");
        for request in Asking::new(job, placed, (1, at as u8), true).take(50) {
            let end = request.lba + u64::from(request.blocks);
            let fits = request.lba >= placed.first && end <= placed.first + placed.blocks;
            assert!(fits || request.op == Op::Flush, "{text:?}");
        }
    }
}
