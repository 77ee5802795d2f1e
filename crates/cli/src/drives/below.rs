//! Finds the drives below a file or a device, through partitions, mirrors, encryption and loop devices.

use std::collections::BTreeSet;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

/// A deeper stack is assumed to be a cycle.
const DEPTH_MAX: usize = 16;

/// Returns the names of the drives, in order.
///
/// # Errors
/// Why they are not known.
pub fn drives(system: &Path, path: &Path) -> Result<Vec<String>, String> {
    let mut found = BTreeSet::new();
    of_path(system, path, DEPTH_MAX, &mut found)?;
    Ok(found.into_iter().collect())
}

fn of_path(
    system: &Path,
    path: &Path,
    deep: usize,
    found: &mut BTreeSet<String>,
) -> Result<(), String> {
    let shown = path.display();
    let meta = path.metadata();
    let meta = meta.map_err(|error| format!("{shown} cannot be looked at: {error}"))?;
    let device = match meta.file_type().is_block_device() {
        true => meta.rdev(),
        false => meta.dev(),
    };
    let (major, minor) = (libc::major(device), libc::minor(device));
    let link = system.join(format!("dev/block/{major}:{minor}"));
    match link.canonicalize() {
        Ok(folder) => of_device(system, &folder, deep, found),
        Err(_) => {
            let source = mounted_from(device);
            let source = source.filter(|source| source.starts_with("/dev/") && deep > 0);
            let hides = || format!("the file system of {shown} does not say on which drive it is");
            of_path(system, &source.ok_or_else(hides)?, deep - 1, found)
        }
    }
}

fn of_device(
    system: &Path,
    folder: &Path,
    deep: usize,
    found: &mut BTreeSet<String>,
) -> Result<(), String> {
    let Some(deep) = deep.checked_sub(1) else {
        return Err("there are too many devices on each other".to_owned());
    };
    if folder.join("partition").exists() {
        let whole = folder.parent().unwrap_or(folder);
        return of_device(system, whole, deep, found);
    }
    let slaves = std::fs::read_dir(folder.join("slaves"));
    let slaves: Vec<_> = slaves.into_iter().flatten().flatten().collect();
    for slave in &slaves {
        let slave = slave
            .path()
            .canonicalize()
            .map_err(|error| error.to_string())?;
        of_device(system, &slave, deep, found)?;
    }
    if !slaves.is_empty() {
        return Ok(());
    }
    if let Ok(file) = std::fs::read_to_string(folder.join("loop/backing_file")) {
        return of_path(system, Path::new(file.trim_end_matches('\n')), deep, found);
    }
    let name = folder.file_name().unwrap_or_default().to_string_lossy();
    found.insert(name.into_owned());
    Ok(())
}

/// The source of the mount with this device number, for file systems with numbers of their own, such as btrfs.
fn mounted_from(device: u64) -> Option<PathBuf> {
    // A name that is not UTF-8, which any user may give, spoils its own line only.
    let mounts = std::fs::read("/proc/self/mountinfo").ok()?;
    let mounts = String::from_utf8_lossy(&mounts);
    let wanted = format!("{}:{}", libc::major(device), libc::minor(device));
    let line = mounts
        .lines()
        .find(|line| line.split(' ').nth(2) == Some(&wanted))?;
    let (_, rest) = line.split_once(" - ")?;
    rest.split(' ').nth(1).map(PathBuf::from)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    /// A file on an encrypted mirror of a partition and a whole drive.
    #[test]
    fn drives_are_found_through_layers() {
        let folder = tempfile::tempdir().unwrap();
        let system = folder.path().join("sys");
        let file = folder.path().join("file");
        std::fs::write(&file, "").unwrap();
        let devices = system.join("devices");
        for made in ["dm-0/slaves", "md0/slaves", "sda/sda1", "sdb"] {
            std::fs::create_dir_all(devices.join(made)).unwrap();
        }
        std::fs::write(devices.join("sda/sda1/partition"), "1").unwrap();
        for (slave, of) in [("md0", "dm-0"), ("sda/sda1", "md0"), ("sdb", "md0")] {
            let name = slave.replace('/', "-");
            symlink(
                devices.join(slave),
                devices.join(of).join("slaves").join(name),
            )
            .unwrap();
        }
        let device = file.metadata().unwrap().dev();
        let number = format!("{}:{}", libc::major(device), libc::minor(device));
        std::fs::create_dir_all(system.join("dev/block")).unwrap();
        symlink(devices.join("dm-0"), system.join("dev/block").join(number)).unwrap();
        assert_eq!(
            drives(&system, &file),
            Ok(vec!["sda".to_owned(), "sdb".to_owned()])
        );
        // A cycle ends.
        symlink(devices.join("dm-0"), devices.join("md0/slaves/dm-0")).unwrap();
        assert!(drives(&system, &file).unwrap_err().contains("too many"));
        assert!(
            drives(&system, Path::new("/nowhere"))
                .unwrap_err()
                .contains("/nowhere")
        );
        assert!(
            drives(&system, Path::new("/proc/version"))
                .unwrap_err()
                .contains("does not say")
        );
    }
}
