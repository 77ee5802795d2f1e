//! The options of a check.

/// What to check, and how much to say.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Read every live block and every chunk header as well.
    pub data: bool,
    /// The most findings listed; further ones are counted.
    pub findings_max: usize,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            data: false,
            findings_max: 1000,
        }
    }
}
