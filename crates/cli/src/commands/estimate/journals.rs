//! What the journals of the file systems on a disk reveal about write-once journaling and deltas.
//!
//! How often a block is written cannot be seen in stored data, with one exception: until it wraps, a journal holds copies of the
//! blocks written last, with their homes. A home equal to its newest copy would have been mapped to that (write-once). Of two
//! copies of one home, the later could have been stored as its difference to the earlier. Homes are sampled at random, as many as
//! keep the error small; only a journal's bytes are believed.

use serde_json::{Value, json};
use std::collections::HashMap;
use std::fs::File;
use std::hash::{DefaultHasher, Hasher};
use std::io::Write;
use std::os::unix::fs::FileExt;
use vellum_core::addr::BLOCK_BYTES;
use vellum_device::pack::{Compression, part_bytes, part_bytes_after};
use vellum_ext4::journal::{Alignment, Block, Journal, JournalBlock, Layout, Sequence};
use vellum_ext4::{Source, Span, Unreadable, scan};

/// Deltas are compared with blocks that are stored compressed.
const BESIDES: Compression = Compression::ZSTD;
/// The most homes of a journal whose copies are examined.
const HOMES: usize = 4096;
/// The most blocks read in a log, and copies remembered in it: 4 GiB.
const LOG_BLOCKS: usize = 1 << 20;

/// The findings for one journal.
pub struct JournalFindings {
    /// The UUID of its file system.
    pub uuid: vellum_ext4::Uuid,
    /// Home blocks with copies in it.
    pub homes: u64,
    /// The share of home blocks that equal their newest copy.
    pub once: Share,
    /// The share of a copy that is saved if it is stored as its difference to the previous one, beyond what compression saves.
    pub delta: Share,
}

impl JournalFindings {
    /// As JSON.
    pub fn json(&self) -> Value {
        let share = |share: Share| {
            let (mean, bound) = (100.0 * share.mean, 100.0 * share.bound);
            json!({"of": share.of, "percent": mean, "percent_bound": bound})
        };
        json!({
            "uuid": self.uuid.to_string(),
            "home_blocks": self.homes,
            "write_once": share(self.once),
            "delta": share(self.delta),
        })
    }

    /// Prints them for people.
    pub fn write(&self, out: &mut impl Write) -> std::io::Result<()> {
        let percent =
            |share: Share| format!("{:.1}%, +-{:.1}", 100.0 * share.mean, 100.0 * share.bound);
        writeln!(
            out,
            "  write-once     {}: of {} blocks with copies in the journal of {}, this share equals its \
             newest copy and would be written once",
            percent(self.once),
            self.homes,
            self.uuid
        )?;
        if self.delta.of == 0 {
            return writeln!(
                out,
                "  delta=on       not to be told: none of these is there twice"
            );
        }
        writeln!(
            out,
            "  delta=on       {}: of each of those that replaced another there, saved besides compress={}",
            percent(self.delta),
            BESIDES
        )
    }
}

/// A share measured in a sample.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Share {
    /// The size of the sample.
    pub of: u64,
    /// The share, from 0 to 1.
    pub mean: f64,
    /// How far it may be off, with 95% confidence.
    pub bound: f64,
}

impl Share {
    /// Computed from these values. `all`: how many values they stand for.
    fn new(values: &[f64], all: usize) -> Self {
        let count = values.len() as f64;
        if values.is_empty() {
            return Self {
                of: 0,
                mean: 0.0,
                bound: if all == 0 { 0.0 } else { 1.0 },
            };
        }
        let mean = values.iter().sum::<f64>() / count;
        let squares = values.iter().map(|value| (value - mean).powi(2));
        let variance = squares.sum::<f64>() / count;
        // There may be a share that no sample showed: the rule of three. And values that were examined are not estimated.
        let unseen = (3.0 / count).min(1.0);
        let left = (1.0 - count / (all as f64).max(count)).sqrt();
        Self {
            of: values.len() as u64,
            mean,
            bound: (1.96 * (variance / count).sqrt()).max(unseen) * left,
        }
    }
}

/// A disk, or its image.
struct Disk<'a>(&'a File);

impl Source for Disk<'_> {
    fn read(&mut self, offset: u64, out: &mut [u8]) -> Result<(), Unreadable> {
        let bytes = out.len() as u64;
        let read = self.0.read_exact_at(out, offset);
        read.map_err(|_| Unreadable { offset, bytes })
    }
}

