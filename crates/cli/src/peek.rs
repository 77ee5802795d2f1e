//! Inspects a volume beside its server: what it is, and no more.

use crate::keys::Key;
use crate::opened::not_encrypted;
use crate::whole::not_whole;
use anyhow::{Context, Result, anyhow, bail};
use std::fs::{File, Metadata, OpenOptions};
use std::io::{Seek, SeekFrom};
use std::os::unix::fs::{FileExt, FileTypeExt, OpenOptionsExt};
use std::path::Path;
use vellum_core::addr::{BLOCK_BYTES, Pba};
use vellum_core::format::superblock::Superblock;
use vellum_core::recovery::{Source, Unreadable, find_superblock};
use vellum_device::crc32c;
use vellum_device::info::hex_uuid;
use vellum_medium::envelope::{Cipher, Envelope, START};
use vellum_medium::{MediumError, OpenError, lock};

const BLOCK: u64 = BLOCK_BYTES as u64;

/// A volume's file, without a lock, for what may be read beside a server.
struct Peek {
    file: File,
    blocks: u64,
    /// For an encrypted volume.
    cipher: Option<Cipher>,
}

impl Peek {
    fn open(path: &Path) -> Result<Self> {
        let mut file = opened(path)?;
        let bytes = file.seek(SeekFrom::End(0))?;
        let blocks = bytes / BLOCK;
        if blocks == 0 {
            bail!(
                "{} is no vellum volume: it has {bytes} bytes",
                path.display()
            );
        }
        let cipher = None;
        Ok(Self {
            file,
            blocks,
            cipher,
        })
    }

    /// The header, if the volume is encrypted.
    fn envelope(&self, path: &Path) -> Result<Option<Envelope>> {
        let name = path.display().to_string();
        let read = |at: Pba, bytes: &mut [u8]| {
            let done = self.file.read_exact_at(bytes, at.byte_offset());
            done.map_err(|error| MediumError::at("read", &name, at, error))
        };
        let plain = || {
            let Ok(mut plain) = Self::open(path) else {
                return false;
            };
            let blocks = plain.blocks;
            find_superblock(&mut plain, blocks, crc32c).is_ok()
        };
        Ok(Envelope::find_by(&name, self.blocks, &read, plain)?)
    }

    /// The blocks behind the header, if it is encrypted.
    fn volume_blocks(&self) -> u64 {
        let head = self.cipher.as_ref().map_or(0, |_| START);
        self.blocks.saturating_sub(head)
    }

    fn superblock(&mut self, path: &Path) -> Result<(Superblock, bool)> {
        let blocks = self.volume_blocks();
        find_superblock(self, blocks, crc32c).with_context(|| path.display().to_string())
    }

    /// The version of the format that the mirrors of this superblock name, the higher if a server was killed between the two.
    fn format(&mut self, superblock: &Superblock) -> u32 {
        let blocks = self.volume_blocks();
        let last = superblock.medium_blocks().saturating_sub(1);
        let versions = [Pba(0), Pba(last)].map(|at| {
            let mut block = [0; BLOCK_BYTES];
            self.read(at, &mut block).ok()?;
            let found = Superblock::decode(&block, blocks, crc32c)
                .or_else(|_| Superblock::decode_head(&block, blocks, crc32c))
                .ok()?;
            // In each version it follows the eight bytes of the magic number.
            let version = block[8..].first_chunk()?;
            (found.life() == superblock.life()).then(|| u32::from_le_bytes(*version))
        });
        versions.into_iter().flatten().max().unwrap_or(0)
    }
}

/// Opens what may be a volume, to read it.
pub fn opened(path: &Path) -> Result<File> {
    let refused = |error| OpenError::of("open", path, error);
    let missing = || anyhow!("{} does not exist", path.display());
    let found = std::fs::metadata(path).map_err(|error| match refused(error) {
        OpenError::NotFound { .. } => not_whole(path).unwrap_or_else(missing),
        error => error.into(),
    })?;
    // Before it is opened, because that does something to some devices.
    may_be_volume(path, &found)?;
    let mut options = OpenOptions::new();
    // A pipe that takes its place meanwhile must not keep us waiting.
    options
        .read(true)
        .custom_flags(libc::O_NOCTTY | libc::O_NONBLOCK);
    let file = lock::claim(path, || options.open(path)).map_err(OpenError::Locked)?;
    let file = file.map_err(refused)?;
    may_be_volume(path, &file.metadata()?)?;
    Ok(file)
}

fn may_be_volume(path: &Path, found: &Metadata) -> Result<(), OpenError> {
    let (path, kind) = (path.to_owned(), found.file_type());
    match () {
        () if kind.is_file() || kind.is_block_device() => Ok(()),
        () if kind.is_dir() => Err(OpenError::Directory { path }),
        () => Err(OpenError::WrongKind { path }),
    }
}

impl Source for Peek {
    fn read(&mut self, at: Pba, bytes: &mut [u8]) -> Result<(), Unreadable> {
        let blocks = (bytes.len() / BLOCK_BYTES) as u64;
        let head = self.cipher.as_ref().map_or(0, |_| START);
        self.file
            .read_exact_at(bytes, at.plus(head).byte_offset())
            .map_err(|_| Unreadable { at, blocks })?;
        if let Some(cipher) = &self.cipher {
            cipher.decrypt(at.0, bytes);
        }
        Ok(())
    }

    /// Beside a server the cache is the server's business: what is read here is only reported.
    fn drop_cache(&mut self) -> Result<(), Unreadable> {
        Ok(())
    }
}

/// A volume's superblock, and whether a mirror of it is lost. Read beside its server if there is one.
pub fn superblock_of(path: &Path, key: &Key) -> Result<(Superblock, bool)> {
    with_key(path, key)?.superblock(path)
}

/// The same, and the version of the volume's format.
pub fn described(path: &Path, key: &Key) -> Result<(Superblock, bool, u32)> {
    let mut peek = with_key(path, key)?;
    let (superblock, mirror_lost) = peek.superblock(path)?;
    let format = peek.format(&superblock);
    Ok((superblock, mirror_lost, format))
}

fn with_key(path: &Path, key: &Key) -> Result<Peek> {
    let mut peek = Peek::open(path)?;
    match peek.envelope(path)? {
        Some(envelope) => peek.cipher = Some(Cipher::new(&key.of(path, &envelope)?)),
        None if key.is_given() => return Err(not_encrypted(path)),
        None => {}
    }
    Ok(peek)
}

/// The number of blocks in a volume's file or device now.
pub fn blocks_of(path: &Path) -> Result<u64> {
    let peek = Peek::open(path)?;
    let head = peek.envelope(path)?.map_or(0, |_| START);
    Ok(peek.blocks.saturating_sub(head))
}

/// A volume's UUID, without the key even if it is encrypted.
pub fn uuid_of(path: &Path) -> Result<String> {
    let mut peek = Peek::open(path)?;
    let uuid = match peek.envelope(path)? {
        Some(envelope) => envelope.header().uuid(),
        None => peek.superblock(path)?.0.uuid(),
    };
    Ok(hex_uuid(&uuid))
}

/// The header of a volume, if it is encrypted.
pub fn envelope_of(path: &Path) -> Result<Option<Envelope>> {
    Peek::open(path)?.envelope(path)
}
