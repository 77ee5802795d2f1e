//! `vellum estimate`: what deduplication and compression would save on existing data, and what the journals
//! in it reveal about write-once.
//!
//! All of the data is read, because a sample of places cannot show which blocks have copies. But only one content in so many is
//! counted, chosen by its hash. So memory is bounded, and the choice does not depend on where a block is. The bound of the error
//! is computed from the counts themselves: a few contents with many copies make it wide. One in sixteen of the counted contents
//! is compressed, chosen the same way; the result stands for everything that deduplication leaves.

mod journals;

use crate::outcome::{out, usage};
use crate::peek;
use crate::size::Size;
use anyhow::{Context, Result, bail};
use indicatif::{ProgressBar, ProgressStyle};
use journals::JournalFindings;
use serde_json::json;
use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::hash::{DefaultHasher, Hasher};
use std::io::{Seek, SeekFrom, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use vellum_core::addr::BLOCK_BYTES;
use vellum_device::pack::{Compression, part_bytes};

/// The most contents that are counted. Beyond that every second one is dropped, and every second later one ignored.
const CONTENTS_MAX: usize = 4 << 20;
/// Bytes read at once.
const READ_BYTES: usize = 1 << 20;

/// Arguments.
#[derive(clap::Args)]
pub struct Args {
    /// Files, directories or block devices; together they are one volume.
    #[arg(required = true)]
    paths: Vec<PathBuf>,
    /// As JSON, one line.
    #[arg(long)]
    json: bool,
}

/// Reads and counts.
pub fn run(args: &Args) -> Result<()> {
    let bar = ProgressBar::new_spinner();
    if let Ok(style) =
        ProgressStyle::with_template("{spinner} {binary_bytes} read, {binary_bytes_per_sec}")
    {
        bar.set_style(style);
    }
    let (census, journals) = count(&args.paths, &bar)?;
    bar.finish_and_clear();
    if census.blocks == 0 && census.unreadable > 0 {
        bail!(
            "nothing was read: {} files or directories there cannot be, and no other file has any data",
            census.unreadable
        );
    }
    if census.blocks == 0 {
        bail!("nothing to read: no file there has any data");
    }
    let estimate = Estimate {
        duplicates: census.duplicates(),
        lz4: census.compressed(0),
        zstd: census.compressed(1),
        census,
        journals,
    };
    match args.json {
        true => estimate.as_json(),
        false => estimate.as_text(),
    }
}

/// Counts what these files and directories hold, and reads the journals on disks and images among them.
fn count(paths: &[PathBuf], bar: &ProgressBar) -> Result<(Census, Vec<JournalFindings>)> {
    let mut census = Census::new(CONTENTS_MAX);
    let mut journals = Vec::new();
    for path in paths {
        if std::fs::metadata(path)
            .with_context(|| format!("cannot find {}", path.display()))?
            .is_dir()
        {
            count_directory(path, &mut census, bar);
        } else {
            if peek::uuid_of(path).is_ok() {
                return Err(usage(format!(
                    "{0} is a volume: what it saves is in `vellum stats {0}` while it is served, and data \
                     elsewhere is what `estimate` reads",
                    path.display()
                )));
            }
            let unread = || format!("cannot read {}", path.display());
            count_file(path, &mut census, bar).with_context(unread)?;
            let mut disk = peek::opened(path).with_context(unread)?;
            let bytes = disk.seek(SeekFrom::End(0)).with_context(unread)?;
            journals.extend(journals::read(&disk, bytes));
        }
    }
    Ok((census, journals))
}

/// The report. Each estimate is in blocks, with how far it may be off.
struct Estimate {
    census: Census,
    duplicates: (f64, f64),
    lz4: (f64, f64),
    zstd: (f64, f64),
    journals: Vec<JournalFindings>,
}

impl Estimate {
    fn as_json(&self) -> Result<()> {
        let census = &self.census;
        let told = json!({
            "bytes": bytes(census.blocks as f64),
            "zero_bytes": bytes(census.zeros as f64),
            "duplicate_bytes": bytes(self.duplicates.0),
            "duplicate_bytes_bound": bytes(self.duplicates.1),
            "contents_counted_one_in": 1u64 << census.thinned,
            "lz4_bytes": bytes(self.lz4.0),
            "lz4_bytes_bound": bytes(self.lz4.1),
            "zstd_bytes": bytes(self.zstd.0),
            "zstd_bytes_bound": bytes(self.zstd.1),
            "unreadable_files": census.unreadable,
            "journals": self.journals.iter().map(JournalFindings::json).collect::<Vec<_>>(),
        });
        Ok(writeln!(out(), "{told}")?)
    }

    fn as_text(&self) -> Result<()> {
        let mut out = out();
        let all = self.census.blocks as f64;
        let zeros = self.census.zeros as f64;
        let percent = |blocks: f64| blocks * 100.0 / all;
        writeln!(out, "  read           {}", Size(bytes(all)))?;
        writeln!(
            out,
            "  zeros          {} ({:.1}%): need no space",
            Size(bytes(zeros)),
            percent(zeros)
        )?;
        let (duplicates, bound) = self.duplicates;
        writeln!(
            out,
            "  duplicates     {} ({:.1}%, +-{:.1} with 95% confidence): deduplication saves them",
            Size(bytes(duplicates)),
            percent(duplicates),
            percent(bound)
        )?;
        for (name, (saved, bound)) in [("lz4", self.lz4), ("zstd", self.zstd)] {
            writeln!(
                out,
                "  compress={name:<6}{} ({:.1}%, +-{:.1}): saved besides, of what is left",
                Size(bytes(saved)),
                percent(saved),
                percent(bound)
            )?;
        }
        if self.census.unreadable > 0 {
            writeln!(
                out,
                "  left out       {} files or directories that cannot be read",
                self.census.unreadable
            )?;
        }
        for journal in &self.journals {
            journal.write(&mut out)?;
        }
        if self.journals.is_empty() {
            writeln!(
                out,
                "  write-once, delta: unknown. Only the journal of an ext3 or ext4 shows how often blocks \
                 are written: name its device or image, or `vellum record` a workload and `vellum lab \
                 compare` it"
            )?;
        }
        Ok(())
    }
}

fn bytes(blocks: f64) -> u64 {
    (blocks * BLOCK_BYTES as f64) as u64
}

/// The counts.
struct Census {
    blocks: u64,
    zeros: u64,
    unreadable: u64,
    most: usize,
    /// One content in 2 to the power of this is counted.
    thinned: u32,
    contents: HashMap<u64, Content>,
    /// Files with several names that have been counted: device and inode.
    linked: HashSet<(u64, u64)>,
}

/// A counted content.
struct Content {
    copies: u32,
    /// What each of [`WAYS`] saves on it, in bytes; usually [`NOT_TRIED`].
    saved: [u16; 2],
}

/// Ways to store a block in fewer bytes.
const WAYS: [Compression; 2] = [Compression::Lz4, Compression::ZSTD];
const NOT_TRIED: u16 = u16::MAX;
/// Selects one content in sixteen for compression, by other bits of the hash than those that select it for counting.
const TRIED_SHIFT: u32 = 60;

impl Content {
    fn new(hash: u64, block: &[u8]) -> Self {
        let saved = match <&[u8; BLOCK_BYTES]>::try_from(block) {
            Ok(block) if hash >> TRIED_SHIFT == 0 => {
                WAYS.map(|way| (BLOCK_BYTES - part_bytes(block, way).min(BLOCK_BYTES)) as u16)
            }
            _ => [NOT_TRIED; 2],
        };
        Self { copies: 0, saved }
    }
}

impl Census {
    fn new(most: usize) -> Self {
        Self {
            blocks: 0,
            zeros: 0,
            unreadable: 0,
            most,
            thinned: 0,
            contents: HashMap::new(),
            linked: HashSet::new(),
        }
    }

    /// Counts blocks that are not stored, and read as zeros.
    fn hole(&mut self, blocks: u64) {
        self.blocks += blocks;
        self.zeros += blocks;
    }

    fn block(&mut self, block: &[u8]) {
        self.blocks += 1;
        if block.iter().all(|&byte| byte == 0) {
            self.zeros += 1;
            return;
        }
        let mut hasher = DefaultHasher::new();
        hasher.write(block);
        let hash = hasher.finish();
        if !is_counted(hash, self.thinned) {
            return;
        }
        let contents = self.contents.entry(hash);
        let content = contents.or_insert_with(|| Content::new(hash, block));
        content.copies = content.copies.saturating_add(1);
        while self.contents.len() > self.most {
            self.thinned += 1;
            let thinned = self.thinned;
            self.contents.retain(|&hash, _| is_counted(hash, thinned));
        }
    }

    /// Blocks that are copies of another, and how far the estimate may be off with 95% confidence.
    fn duplicates(&self) -> (f64, f64) {
        let scale = f64::from(self.thinned).exp2();
        let contents = self.contents.values();
        let more = contents.map(|content| f64::from(content.copies - 1));
        let (sum, squares) = more.fold((0.0, 0.0), |(sum, squares), more| {
            (sum + more, squares + more * more)
        });
        // Each content is counted or not, independently, with a probability of one in `scale`.
        let variance = scale * (scale - 1.0) * squares;
        (sum * scale, 1.96 * variance.sqrt())
    }

    /// The space, in blocks, that one of [`WAYS`] saves on what deduplication leaves, and how far that may be off with 95% confidence.
    fn compressed(&self, way: usize) -> (f64, f64) {
        let tried = self.contents.values().map(|content| content.saved[way]);
        let tried = tried.filter(|&saved| saved != NOT_TRIED);
        let shares = tried.map(|saved| f64::from(saved) / BLOCK_BYTES as f64);
        let (count, sum, squares) = shares.fold((0.0, 0.0, 0.0), |(count, sum, squares), share| {
            (count + 1.0, sum + share, squares + share * share)
        });
        let left = self.contents.len() as f64 * f64::from(self.thinned).exp2();
        if count < 2.0 {
            return (0.0, left);
        }
        let mean: f64 = sum / count;
        let variance = (squares / count - mean * mean).max(0.0) / count;
        // However well a sample fits, there may still be a share that it did not show: the rule of three.
        let unseen = (3.0 / count).min(1.0);
        (left * mean, left * (1.96 * variance.sqrt()).max(unseen))
    }
}

fn is_counted(hash: u64, thinned: u32) -> bool {
    hash & ((1u64 << thinned) - 1) == 0
}

fn count_directory(path: &Path, census: &mut Census, bar: &ProgressBar) {
    let mut left = vec![path.to_owned()];
    while let Some(directory) = left.pop() {
        let Ok(entries) = std::fs::read_dir(&directory) else {
            census.unreadable += 1;
            continue;
        };
        for entry in entries {
            // The rest of a directory that cannot be read, and files that have disappeared.
            let Ok((entry, kind)) = entry.and_then(|entry| {
                let kind = entry.file_type()?;
                Ok((entry, kind))
            }) else {
                census.unreadable += 1;
                continue;
            };
            if kind.is_dir() {
                left.push(entry.path());
            } else if kind.is_file() && count_file(&entry.path(), census, bar).is_err() {
                census.unreadable += 1;
            }
        }
    }
}

fn count_file(path: &Path, census: &mut Census, bar: &ProgressBar) -> Result<()> {
    let mut file = peek::opened(path)?;
    let metadata = file.metadata()?;
    if metadata.nlink() > 1 && !census.linked.insert((metadata.dev(), metadata.ino())) {
        return Ok(());
    }
    let size = file.seek(SeekFrom::End(0))?;
    let mut at = 0;
    let mut buffer = vec![0; READ_BYTES];
    while at < size {
        let data = next_data(&file, at, size);
        if data > at {
            census.hole((data - at) / BLOCK_BYTES as u64);
            at = data;
            continue;
        }
        let length = (size - at).min(READ_BYTES as u64) as usize;
        file.read_exact_at(&mut buffer[..length], at)?;
        // The end of a file is zeros up to the end of its block, as in a file system.
        let end = length.next_multiple_of(BLOCK_BYTES);
        buffer[length..end].fill(0);
        for block in buffer[..end].chunks_exact(BLOCK_BYTES) {
            census.block(block);
        }
        at += length as u64;
        bar.inc(length as u64);
    }
    Ok(())
}

/// The start of the first block of a file with data at or after `at`; `at` itself if holes are not reported.
fn next_data(file: &File, at: u64, size: u64) -> u64 {
    let Ok(offset) = i64::try_from(at) else {
        return at;
    };
    // SAFETY: no pointers; the descriptor is open.
    let found = unsafe { libc::lseek(file.as_raw_fd(), offset, libc::SEEK_DATA) };
    let block = BLOCK_BYTES as u64;
    match u64::try_from(found) {
        Ok(data) => (data / block * block).max(at),
        Err(_) if std::io::Error::last_os_error().raw_os_error() == Some(libc::ENXIO) => {
            size.next_multiple_of(block)
        }
        Err(_) => at,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn block(content: u64) -> [u8; BLOCK_BYTES] {
        let mut block = [0; BLOCK_BYTES];
        block[..8].copy_from_slice(&content.to_le_bytes());
        block
    }

    #[test]
    fn a_fifo_is_refused_and_not_waited_for() {
        let folder = tempfile::tempdir().unwrap();
        let fifo = folder.path().join("fifo");
        let name = std::ffi::CString::new(fifo.to_str().unwrap()).unwrap();
        // SAFETY: a path that ends with a NUL.
        assert_eq!(unsafe { libc::mkfifo(name.as_ptr(), 0o600) }, 0);
        let (told, heard) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            let counted = count_file(&fifo, &mut Census::new(1), &ProgressBar::hidden());
            told.send(counted.is_err())
        });
        let soon = std::time::Duration::from_secs(20);
        assert_eq!(heard.recv_timeout(soon), Ok(true));
    }

    /// A file with several names counts once, and holes are not read.
    #[test]
    fn links_and_holes_are_no_duplicates() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        std::fs::write(path("one"), [block(1), block(2)].concat()).unwrap();
        std::fs::hard_link(path("one"), path("two")).unwrap();
        let sparse = File::create(path("sparse")).unwrap();
        sparse.set_len((1 << 40) + 100).unwrap();
        sparse.write_all_at(&block(3), 1 << 30).unwrap();
        let mut census = Census::new(1000);
        count_directory(folder.path(), &mut census, &ProgressBar::hidden());
        assert_eq!(census.unreadable, 0);
        assert_eq!(census.blocks, 2 + (1 << 28) + 1);
        assert_eq!(
            (census.blocks - census.zeros, census.duplicates()),
            (3, (0.0, 0.0))
        );
    }

    #[test]
    fn all_contents_are_counted_while_they_fit() {
        let mut census = Census::new(1000);
        for content in 1..=100 {
            for _ in 0..content % 3 {
                census.block(&block(content));
            }
        }
        census.block(&block(0));
        assert_eq!((census.blocks, census.zeros), (101, 1));
        assert_eq!(census.duplicates(), (33.0, 0.0));
    }

    #[test]
    fn compression_is_estimated_within_its_bound() {
        let mut census = Census::new(4000);
        let mut random = 1u64;
        for content in 1..=20_000u64 {
            let mut block = block(content);
            // A quarter of the blocks does not compress; the others are almost all zeros.
            if content % 4 == 0 {
                for word in block.chunks_exact_mut(8) {
                    random = random
                        .wrapping_mul(6_364_136_223_846_793_005)
                        .wrapping_add(1);
                    word.copy_from_slice(&(random ^ random >> 33).to_le_bytes());
                }
            }
            census.block(&block);
        }
        for way in 0..2 {
            let (saved, bound) = census.compressed(way);
            let most = 15_000.0;
            assert!(
                saved - bound < most && saved + bound > most * 0.97,
                "{saved} +- {bound}"
            );
            assert!(bound < 3000.0);
        }
    }

    #[test]
    fn duplicates_are_estimated_within_their_bound() {
        let mut census = Census::new(500);
        let mut truth = 0;
        for content in 1..=20_000u64 {
            let copies = 1 + content % 4;
            truth += copies - 1;
            (0..copies).for_each(|_| census.block(&block(content)));
        }
        let (estimate, bound) = census.duplicates();
        assert!(census.thinned >= 5 && census.contents.len() <= 500);
        assert!(
            (estimate - truth as f64).abs() <= 1.5 * bound,
            "{estimate} +- {bound}, and it is {truth}"
        );
        assert!(bound < 0.3 * truth as f64);
    }
}
