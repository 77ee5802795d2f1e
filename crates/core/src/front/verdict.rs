//! The verdict on a queued block that may be stored already.

use crate::seam::Payload;
use alloc::vec::Vec;

/// Whether the block equals its twin.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) enum Verdict<T> {
    /// No twin was proposed, or it is not equal: the block is written.
    #[default]
    Write,
    /// Unknown yet: the comparison, or a fingerprint, is in flight.
    Asked(T),
    /// They are equal.
    Same(T),
}

impl<T: Copy> Verdict<T> {
    /// Has `ask` look for a twin of each block of a write and start to compare them. Returns an empty list if no block has a twin.
    pub fn ask_for(
        blocks: &[Payload],
        mut ask: impl FnMut(usize, &Payload) -> Option<T>,
    ) -> Vec<Self> {
        let mut verdicts = Vec::new();
        for (index, payload) in blocks.iter().enumerate() {
            let Some(twin) = ask(index, payload) else {
                continue;
            };
            // A request with a comparison costs one allocation, which is little: it saves the write of a block.
            if verdicts.is_empty() {
                verdicts.resize(blocks.len(), Self::Write);
            }
            verdicts[index] = Self::Asked(twin);
        }
        verdicts
    }

    pub fn is_asked(&self) -> bool {
        matches!(self, Self::Asked(_))
    }

    /// Ends the comparison in flight, and returns the twin. `judge` returns what is known of the twin now, if it is equal.
    pub fn end(&mut self, judge: impl FnOnce(T) -> Option<T>) -> Option<T> {
        let Self::Asked(twin) = *self else {
            return None;
        };
        *self = judge(twin).map_or(Self::Write, Self::Same);
        Some(twin)
    }
}
