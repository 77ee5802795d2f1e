//! Writes that found no room on the medium: kept, and tried again from time to time (promise 7).

use crate::addr::{EffectId, Nanos};
use crate::limits::RETRY_FULL_AFTER_NANOS;
use alloc::vec::Vec;

/// Those of a volume.
#[derive(Debug, Default)]
pub struct HeldWrites {
    /// Not on their way.
    kept: Vec<EffectId>,
    /// On their way again: whether there is room now is not known before one of them is back.
    tried: Vec<EffectId>,
    try_at: Option<Nanos>,
}

impl HeldWrites {
    /// That one has found no room.
    pub fn hold(&mut self, id: EffectId, now: Nanos) {
        self.tried.retain(|&tried| tried != id);
        self.kept.push(id);
        self.try_at = Some(Nanos(now.0 + RETRY_FULL_AFTER_NANOS));
    }

    /// That one is on the medium.
    pub fn written(&mut self, id: EffectId) {
        self.tried.retain(|&tried| tried != id);
    }

    /// Whether any of them has not found room yet. As long as that is so nothing new is accepted: it would fill the
    /// write buffer until no client could even be told.
    pub fn are_there(&self) -> bool {
        !self.kept.is_empty() || !self.tried.is_empty()
    }

    /// How many are not on their way.
    pub fn kept(&self) -> usize {
        self.kept.len()
    }

    /// When to try them again.
    pub fn due(&self) -> Option<Nanos> {
        self.try_at
    }

    /// Those that are to be tried again by now.
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
    fn there_is_room_when_those_tried_again_are_written() {
        let mut held = HeldWrites::default();
        assert!(!held.are_there());
        held.hold(EffectId(3), Nanos(5));
        held.hold(EffectId(4), Nanos(7));
        let due = held.due().unwrap();
        assert_eq!(due, Nanos(7 + RETRY_FULL_AFTER_NANOS));
        assert!(held.try_again(Nanos(due.0 - 1)).is_empty());
        assert_eq!(held.try_again(due), [EffectId(3), EffectId(4)]);
        assert_eq!((held.due(), held.kept()), (None, 0));
        assert!(held.are_there(), "nobody knows yet");
        held.hold(EffectId(4), due);
        held.written(EffectId(3));
        assert_eq!((held.are_there(), held.kept()), (true, 1));
        assert_eq!(held.try_again(held.due().unwrap()), [EffectId(4)]);
        held.written(EffectId(4));
        assert!(!held.are_there());
    }
}
