//! Snapshots taken while a file system is written. Each shows what a cut without losses would leave of what the volume had
//! received by then: what was synced before the snapshot was requested, and nothing that began after it was taken.

use crate::model::When;
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use vellum_device::{SnapshotError, Volume};
use vellum_medium::fault::Rng;

/// The most snapshots at once.
const AT_ONCE: usize = 4;

/// A snapshot that was taken.
#[derive(Clone, Debug)]
pub struct Taken {
    pub name: String,
    /// What it may show.
    pub when: When,
    /// The instant from which it may be deleted.
    pub leaves: Option<usize>,
}

impl Taken {
    /// True if it must be there after a cut.
    pub fn is_there(&self, cut: usize) -> bool {
        self.when.until <= cut && self.leaves.is_none_or(|leaves| leaves > cut)
    }
}

/// Takes and deletes snapshots, until a file `stop` appears.
pub fn keep(volume: &Volume, stop: &Path, seed: u64, now: &dyn Fn() -> usize) -> Vec<Taken> {
    let mut rng = Rng::new(seed);
    let mut taken: Vec<Taken> = Vec::new();
    while !stop.exists() {
        std::thread::sleep(Duration::from_millis(20 + rng.below(200)));
        let there: Vec<_> = (0..taken.len())
            .filter(|&index| taken[index].leaves.is_none())
            .collect();
        if there.len() >= AT_ONCE {
            let one = &mut taken[there[rng.below(there.len() as u64) as usize]];
            one.leaves = Some(now());
            volume.delete_snapshot(&one.name).unwrap();
        }
        let (name, sure) = (format!("s{}", taken.len()), now());
        let time = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
        match volume.take_snapshot(&name, time.as_secs()) {
            Ok(()) => {
                let when = When { sure, until: now() };
                let leaves = None;
                taken.push(Taken { name, when, leaves });
            }
            Err(SnapshotError::NoRoom(_)) => {}
            Err(error) => panic!("{name}: {error}"),
        }
    }
    taken
}
