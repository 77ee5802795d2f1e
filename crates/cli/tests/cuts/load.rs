//! A worker in a directory: random operations. Each is recorded in the model before it begins, and each sync after it has
//! ended.

use crate::model::{Folder, Number, PAGE};
use std::fs::{self, File, OpenOptions};
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use vellum_medium::fault::Rng;

const FILES_MAX: usize = 40;
const PAGES_MAX: usize = 64;

pub struct Load<'a> {
    path: PathBuf,
    /// Returns the medium's instant.
    now: &'a dyn Fn() -> usize,
    rng: Rng,
    folder: Folder,
    names: usize,
}

impl<'a> Load<'a> {
    /// Starts in an existing directory that is synced and empty.
    pub fn new(path: &Path, seed: u64, now: &'a dyn Fn() -> usize) -> Self {
        Self {
            path: path.to_owned(),
            now,
            rng: Rng::new(seed),
            folder: Folder::default(),
            names: 0,
        }
    }

    /// Works. Returns what must be there.
    pub fn run(mut self, operations: usize) -> Folder {
        for _ in 0..operations {
            self.one();
        }
        self.folder
    }

    fn one(&mut self) {
        let files = self.folder.files();
        let chosen = files
            .get(self.rng.below(files.len() as u64) as usize)
            .cloned();
        let Some((name, number)) = chosen.filter(|_| files.len() > 4) else {
            return self.create();
        };
        match self.rng.below(100) {
            0..16 if files.len() < FILES_MAX => self.create(),
            0..44 => self.write(&name, number),
            44..50 => self.truncate(&name, number),
            50..55 => self.rename(&name, number),
            55..58 => {
                let onto = self.rng.below(files.len() as u64) as usize;
                if files[onto].1 != number {
                    self.rename_to(&name, number, &files[onto].0);
                }
            }
            58..66 => self.unlink(&name),
            66..72 => self.replace(&name),
            72..90 => self.sync(&name, number),
            90..98 => self.sync_names(),
            _ => self.sync_all(),
        }
    }

    fn fresh_name(&mut self) -> String {
        self.names += 1;
        // Some names are long, so that blocks of the directory split.
        match self.rng.chance(1, 4) {
            true => format!("f{}-{}", self.names, "long".repeat(40)),
            false => format!("f{}", self.names),
        }
    }

    fn create(&mut self) {
        let name = self.fresh_name();
        let number = self.folder.create((self.now)(), &name);
        File::create_new(self.path.join(&name)).unwrap();
        self.write(&name, number);
    }

    fn open(&self, name: &str) -> File {
        OpenOptions::new()
            .read(true)
            .write(true)
            .open(self.path.join(name))
            .unwrap()
    }

    fn write(&mut self, name: &str, number: Number) {
        let size = self.folder.content(number).bytes;
        let at = match self.rng.below(4) {
            0 => size,
            1 => self.rng.below(size as u64 + 3 * PAGE as u64) as usize,
            _ => self.rng.below(size as u64 + 1) as usize / PAGE * PAGE,
        };
        let length = match self.rng.below(4) {
            0 => 1 + self.rng.below(3000) as usize,
            1 => PAGE * (1 + self.rng.below(24) as usize),
            _ => PAGE * (1 + self.rng.below(3) as usize),
        };
        let at = at.min(PAGES_MAX * PAGE);
        let bytes = self.bytes(number, at, length);
        self.folder
            .write((self.now)(), number, |content| content.write(at, &bytes));
        self.open(name).write_all_at(&bytes, at as u64).unwrap();
    }

    /// Data of the kinds that a volume treats differently: noise, text, duplicates, zeros, old contents with a few bytes
    /// changed, and blocks that look like a journal's commit block.
    fn bytes(&mut self, number: Number, at: usize, length: usize) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(length + PAGE);
        while bytes.len() < length {
            let kind = self.rng.below(8);
            let start = bytes.len();
            match kind {
                0 => bytes.resize(start + PAGE, 0),
                1 => {
                    let mut pool = Rng::new(self.rng.below(24));
                    bytes.extend((0..PAGE / 8).flat_map(|_| pool.bits().to_le_bytes()));
                }
                2 => {
                    let word = self.rng.bits();
                    bytes.extend(
                        format!("a line with the number {word}\n")
                            .as_bytes()
                            .repeat(PAGE / 16),
                    );
                }
                3 | 4 => {
                    let content = self.folder.content(number);
                    let page = content.pages.get((at + start) / PAGE);
                    bytes.extend(page.map_or([7; PAGE], |page| **page));
                    for byte in self.rng.bits().to_le_bytes() {
                        bytes[start + byte as usize * 16] ^= byte | 1;
                    }
                }
                5 if self.rng.chance(1, 4) => {
                    bytes.extend([0xc0, 0x3b, 0x39, 0x98, 0, 0, 0, 2]);
                    bytes.extend(self.rng.bits().to_le_bytes().repeat(4));
                }
                _ => {
                    for _ in 0..PAGE / 8 {
                        bytes.extend(self.rng.bits().to_le_bytes());
                    }
                }
            }
            bytes.resize(start + PAGE, 0);
        }
        bytes.truncate(length);
        bytes
    }

    fn truncate(&mut self, name: &str, number: Number) {
        let size = self.folder.content(number).bytes as u64;
        let to = self.rng.below(size + 1 + PAGE as u64) as usize;
        self.folder
            .write((self.now)(), number, |content| content.resize(to));
        self.open(name).set_len(to as u64).unwrap();
    }

    fn rename(&mut self, name: &str, number: Number) {
        let to = self.fresh_name();
        self.rename_to(name, number, &to);
    }

    fn rename_to(&mut self, name: &str, number: Number, to: &str) {
        self.folder.rename((self.now)(), number, to);
        fs::rename(self.path.join(name), self.path.join(to)).unwrap();
    }

    fn unlink(&mut self, name: &str) {
        self.folder.unlink((self.now)(), name);
        fs::remove_file(self.path.join(name)).unwrap();
    }

    /// Like editors and databases: a new file replaces an old one.
    fn replace(&mut self, name: &str) {
        let fresh = self.fresh_name();
        let number = self.folder.create((self.now)(), &fresh);
        File::create_new(self.path.join(&fresh)).unwrap();
        self.write(&fresh, number);
        self.sync(&fresh, number);
        self.rename_to(&fresh, number, name);
        self.sync_names();
    }

    fn sync(&mut self, name: &str, number: Number) {
        let file = self.open(name);
        match self.rng.chance(1, 3) {
            true => file.sync_data().unwrap(),
            false => file.sync_all().unwrap(),
        }
        self.folder.synced((self.now)(), number);
    }

    fn sync_names(&mut self) {
        File::open(&self.path).unwrap().sync_all().unwrap();
        self.folder.names_synced((self.now)());
    }

    fn sync_all(&mut self) {
        let folder = File::open(&self.path).unwrap();
        // SAFETY: a system call on an open file.
        assert_eq!(unsafe { libc::syncfs(folder.as_raw_fd()) }, 0);
        self.folder.all_synced((self.now)());
    }
}
