//! Real images, made with e2fsprogs and verified with them.
#![allow(dead_code, reason = "each test program uses a part")]

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use vellum_ext4::{Scan, Source, Unreadable, scan};

pub const MIB: u64 = 1 << 20;

/// The bytes of a file. It counts reads, and checks that the reader keeps its limits.
pub struct Bytes<'a> {
    pub file: &'a File,
    pub volume_bytes: u64,
    pub read_bytes: u64,
}

impl<'a> Bytes<'a> {
    pub fn of(file: &'a File) -> Self {
        Self {
            file,
            volume_bytes: file.metadata().unwrap().len() / 4096 * 4096,
            read_bytes: 0,
        }
    }
}

impl Source for Bytes<'_> {
    fn read(&mut self, offset: u64, out: &mut [u8]) -> Result<(), Unreadable> {
        assert!(offset.is_multiple_of(4096) && out.len().is_multiple_of(4096));
        assert!(offset + out.len() as u64 <= self.volume_bytes);
        self.read_bytes += out.len() as u64;
        self.file.read_exact_at(out, offset).unwrap();
        Ok(())
    }
}

/// A file that serves as a volume.
pub struct Image {
    pub path: PathBuf,
    pub bytes: u64,
}

impl Image {
    pub fn new(folder: &Path, name: &str, bytes: u64) -> Self {
        let path = folder.join(name);
        File::create(&path).unwrap().set_len(bytes).unwrap();
        Self { path, bytes }
    }

    pub fn open(&self) -> File {
        OpenOptions::new()
            .read(true)
            .write(true)
            .open(&self.path)
            .unwrap()
    }

    pub fn scan(&self) -> Scan {
        let file = self.open();
        scan(&mut Bytes::of(&file), self.bytes / 4096)
    }

    /// Makes a file system on it; `None` if mke2fs refuses.
    pub fn make(&self, arguments: &str, more: &[&str]) -> Option<String> {
        let words: Vec<&str> = arguments.split(' ').collect();
        self.run("mke2fs", &[&["-F", "-q"], &words[..], more].concat(), &[])
    }

    /// Runs a tool on it; `None` if the tool fails.
    pub fn run(&self, tool: &str, arguments: &[&str], after: &[&str]) -> Option<String> {
        run(Command::new(tool)
            .args(arguments)
            .arg(&self.path)
            .args(after))
    }

    /// Returns bytes of the image.
    pub fn read(&self, offset: u64, bytes: usize) -> Vec<u8> {
        let mut out = vec![0; bytes];
        self.open().read_exact_at(&mut out, offset).unwrap();
        out
    }

    pub fn write(&self, offset: u64, bytes: &[u8]) {
        self.open().write_all_at(bytes, offset).unwrap();
    }

    /// Copies another image into this one.
    pub fn place(&self, offset: u64, other: &Image) {
        let (from, to) = (other.open(), self.open());
        let mut buffer = vec![0; MIB as usize];
        let mut at = 0;
        while at < other.bytes {
            let length = buffer.len().min((other.bytes - at) as usize);
            from.read_exact_at(&mut buffer[..length], at).unwrap();
            if buffer[..length].iter().any(|byte| *byte != 0) {
                to.write_all_at(&buffer[..length], offset + at).unwrap();
            }
            at += length as u64;
        }
    }

    /// Returns the value that `dumpe2fs -h` prints for `key`.
    pub fn head(&self, key: &str) -> Option<String> {
        let text = self.run("dumpe2fs", &["-h"], &[])?;
        text.lines().find_map(|line| {
            let (found, value) = line.split_once(':')?;
            (found == key).then(|| value.trim().to_owned())
        })
    }

    /// Returns the blocks of the journal's inode, as debugfs lists them.
    pub fn journal_blocks(&self) -> Vec<u64> {
        let text = self
            .run("debugfs", &["-R", "stat <8>"], &[])
            .expect("debugfs reads it");
        let (_, list) = text
            .split_once("EXTENTS:\n")
            .or_else(|| text.split_once("BLOCKS:\n"))
            .expect("a list of blocks");
        let list = list.split("TOTAL").next().unwrap();
        let mut blocks = Vec::new();
        for entry in list.split([',', '\n']).map(str::trim) {
            let Some((file, disk)) = entry.split_once(':') else {
                continue;
            };
            if file.contains("IND") || file.contains("ETB") {
                continue;
            }
            let (first, last) = range(disk);
            let (from, to) = range(file.trim_matches(['(', ')']));
            assert_eq!(from, blocks.len() as u64, "{entry}");
            assert_eq!(to - from, last - first);
            blocks.extend(first..=last);
        }
        blocks
    }
}

/// Calls `each` with every page of `new` that differs from `old`.
pub fn changes(old: &Image, new: &Image, mut each: impl FnMut(u64, &[u8])) {
    assert_eq!(old.bytes, new.bytes);
    let (old, file) = (old.open(), new.open());
    let (mut was, mut is) = (vec![0; MIB as usize], vec![0; MIB as usize]);
    for at in (0..new.bytes).step_by(MIB as usize) {
        let length = (new.bytes - at).min(MIB) as usize;
        old.read_exact_at(&mut was[..length], at).unwrap();
        file.read_exact_at(&mut is[..length], at).unwrap();
        let pages = was[..length].chunks(4096).zip(is[..length].chunks(4096));
        for (i, (was, is)) in pages.enumerate() {
            if was != is {
                each(at + 4096 * i as u64, is);
            }
        }
    }
}

