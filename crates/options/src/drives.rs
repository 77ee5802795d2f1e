//! A drive, given by name or as a file.

use std::fs::File;
use std::io::Read;
use std::path::Path;
use std::sync::Arc;
use vellum_lab::drives::{self, DriveFile, FILE_BYTES_MAX};

/// The drive with this name, or in this file. Text that is not a known name is a path if it has a folder or the file ending.
pub fn named(text: &str) -> Result<Arc<DriveFile>, String> {
    if let Some(drive) = drives::find(text) {
        return Ok(Arc::new(drive.clone()));
    }
    let path = Path::new(text);
    if !text.contains('/') && path.extension().is_none_or(|kind| kind != "toml") {
        let names: Vec<_> = drives::known().iter().map(|drive| &*drive.name).collect();
        return Err(format!(
            "there are {}; or name a file of your own that ends in .toml",
            names.join(", ")
        ));
    }
    let mut bytes = Vec::new();
    File::open(path)
        .and_then(|file| file.take(FILE_BYTES_MAX as u64 + 1).read_to_end(&mut bytes))
        .map_err(|error| format!("cannot read it: {error}"))?;
    let text = String::from_utf8(bytes).map_err(|_| "it is no text (UTF-8)".to_owned())?;
    let name = path.file_stem().unwrap_or_default().to_string_lossy();
    let drive = DriveFile::read(&name, &text).map_err(|error| error.to_string())?;
    Ok(Arc::new(drive))
}
