//! Values identified by small numbers, which are reused: requests in flight and the like.

/// A slab. It never shrinks; its users are bounded.
#[derive(Debug)]
pub struct Slab<T> {
    entries: Vec<Option<T>>,
    free: Vec<u32>,
}

impl<T> Default for Slab<T> {
    fn default() -> Self {
        Self {
            entries: Vec::new(),
            free: Vec::new(),
        }
    }
}

impl<T> Slab<T> {
    /// Stores a value and returns its number.
    pub fn insert(&mut self, value: T) -> u32 {
        if let Some(at) = self.free.pop() {
            self.entries[at as usize] = Some(value);
            return at;
        }
        self.entries.push(Some(value));
        (self.entries.len() - 1) as u32
    }

    /// The value with a number.
    pub fn get_mut(&mut self, at: u32) -> Option<&mut T> {
        self.entries.get_mut(at as usize)?.as_mut()
    }

    /// Removes a value.
    pub fn remove(&mut self, at: u32) -> Option<T> {
        let value = self.entries.get_mut(at as usize)?.take()?;
        self.free.push(at);
        Some(value)
    }
}
