//! How fast counters grow: the difference between two looks.

use std::collections::BTreeMap;
use std::time::Duration;
use vellum_ops::view::{Counted, View};

/// A volume's activity per second.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Pace {
    /// Bytes that clients write.
    pub clients: f64,
    /// Bytes that the drive receives.
    pub medium: f64,
    /// Flushes.
    pub flushes: f64,
}

/// The activity of all volumes, by UUID.
#[derive(Default)]
pub struct Paces {
    before: BTreeMap<String, (Duration, [u64; 3])>,
    now: BTreeMap<String, Pace>,
}

impl Paces {
    /// Records a look, taken this long after the beginning.
    pub fn note(&mut self, view: &View, at: Duration) {
        self.now.clear();
        let mut seen = BTreeMap::new();
        for volume in &view.volumes {
            let Some(counted) = &volume.counted else {
                continue;
            };
            let counts = counts(counted);
            if let Some((before, were)) = self.before.get(&volume.uuid) {
                let seconds = at.saturating_sub(*before).as_secs_f64();
                if let Some(pace) = pace(*were, counts, seconds) {
                    self.now.insert(volume.uuid.clone(), pace);
                }
            }
            seen.insert(volume.uuid.clone(), (at, counts));
        }
        self.before = seen;
    }

    /// A volume's activity; `None` until there were two looks.
    pub fn of(&self, uuid: &str) -> Option<Pace> {
        self.now.get(uuid).copied()
    }
}

fn counts(counted: &Counted) -> [u64; 3] {
    let flushes = counted.flushes.count;
    [counted.clients_written, counted.medium_written, flushes]
}

/// `None` if a server was restarted in between.
fn pace(before: [u64; 3], now: [u64; 3], seconds: f64) -> Option<Pace> {
    let grown = |at: usize| Some(now[at].checked_sub(before[at])? as f64 / seconds);
    let is_later = seconds > 0.0;
    is_later.then_some(Pace {
        clients: grown(0)?,
        medium: grown(1)?,
        flushes: grown(2)?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pace_is_per_second_and_of_one_server() {
        let told = pace([0, 10, 1], [500, 20, 2], 5.0);
        let expected = Pace {
            clients: 100.0,
            medium: 2.0,
            flushes: 0.2,
        };
        assert_eq!(told, Some(expected));
        assert_eq!(pace([5, 0, 0], [4, 9, 9], 1.0), None);
        assert_eq!(pace([0, 0, 0], [4, 9, 9], 0.0), None);
    }
}
