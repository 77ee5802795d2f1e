//! Streams of contents in the order of writing: from a seed, or from files.

use std::collections::{HashMap, HashSet};
use std::path::Path;

/// Numbers from a seed (SplitMix64).
pub struct Chance(pub u64);

impl Chance {
    /// The next number.
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number from 0 up to 1.
    pub fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1u64 << 53) as f64
    }
}

/// The checksum of the content with this number: each has a different one, and they are spread as checksums are (MurmurHash3's
/// last step). The numbers themselves are not: multiplication spreads consecutive ones evenly, and no line of an index overflows.
pub fn checksum(number: u32) -> u32 {
    let mut x = number;
    x = (x ^ (x >> 16)).wrapping_mul(0x85eb_ca6b);
    x = (x ^ (x >> 13)).wrapping_mul(0xc2b2_ae35);
    x ^ (x >> 16)
}

/// When a content recurs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Again {
    /// At any time.
    AnyTime,
    /// Mostly soon: after a stretch whose logarithm is as likely short as long.
    MostlySoon,
}

/// The checksums of `contents` contents, each with k copies with a probability of k to the power of minus `tail` (zeta).
pub fn zeta(contents: u32, tail: f64, again: Again) -> Vec<u32> {
    let mut chance = Chance(7);
    let mut shares: Vec<f64> = Vec::new();
    for copies in 1..=100_000 {
        let before = shares.last().copied().unwrap_or(0.0);
        shares.push(before + f64::from(copies).powf(-tail));
    }
    let all = shares.last().copied().unwrap_or(1.0);
    let mut written: Vec<(f64, u32)> = Vec::new();
    for content in (0..contents).map(checksum) {
        let at = chance.unit() * all;
        let more = shares.partition_point(|&share| share < at);
        let mut when = chance.unit();
        written.push((when, content));
        for _ in 0..more {
            when = match again {
                Again::AnyTime => chance.unit(),
                Again::MostlySoon => (when + f64::from(contents).powf(chance.unit() - 1.0)).fract(),
            };
            written.push((when, content));
        }
    }
    written.sort_by(|a, b| a.0.total_cmp(&b.0));
    written.into_iter().map(|(_, content)| content).collect()
}

/// So many contents, each once, and then all of them again.
pub fn twice(contents: u32) -> Vec<u32> {
    let set = (0..contents).map(checksum);
    set.clone().chain(set).collect()
}

/// `length` blocks, `percent` of them with a content from before: 1% of those contents make up two thirds, 10% four fifths, and
/// the hottest are the oldest.
pub fn few_hot(length: u32, percent: u64) -> Vec<u32> {
    let mut chance = Chance(7);
    let (mut contents, mut stream) = (0u32, Vec::new());
    for _ in 0..length {
        if contents > 0 && chance.next() % 100 < percent {
            let number = chance.unit().powi(12) * f64::from(contents);
            stream.push(checksum(number as u32));
        } else {
            stream.push(checksum(contents));
            contents += 1;
        }
    }
    stream
}

/// The checksums of the blocks of all files below a directory, in the order of their names, without zeros. Stops at `most`.
pub fn files(below: &Path, most: usize, stream: &mut Vec<u32>) {
    let Ok(entries) = std::fs::read_dir(below) else {
        return;
    };
    let mut paths: Vec<_> = entries.flatten().map(|entry| entry.path()).collect();
    paths.sort();
    for path in paths {
        let Ok(kind) = path.symlink_metadata() else {
            continue;
        };
        if kind.is_dir() {
            files(&path, most, stream);
        } else if kind.is_file()
            && let Ok(mut bytes) = std::fs::read(&path)
        {
            bytes.resize(bytes.len().next_multiple_of(4096), 0);
            let blocks = bytes.chunks_exact(4096);
            let data = blocks.filter(|block| block.iter().any(|&byte| byte != 0));
            stream.extend(data.map(crc32c::crc32c));
        }
        if stream.len() >= most {
            return stream.truncate(most);
        }
    }
}

/// The shape of a stream.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    /// The number of contents.
    pub unique: usize,
    /// The number of blocks that a perfect pass would not store.
    pub duplicates: usize,
    /// The number of contents with more than two copies.
    pub hot: usize,
    /// The duplicates of the tenth of the contents that has the most.
    pub of_best_tenth: usize,
}

impl Shape {
    /// Counts a stream's duplicates.
    pub fn of(stream: &[u32]) -> Self {
        let mut copies: HashMap<u32, usize> = HashMap::new();
        for &content in stream {
            *copies.entry(content).or_default() += 1;
        }
        let mut copies: Vec<usize> = copies.into_values().collect();
        copies.sort_unstable_by_key(|&copies| std::cmp::Reverse(copies));
        let unique = copies.len();
        Self {
            unique,
            duplicates: stream.len() - unique,
            hot: copies.partition_point(|&copies| copies > 2),
            of_best_tenth: copies[..unique / 10].iter().map(|copies| copies - 1).sum(),
        }
    }
}

/// The number of a stream's duplicates that an index knows when they are written.
pub fn found(stream: &[u32], index: &mut vellum_core::index::Index) -> usize {
    use vellum_core::addr::Vba;
    use vellum_core::index::Holder;
    use vellum_core::policy::dedup::content_hash;
    let mut copies: HashMap<u32, u32> = HashMap::new();
    let mut seen = HashSet::new();
    let mut found = 0;
    for &content in stream {
        let hash = content_hash(content);
        // A print is shorter than a hash: of millions of look-ups one may find another content.
        let known = index.find(hash).is_some() && seen.contains(&content);
        seen.insert(content);
        // A content that is not found is stored once more, and that copy has one owner.
        let owners = copies.entry(content).or_default();
        *owners = if known { *owners + 1 } else { 1 };
        found += usize::from(known);
        index.insert(hash, Holder::Page(Vba(content)), *owners);
    }
    found
}
