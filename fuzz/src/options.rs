//! What a scenario is made of, as people write it: policies, a sweep's axes, zones, drives. Whatever the text, one of these or an error.

use vellum_lab::drives::DriveFile;
use vellum_lab::policy::Policy;
use vellum_lab::rng::Rng;
use vellum_lab::sweep::{self, Axis};
use vellum_lab::zones::Zones;

/// A policy that is taken is the same when it is read again from its own name.
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
        // Errors are shown: they are of bounded length, whatever they are about.
        Err(error) => assert!(error.to_string().len() < 1000),
    }
}

/// A line an axis: their grid, within its bounds.
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

/// Zones of a load: those that are taken are the same when they are read again, and no place is outside the volume.
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

/// A drive's file: what is taken is the same drive when it is written and read again.
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