/// The findings for the journals on a disk of this many bytes. Without an ext3 or ext4 there are none. Journals that cannot be
/// used are skipped (`vellum journal list` says why).
pub fn read(file: &File, bytes: u64) -> Vec<JournalFindings> {
    let scan = scan(&mut Disk(file), bytes / BLOCK_BYTES as u64);
    let systems = scan.file_systems.iter();
    systems
        .filter_map(|system| {
            let journal = system.journal.as_ref().ok()?;
            let aligned = journal.alignment == Alignment::Aligned;
            aligned.then(|| told(file, journal, system.home, system.uuid))
        })
        .filter(|told| told.homes > 0)
        .collect()
}

fn told(file: &File, journal: &Journal, home: Span, uuid: vellum_ext4::Uuid) -> JournalFindings {
    let mut versions = copies(file, journal, home);
    let homes = versions.len();
    versions.truncate(HOMES);
    let (mut once, mut delta) = (Vec::new(), Vec::new());
    let mut pairs = 0;
    for (home, copies) in &versions {
        pairs += copies.len() - 1;
        let mut before = None;
        for copy in copies.iter().map(|&at| block(file, at)) {
            if let (Some(before), Some(copy)) = (&before, &copy) {
                let alone = part_bytes(copy, BESIDES);
                let saved = alone - part_bytes_after(copy, before, BESIDES);
                delta.push(saved as f64 / BLOCK_BYTES as f64);
            }
            before = copy;
        }
        if let (Some(newest), Some(at_home)) = (before, block(file, *home)) {
            once.push(f64::from(u8::from(newest == at_home)));
        }
    }
    // For homes that were not examined, the number of copies is not known.
    let all_pairs = pairs * homes / versions.len().max(1);
    JournalFindings {
        uuid,
        homes: homes as u64,
        once: Share::new(&once, homes),
        delta: Share::new(&delta, all_pairs),
    }
}

fn block(file: &File, at: u64) -> Option<[u8; BLOCK_BYTES]> {
    let mut block = [0; BLOCK_BYTES];
    file.read_exact_at(&mut block, at).ok()?;
    Some(block)
}

/// Home blocks with their copies in the journal, the oldest first, as bytes of the disk. The order of the homes does
/// not depend on where they are.
fn copies(file: &File, journal: &Journal, home: Span) -> Vec<(u64, Vec<u64>)> {
    let format = &journal.format;
    let layout = Layout::new(&journal.extents, format.block_bytes);
    let home_of = |block: u64| {
        let offset = block.checked_mul(BLOCK_BYTES as u64)?;
        let end = offset.checked_add(BLOCK_BYTES as u64)?;
        (end <= home.bytes).then(|| home.start + offset)
    };
    let mut claims = Claims::default();
    let log = (format.first.0..format.end.0).map(JournalBlock);
    for at in log.take(LOG_BLOCKS) {
        let Some(bytes) = layout.place_of(at).and_then(|place| block(file, place)) else {
            continue;
        };
        match Block::parse(&bytes, format) {
            Block::Descriptor(descriptor) => {
                let sequence = descriptor.sequence;
                claims.add(at, sequence, None);
                let mut place = at;
                for tag in descriptor.tags() {
                    place = format.after(place);
                    let is_whole = !(tag.is_escaped || tag.is_deleted);
                    let home = home_of(tag.home.0).filter(|_| is_whole);
                    claims.add(place, sequence, home);
                }
            }
            Block::Commit { sequence } => claims.add(at, sequence, None),
            Block::Revoke(revoke) => claims.add(at, revoke.sequence, None),
            Block::Superblock | Block::Other => {}
        }
    }
    let sequences = claims.0.values().map(|claim| claim.0);
    let Some(newest) = sequences.reduce(later) else {
        return Vec::new();
    };
    let mut found: Vec<_> = claims
        .0
        .into_iter()
        .filter_map(|(at, (sequence, home))| {
            let place = layout.place_of(at)?;
            let age = newest.0.wrapping_sub(sequence.0);
            home.map(|home| (hash(home), home, std::cmp::Reverse(age), place))
        })
        .collect();
    found.sort_unstable();
    let of_one_home = found.chunk_by(|one, next| one.1 == next.1);
    of_one_home
        .map(|copies| (copies[0].1, copies.iter().map(|copy| copy.3).collect()))
        .collect()
}

/// The home, if any, of each block in a log. The log is circular: the newest transaction that claims a place decides.
#[derive(Default)]
struct Claims(HashMap<JournalBlock, (Sequence, Option<u64>)>);

impl Claims {
    fn add(&mut self, at: JournalBlock, sequence: Sequence, home: Option<u64>) {
        let is_known = self.0.contains_key(&at);
        if is_known || self.0.len() < LOG_BLOCKS {
            let newest = self.0.entry(at).or_insert((sequence, home));
            if is_after(sequence, newest.0) {
                *newest = (sequence, home);
            }
        }
    }
}

