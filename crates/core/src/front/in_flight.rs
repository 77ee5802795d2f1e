//! The purposes of effects that were issued and not answered, by effect number. Numbers are reused.

use crate::addr::EffectId;
use alloc::vec::Vec;

pub(crate) struct InFlight<P> {
    slots: Vec<Option<P>>,
    free: Vec<u32>,
}

impl<P> InFlight<P> {
    pub fn new() -> Self {
        Self {
            slots: Vec::new(),
            free: Vec::new(),
        }
    }

    pub fn add(&mut self, pending: P) -> EffectId {
        match self.free.pop() {
            Some(id) => {
                self.slots[id as usize] = Some(pending);
                EffectId(id)
            }
            None => {
                self.slots.push(Some(pending));
                EffectId(self.slots.len() as u32 - 1)
            }
        }
    }

    pub fn get(&self, id: EffectId) -> Option<&P> {
        self.slots.get(id.0 as usize)?.as_ref()
    }

    /// Ends an effect that was answered; `None`: it was answered before, or never issued.
    pub fn take(&mut self, id: EffectId) -> Option<P> {
        let pending = self.slots.get_mut(id.0 as usize)?.take()?;
        self.free.push(id.0);
        Some(pending)
    }

    pub fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_effects_number_is_reused_only_after_its_answer() {
        let mut pending = InFlight::new();
        let (first, second) = (pending.add('a'), pending.add('b'));
        assert_eq!(pending.take(first), Some('a'));
        assert_eq!((pending.take(first), pending.get(first)), (None, None));
        assert_eq!(pending.add('c'), first);
        assert_eq!((pending.get(second), pending.len()), (Some(&'b'), 2));
        assert_eq!(pending.take(EffectId(9)), None);
    }
}
