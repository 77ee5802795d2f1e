//! Writes that found no room on the medium: kept, and retried from time to time (promise 7).

use crate::addr::{EffectId, Nanos};
use crate::limits::RETRY_FULL_AFTER_NANOS;
use alloc::vec::Vec;

/// The held writes of a volume.
#[derive(Debug, Default)]
pub struct HeldWrites {
    /// Not in flight.
    kept: Vec<EffectId>,
    /// In flight again: until one of them returns it is not known whether there is room.
    tried: Vec<EffectId>,
    try_at: Option<Nanos>,
}

impl HeldWrites {
    /// Holds a write that found no room.
    pub fn hold(&mut self, id: EffectId, now: Nanos) {
        self.tried.retain(|&tried| tried != id);
        self.kept.push(id);
        self.try_at = Some(Nanos(now.0 + RETRY_FULL_AFTER_NANOS));
    }

    /// Notes that a held write is on the medium.
    pub fn written(&mut self, id: EffectId) {
        self.tried.retain(|&tried| tried != id);
    }

    /// True if any held write has not found room yet. Until it has, nothing new is accepted: new writes would fill the write buffer until
    /// clients could not even be refused.
    pub fn are_there(&self) -> bool {
        !self.kept.is_empty() || !self.tried.is_empty()
    }

    /// The number of held writes not in flight.
    pub fn kept(&self) -> usize {
        self.kept.len()
    }

    /// When to retry them.
    pub fn due(&self) -> Option<Nanos> {
        self.try_at
    }

    /// Takes those due for a retry by now.
    pub fn try_again(&mut self, now: Nanos) -> Vec<EffectId> {
        if self.try_at.is_none_or(|at| now < at) {
            return Vec::new();
        }
        self.try_at = None;
        self.tried.extend(&self.kept);
        core::mem::take(&mut self.kept)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn room_is_known_when_the_retried_writes_are_on_the_medium() {
        let mut held = HeldWrites::default();
        assert!(!held.are_there());
        held.hold(EffectId(3), Nanos(5));
        held.hold(EffectId(4), Nanos(7));
        let due = held.due().unwrap();
        assert_eq!(due, Nanos(7 + RETRY_FULL_AFTER_NANOS));
        assert!(held.try_again(Nanos(due.0 - 1)).is_empty());
        assert_eq!(held.try_again(due), [EffectId(3), EffectId(4)]);
        assert_eq!((held.due(), held.kept()), (None, 0));
        assert!(held.are_there(), "there may be no room yet");
        held.hold(EffectId(4), due);
        held.written(EffectId(3));
        assert_eq!((held.are_there(), held.kept()), (true, 1));
        assert_eq!(held.try_again(held.due().unwrap()), [EffectId(4)]);
        held.written(EffectId(4));
        assert!(!held.are_there());
    }
}