fn is_after(one: Sequence, other: Sequence) -> bool {
    (one.0.wrapping_sub(other.0) as i32) > 0
}

fn later(one: Sequence, other: Sequence) -> Sequence {
    if is_after(one, other) { one } else { other }
}

fn hash(home: u64) -> u64 {
    let mut hasher = DefaultHasher::new();
    hasher.write_u64(home);
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    /// Runs a tool of e2fsprogs; `None` if it is not installed.
    fn run(tool: &str, arguments: &[&str]) -> Option<()> {
        let path = std::env::var("PATH").unwrap_or_default();
        let mut command = Command::new(tool);
        command.env("PATH", format!("{path}:/usr/sbin:/sbin"));
        let out = command.args(arguments).output().ok()?;
        assert!(out.status.success(), "{tool}: {out:?}");
        Some(())
    }

    /// Two transactions of the same ten blocks. In the second, each block has one byte changed. Six are at home as in the
    /// second, four as in the first.
    #[test]
    fn a_journal_shows_what_write_once_and_deltas_save() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
        let disk = path("disk");
        let arguments = ["-q", "-F", "-b", "4096", "-J", "size=4", &disk, "64M"];
        if run("mke2fs", &[&["-t", "ext4"], &arguments[..]].concat()).is_none() {
            let mut stderr = std::io::stderr();
            writeln!(stderr, "SKIP: needs mke2fs and debugfs").unwrap();
            return;
        }
        let mut random = 7u64;
        let mut first = vec![0; 10 * BLOCK_BYTES];
        // Half of each does not compress.
        for byte in first.chunks_mut(BLOCK_BYTES / 2).step_by(2).flatten() {
            random = random
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            *byte = (random >> 56) as u8;
        }
        let mut second = first.clone();
        let changed = second.iter_mut().skip(100).step_by(BLOCK_BYTES);
        changed.for_each(|byte| *byte ^= 1);
        std::fs::write(path("first"), &first).unwrap();
        std::fs::write(path("second"), &second).unwrap();
        let homes: Vec<_> = (8000..8010).map(|home: u64| home.to_string()).collect();
        let journaled = |name| format!("jw -b {} {}\n", homes.join(","), path(name));
        let commands = format!("jo\n{}{}jc\n", journaled("first"), journaled("second"));
        std::fs::write(path("commands"), commands).unwrap();
        run("debugfs", &["-w", "-f", &path("commands"), &disk]).unwrap();
        let file = File::options().read(true).write(true).open(&disk).unwrap();
        let (came, late) = (6 * BLOCK_BYTES, 8000 * BLOCK_BYTES as u64);
        file.write_all_at(&second[..came], late).unwrap();
        file.write_all_at(&first[came..], late + came as u64)
            .unwrap();

        let told = read(&file, 64 << 20);
        assert_eq!(told.len(), 1);
        assert_eq!(told[0].homes, 10);
        let once = told[0].once;
        assert_eq!((once.of, once.bound), (10, 0.0));
        assert!((once.mean - 0.6).abs() < 1e-9);
        let delta = told[0].delta;
        assert_eq!((delta.of, delta.bound), (10, 0.0));
        assert!((0.45..0.55).contains(&delta.mean), "{delta:?}");
        // A file without a file system has no journals.
        assert!(read(&File::open(path("first")).unwrap(), first.len() as u64).is_empty());
    }

    #[test]
    fn the_newest_transaction_decides_what_a_place_holds() {
        let (mut claims, at) = (Claims::default(), JournalBlock(5));
        claims.add(at, Sequence(u32::MAX), Some(4096));
        claims.add(at, Sequence(u32::MAX - 1), Some(8192));
        assert_eq!(claims.0[&at].1, Some(4096));
        // Sequence numbers wrap as well.
        claims.add(at, Sequence(0), None);
        claims.add(at, Sequence(u32::MAX), Some(4096));
        assert_eq!(claims.0[&at].1, None);
    }

    #[test]
    fn a_sample_is_within_its_bound_of_the_whole() {
        let all: Vec<f64> = (0..100_000u64)
            .map(|n| f64::from(u8::from(hash(n) % 10 < 3)))
            .collect();
        let whole = Share::new(&all, all.len());
        assert_eq!(whole.bound, 0.0);
        let mut outside = 0;
        for sample in all.chunks(1000) {
            let share = Share::new(sample, all.len());
            assert!(share.bound < 0.03);
            outside += usize::from((share.mean - whole.mean).abs() > share.bound);
        }
        assert!(outside <= 12, "{outside} of 100");
        let none = Share::new(&[0.0; 100], 100_000);
        assert!(none.bound > 0.029);
    }
}
