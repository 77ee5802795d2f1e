//! The drives that files and devices lie on, as the kernel tells it, and what they tell of themselves.

mod below;
mod smart;

use parking_lot::Mutex;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use vellum_ops::Observed;
use vellum_ops::drive::{Drive, Wear, of_estimates};
use vellum_ops::view::drive_of;

/// What a drive tells of its wear is asked again after this time: it grows slowly, and smartctl is a program to run.
const ASKED_EVERY: Duration = Duration::from_secs(600);
/// The kernel counts in these, whatever the drive's own are.
const SECTOR_BYTES: u64 = 512;

/// Where the kernel tells of its devices.
fn system() -> PathBuf {
    PathBuf::from("/sys")
}

/// The drives that a file or a device lies on, and what the kernel has written to them since boot: for who asks the server later.
pub fn told_of(path: &Path) -> Value {
    match below::drives(&system(), path) {
        Err(why) => json!({ "unknown": why }),
        Ok(names) => {
            let written = names.iter().map(|name| written_bytes(&system(), name));
            json!({"names": names, "written_bytes": written.sum::<Option<u64>>()})
        }
    }
}

/// What is written to a drive, by its statistics: sectors are the seventh figure.
fn written_bytes(system: &Path, name: &str) -> Option<u64> {
    let stat = std::fs::read_to_string(system.join("block").join(name).join("stat")).ok()?;
    let sectors: u64 = stat.split_whitespace().nth(6)?.parse().ok()?;
    sectors.checked_mul(SECTOR_BYTES)
}

/// When a drive was asked, and what it said.
type Told = (Instant, Result<Wear, String>);

/// Drives, and what they have told lately.
#[derive(Default)]
pub struct Drives {
    promised: BTreeMap<String, u64>,
    told: Mutex<BTreeMap<String, Told>>,
}

impl Drives {
    /// Of these, it is known how many bytes their data sheets promise.
    pub fn new(promised: impl Iterator<Item = Promise>) -> Self {
        Self {
            promised: promised.map(|it| (it.drive, it.bytes)).collect(),
            told: Mutex::default(),
        }
    }

    /// Those that volumes lie on, each once.
    pub fn below(&self, volumes: &[Observed]) -> Vec<Drive> {
        let names = volumes.iter().filter_map(|volume| drive_of(volume).ok());
        let names: std::collections::BTreeSet<_> = names.collect();
        // A name from a server of somebody else leads nowhere but to a drive.
        let names = names
            .into_iter()
            .filter(|name| !name.contains('/') && !name.starts_with('.'));
        names.map(|name| self.drive(name)).collect()
    }

    fn drive(&self, name: String) -> Drive {
        let about = |file: &str| {
            let path = system().join("block").join(&name).join("device").join(file);
            let text = std::fs::read_to_string(path).ok()?;
            Some(text.trim().to_owned()).filter(|text| !text.is_empty())
        };
        let mut told = self.told.lock();
        let known = told.get(&name).filter(|(at, _)| at.elapsed() < ASKED_EVERY);
        let wear = match known {
            Some((_, wear)) => wear.clone(),
            None => {
                let wear = match about("life_time") {
                    Some(estimates) => of_estimates(&estimates),
                    None => smart::wear(&name),
                };
                told.insert(name.clone(), (Instant::now(), wear.clone()));
                wear
            }
        };
        Drive {
            model: about("model").or_else(|| about("name")),
            written_bytes: written_bytes(&system(), &name),
            wear,
            promised_bytes: self.promised.get(&name).copied(),
            name,
        }
    }
}

/// What a drive's data sheet promises to take, as `nvme0n1=600`: in terabytes, as data sheets have it ("TBW").
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Promise {
    drive: String,
    bytes: u64,
}

impl std::str::FromStr for Promise {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("{text:?} is not DRIVE=TERABYTES, like nvme0n1=600");
        let (drive, terabytes) = text.split_once('=').ok_or_else(wrong)?;
        let drive = drive.strip_prefix("/dev/").unwrap_or(drive);
        let terabytes: u64 = terabytes.parse().map_err(|_| wrong())?;
        if drive.is_empty() || drive.contains('/') || !(1..=1_000_000).contains(&terabytes) {
            return Err(wrong());
        }
        Ok(Self {
            drive: drive.to_owned(),
            bytes: terabytes * 1_000_000_000_000,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_data_sheet_is_in_terabytes() {
        let read = |text: &str| text.parse::<Promise>();
        let bytes = 600_000_000_000_000;
        let drive = "nvme0n1".to_owned();
        assert_eq!(read("nvme0n1=600"), Ok(Promise { drive, bytes }));
        assert_eq!(read("/dev/nvme0n1=600"), read("nvme0n1=600"));
        for wrong in [
            "600",
            "sda=",
            "=600",
            "sda=0",
            "sda=600T",
            "/dev/disk/by-id/x=1",
            "sda=1000001",
        ] {
            assert!(read(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn sectors_of_the_kernel_are_bytes() {
        let system = tempfile::tempdir().unwrap();
        let folder = system.path().join("block/sda");
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::write(folder.join("stat"), "  1 2 3 4 5 6 1000 8 9 10 11\n").unwrap();
        assert_eq!(written_bytes(system.path(), "sda"), Some(512_000));
        std::fs::write(folder.join("stat"), "1 2 3").unwrap();
        assert_eq!(written_bytes(system.path(), "sda"), None);
    }
}
