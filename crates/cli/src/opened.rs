//! The one place where commands open a volume's medium: they see a medium, whether or not it is encrypted.

use crate::keys::Key;
use crate::outcome::usage;
use crate::whole::not_whole;
use anyhow::Result;
use std::fs::File;
use std::path::Path;
use vellum_core::recovery::find_superblock;
use vellum_device::{MediumSource, crc32c};
use vellum_medium::envelope::Envelope;
use vellum_medium::{EncryptedMedium, FileMedium, Medium, OpenError, OpenOptions};

/// Opens the file of a volume, if no other process has it.
pub fn file(path: &Path, read_only: bool) -> Result<FileMedium> {
    file_again(None, path, read_only)
}

/// The same; what is held open is opened again, whatever is at its path by now.
fn file_again(held: Option<&File>, path: &Path, read_only: bool) -> Result<FileMedium> {
    let options = OpenOptions { read_only };
    let opened = match held {
        Some(held) => FileMedium::open_again(held, path, options),
        None => FileMedium::open(path, options),
    };
    opened.map_err(|error| match error {
        OpenError::NotFound { .. } => not_whole(path).unwrap_or_else(|| error.into()),
        error => error.into(),
    })
}

/// Opens a medium for reading and writing, if no other process has it.
pub fn open(path: &Path, read_only: bool, key: &Key) -> Result<Box<dyn Medium>> {
    open_again(None, path, read_only, key)
}

/// The same; what is held open is opened again, whatever is at its path by now.
pub fn open_again(
    held: Option<&File>,
    path: &Path,
    read_only: bool,
    key: &Key,
) -> Result<Box<dyn Medium>> {
    let medium = file_again(held, path, read_only)?;
    let Some(mut envelope) = envelope_of(&medium)? else {
        if key.is_given() {
            return Err(not_encrypted(path));
        }
        return Ok(Box::new(medium));
    };
    let volume_key = key.of(path, &envelope)?;
    if !read_only {
        envelope.repair(&medium)?;
    }
    Ok(Box::new(EncryptedMedium::new(medium, &volume_key)))
}

/// The header of an encrypted medium.
pub fn envelope_of(medium: &FileMedium) -> Result<Option<Envelope>> {
    let plain = || find_superblock(&mut MediumSource::new(medium), medium.blocks(), crc32c).is_ok();
    Ok(Envelope::find(medium, plain)?)
}

/// A user who gives a key relies on the volume not being written by anyone else.
pub fn not_encrypted(path: &Path) -> anyhow::Error {
    usage(format!(
        "{} is not encrypted, and the key that was given says that it is",
        path.display()
    ))
}
