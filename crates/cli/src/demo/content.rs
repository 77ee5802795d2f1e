//! The applications' data: generated from numbers, so that it can be compared later without being stored.

use anyhow::Result;
use std::path::Path;

/// A generator of repeatable numbers (splitmix64).
pub struct Numbers(pub u64);

impl Numbers {
    /// The next one.
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }
}

const WORDS: [&str; 16] = [
    "vellum", "flash", "block", "journal", "commit", "fn", "let", "return", "struct", "segment",
    "the", "of", "map", "chunk", "write", "read",
];

/// Text of about this many bytes, the same for the same seed.
pub fn text(seed: u64, bytes: usize) -> Vec<u8> {
    let mut numbers = Numbers(seed);
    let mut text = Vec::with_capacity(bytes + 16);
    while text.len() < bytes {
        let n = numbers.next();
        text.extend_from_slice(WORDS[(n & 15) as usize].as_bytes());
        if n >> 4 & 3 == 0 {
            text.extend_from_slice(format!("{:x}", n >> 40).as_bytes());
        }
        text.push(if n >> 8 & 7 == 0 { b'\n' } else { b' ' });
    }
    text.truncate(bytes);
    text
}

/// The size of a typical source file: mostly small, a few large.
pub fn source_size(seed: u64) -> usize {
    let n = Numbers(seed).next();
    let small = 200 + (n % 6000) as usize;
    if n >> 60 == 0 { small + 40_000 } else { small }
}

/// Writes a source tree with this many files below `dir`.
pub fn make_tree(dir: &Path, files: u64) -> Result<()> {
    for n in 0..files {
        let path = dir.join(tree_path(n));
        if let Some(parent) = path.parent() {
            std::fs::create_dir_all(parent)?;
        }
        std::fs::write(path, text(n, source_size(n)))?;
    }
    Ok(())
}

/// The path of a file in a tree.
pub fn tree_path(n: u64) -> String {
    format!("crate{}/src/module{}/file{n}.rs", n / 100, n / 10 % 10)
}