/// Parses "7" or "7-9".
pub fn range(text: &str) -> (u64, u64) {
    match text.split_once('-') {
        Some((first, last)) => (first.parse().unwrap(), last.parse().unwrap()),
        None => (text.parse().unwrap(), text.parse().unwrap()),
    }
}

/// Returns a folder for images, in memory if possible, because the tools sync what they write.
pub fn folder() -> tempfile::TempDir {
    let memory = Path::new("/dev/shm");
    match memory.is_dir().then(|| tempfile::tempdir_in(memory)) {
        Some(Ok(folder)) => folder,
        _ => tempfile::tempdir().unwrap(),
    }
}

/// Creates nested folders, a name that needs quoting, a file with two names, one with many pieces, a folder of many
/// blocks, and links.
pub fn plant(root: &Path) {
    for n in 0..12 {
        let folder = root.join(format!("folder {n}/within"));
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::write(folder.join("file"), vec![n as u8 | 1; 30_000 * (n + 1)]).unwrap();
    }
    std::fs::write(root.join("new\nline"), vec![1; 9000]).unwrap();
    std::fs::hard_link(root.join("new\nline"), root.join("folder 3/again")).unwrap();
    let many = root.join("many");
    std::fs::create_dir_all(&many).unwrap();
    for n in 0..600 {
        std::fs::write(many.join(format!("{n:060}")), "").unwrap();
    }
    std::os::unix::fs::symlink("short", root.join("short link")).unwrap();
    std::os::unix::fs::symlink("long/".repeat(100), root.join("long link")).unwrap();
    let holes = File::create(root.join("holes")).unwrap();
    for n in 0..700u64 {
        holes
            .write_all_at(&[n as u8 | 1; 4096], n * 130_000 / 4096 * 4096)
            .unwrap();
    }
}

pub fn run(command: &mut Command) -> Option<String> {
    command.env("PATH", path()).stdin(Stdio::null());
    let output = command.output().unwrap();
    // e2fsck exits with 1 if it repaired everything.
    let mended = command.get_program() == "e2fsck" && output.status.code() == Some(1);
    if !output.status.success() && !mended {
        println!("{command:?}: {}", String::from_utf8_lossy(&output.stderr));
        return None;
    }
    Some(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// The administrator's tools are in sbin, which is not in every user's path.
fn path() -> String {
    format!(
        "{}:/usr/sbin:/sbin",
        std::env::var("PATH").unwrap_or_default()
    )
}

/// Says what was left out. Not with a macro: the test harness shows its output only if a test fails.
pub fn skipped(what: impl std::fmt::Display) {
    let mut stderr = std::io::stderr();
    writeln!(stderr, "SKIP: {what}").unwrap();
}

/// True if all these tools are installed; prints a message otherwise.
pub fn has_tools(tools: &[&str]) -> bool {
    tools.iter().all(|tool| {
        let found = path()
            .split(':')
            .any(|folder| Path::new(folder).join(tool).exists());
        if !found {
            skipped(format_args!(
                "{tool} is not installed (e2fsprogs, util-linux, fdisk)"
            ));
        }
        found
    })
}

/// Returns the first sectors of a volume with these partitions (first and last sector): a protective MBR, the header,
/// and the entries.
pub fn gpt(sector: usize, partitions: &[(u64, u64)]) -> Vec<u8> {
    let count = partitions.len().max(128);
    let entry = 2 * sector;
    let mut table = vec![0; (entry + count * 128).next_multiple_of(4096)];
    table[446 + 4] = 0xEE;
    table[446 + 8] = 1;
    table[446 + 12..446 + 16].fill(0xFF);
    table[510..512].copy_from_slice(&[0x55, 0xAA]);
    for ((first, last), entry) in partitions.iter().zip(table[entry..].chunks_mut(128)) {
        entry[..32].fill(7);
        entry[32..40].copy_from_slice(&first.to_le_bytes());
        entry[40..48].copy_from_slice(&last.to_le_bytes());
    }
    let entries_checksum = crc32(&table[entry..entry + count * 128]);
    let header = &mut table[sector..sector + 92];
    header[..8].copy_from_slice(b"EFI PART");
    header[8..16].copy_from_slice(&[0, 0, 1, 0, 92, 0, 0, 0]);
    header[24] = 1;
    header[72] = 2;
    header[80..84].copy_from_slice(&(count as u32).to_le_bytes());
    header[84..88].copy_from_slice(&128u32.to_le_bytes());
    header[88..92].copy_from_slice(&entries_checksum.to_le_bytes());
    let header_checksum = crc32(header);
    header[16..20].copy_from_slice(&header_checksum.to_le_bytes());
    table
}

fn crc32(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(!0, |crc, byte| {
        (0..8).fold(crc ^ u32::from(*byte), |crc: u32, _| {
            (crc >> 1) ^ (0xEDB8_8320 & (crc & 1).wrapping_neg())
        })
    })
}
