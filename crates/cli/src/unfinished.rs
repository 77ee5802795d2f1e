//! The mark of a volume that another one is being copied into. It stays until all of the copy is there, so nobody takes half of it
//! for the whole, and nobody writes what the rest of the copy would write over.
//!
//! It is a property, so it is wherever the volume is. Older versions keep it, and pass over it.

use crate::state;
use anyhow::{Result, bail};
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use vellum_core::format::properties::{Properties, Value};
use vellum_core::format::superblock::Superblock;
use vellum_device::Volume;

/// The property. Its value is the name of the command that copies.
pub const MARK: &str = "unfinished";

/// Which command copies.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum By {
    /// It goes on where it was.
    Migrate,
    /// It begins anew.
    Rescue,
}

impl By {
    fn name(self) -> &'static str {
        match self {
            Self::Migrate => "migrate",
            Self::Rescue => "rescue",
        }
    }

    fn put(self, properties: &mut Properties) -> Result<()> {
        Ok(properties.set(MARK, Some(Value::text(self.name())))?)
    }
}

/// Chooses the properties of a new volume as `choose` does, and the mark.
pub fn marked(
    by: By,
    choose: impl Fn(&Superblock) -> Result<Properties>,
) -> impl Fn(&Superblock) -> Result<Properties> {
    move |planned| {
        let mut chosen = choose(planned)?;
        by.put(&mut chosen)?;
        Ok(chosen)
    }
}

/// Marks a volume that is there.
#[cfg(test)]
pub fn mark(by: By, volume: &Volume) -> Result<()> {
    let mut properties = volume.properties();
    by.put(&mut properties)?;
    Ok(volume.set_properties(&properties)?)
}

/// True if the volume has the mark.
pub fn is_marked(volume: &Volume) -> bool {
    volume.properties().get(MARK).is_some()
}

/// Removes the mark: all of the copy is there, and durable.
pub fn end(volume: &Volume) -> Result<()> {
    let mut properties = volume.properties();
    properties.set(MARK, None)?;
    Ok(volume.set_properties(&properties)?)
}

/// Refuses a volume with the mark, and says what can be done.
pub fn refuse(path: &Path, superblock: &Superblock) -> Result<()> {
    let Some(by) = superblock.properties().get(MARK) else {
        return Ok(());
    };
    let shown = path.display();
    let is_migrate = by.as_text() == Some(By::Migrate.name());
    let command = if is_migrate { By::Migrate } else { By::Rescue }.name();
    let again = match (is_migrate, is_device(path)) {
        (true, false) => format!(
            "Give the same command again: it goes on. Or give it up: remove {shown} and {shown}.migrating"
        ),
        (true, true) => format!(
            "Give the same command again: it goes on; or, if it says that a volume is there, add --force: \
             it begins anew. Or give it up, and make another volume on {shown} with --force"
        ),
        (false, false) => {
            format!("Give the same command again: it begins anew. Or remove {shown}")
        }
        (false, true) => "Give the same command again with --force: it begins anew".to_owned(),
    };
    bail!(
        "{shown} is only half a copy: a `vellum {command}` into it has not ended. {again}. \
         `vellum set {shown} {MARK}=default` takes what is there for the whole"
    )
}

/// True if there is a block device.
pub fn is_device(path: &Path) -> bool {
    std::fs::metadata(path).is_ok_and(|there| there.file_type().is_block_device())
}

/// True if both paths lead to one file or device.
pub fn is_one_file(a: &Path, b: &Path) -> bool {
    matches!((a.metadata(), b.metadata()), (Ok(a), Ok(b)) if state::is_same(&a, &b))
}

/// The path with something appended to its name.
pub fn beside(path: &Path, suffix: &str) -> PathBuf {
    let mut path = path.as_os_str().to_owned();
    path.push(suffix);
    path.into()
}
