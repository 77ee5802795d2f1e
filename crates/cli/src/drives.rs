//! The drives below files and devices, according to the kernel, and what they report about themselves.

mod below;
mod smart;

use crate::host;
use parking_lot::Mutex;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};
use vellum_ops::Observed;
use vellum_ops::drive::{Drive, Wear, of_estimates};
use vellum_ops::view::drive_of;

/// How long a drive's reported wear is cached: it grows slowly, and running smartctl is costly.
const ASKED_EVERY: Duration = Duration::from_secs(600);
/// How long drives may take to answer before the others' reports are given without theirs.
const PATIENCE: Duration = Duration::from_secs(2);
/// The kernel's unit, whatever the drive's own sector size is.
const SECTOR_BYTES: u64 = 512;

/// Where the kernel describes its devices.
fn system() -> PathBuf {
    PathBuf::from("/sys")
}

/// The drives below a file or a device, and what the kernel has written to them since boot, for later requests to the server.
pub fn told_of(path: &Path) -> Value {
    match below::drives(&system(), path) {
        Err(why) => json!({ "unknown": why }),
        Ok(names) => {
            let written = names.iter().map(|name| written_bytes(&system(), name));
            json!({"names": names, "written_bytes": written.sum::<Option<u64>>()})
        }
    }
}

/// What was written to a drive, from its statistics: sectors are the seventh field.
fn written_bytes(system: &Path, name: &str) -> Option<u64> {
    let stat = std::fs::read_to_string(system.join("block").join(name).join("stat")).ok()?;
    let sectors: u64 = stat.split_whitespace().nth(6)?.parse().ok()?;
    sectors.checked_mul(SECTOR_BYTES)
}

/// What a drive tells of its wear.
type WearReport = Result<Wear, String>;

/// A drive that was queried: when, and its answer, once it is there.
type DriveQuery = (Instant, Arc<OnceLock<WearReport>>);

/// Drives and their cached reports.
pub struct Drives {
    promised: BTreeMap<String, u64>,
    ask: fn(&str) -> WearReport,
    asked: Mutex<BTreeMap<String, DriveQuery>>,
}

impl Drives {
    /// Knows how many bytes the data sheets of these drives promise.
    pub fn new(promised: impl Iterator<Item = Promise>) -> Self {
        Self {
            promised: promised.map(|it| (it.drive, it.bytes)).collect(),
            ask: wear,
            asked: Mutex::default(),
        }
    }

    /// The drives below these volumes, each once.
    pub fn below(&self, volumes: &[Observed]) -> Vec<Drive> {
        let names = volumes.iter().filter_map(|volume| drive_of(volume).ok());
        let names: BTreeSet<_> = names.collect();
        // A name reported by another user's server can only lead to a drive.
        let names = names
            .into_iter()
            .filter(|name| !name.contains('/') && !name.starts_with('.'));
        let told = self.told(names.collect());
        told.into_iter()
            .map(|(name, wear)| self.drive(name, wear))
            .collect()
    }

    /// What these drives tell. A drive that hangs delays the others' answers only a little, and it is not asked again meanwhile.
    fn told(&self, names: Vec<String>) -> Vec<(String, WearReport)> {
        let asked: Vec<_> = names.iter().map(|name| self.asked(name)).collect();
        host::eventually(PATIENCE, || asked.iter().all(|one| one.get().is_some()));
        let told = |name: String, one: &OnceLock<WearReport>| {
            let silent = || Err(format!("{name} does not answer"));
            let told = one.get().cloned().unwrap_or_else(silent);
            (name, told)
        };
        names
            .into_iter()
            .zip(&asked)
            .map(|(name, one)| told(name, one))
            .collect()
    }

    /// The last answer of a drive, or the place for one that is on its way.
    fn asked(&self, name: &str) -> Arc<OnceLock<WearReport>> {
        let mut asked = self.asked.lock();
        let is_known =
            |(at, answer): &&DriveQuery| at.elapsed() < ASKED_EVERY || answer.get().is_none();
        if let Some((_, answer)) = asked.get(name).filter(is_known) {
            return Arc::clone(answer);
        }
        let answer = Arc::new(OnceLock::new());
        asked.insert(name.to_owned(), (Instant::now(), Arc::clone(&answer)));
        let (ask, drive, place) = (self.ask, name.to_owned(), Arc::clone(&answer));
        let thread = std::thread::Builder::new().spawn(move || place.set(ask(&drive)));
        if let Err(error) = thread {
            let _ = answer.set(Err(format!("{name} cannot be asked: {error}")));
        }
        answer
    }

    fn drive(&self, name: String, wear: WearReport) -> Drive {
        Drive {
            model: about(&name, "model").or_else(|| about(&name, "name")),
            written_bytes: written_bytes(&system(), &name),
            wear,
            promised_bytes: self.promised.get(&name).copied(),
            name,
        }
    }
}

/// Asks a drive for its wear.
fn wear(name: &str) -> WearReport {
    match about(name, "life_time") {
        Some(estimates) => of_estimates(&estimates),
        None => smart::wear(name),
    }
}

/// What the kernel knows of a drive.
fn about(name: &str, what: &str) -> Option<String> {
    let path = system().join("block").join(name).join("device").join(what);
    let text = std::fs::read_to_string(path).ok()?;
    Some(text.trim().to_owned()).filter(|text| !text.is_empty())
}

/// What a drive's data sheet promises, as `nvme0n1=600`: in terabytes, as data sheets state it ("TBW").
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
    use std::sync::atomic::{AtomicU32, Ordering};

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
    fn a_drive_that_hangs_is_asked_once_and_the_others_answer() {
        static ASKED: AtomicU32 = AtomicU32::new(0);
        let mut drives = Drives::new(std::iter::empty());
        drives.ask = |name| {
            if name == "sda" {
                ASKED.fetch_add(1, Ordering::SeqCst);
                std::thread::sleep(Duration::from_secs(3600));
            }
            Err(format!("{name} tells nothing"))
        };
        let told = || -> Vec<_> {
            let told = drives.told(vec!["sda".to_owned(), "sdb".to_owned()]);
            told.into_iter()
                .filter_map(|(_, told)| told.err())
                .collect()
        };
        let expected = ["sda does not answer", "sdb tells nothing"];
        let are_both_asked = || told() == expected && ASKED.load(Ordering::SeqCst) > 0;
        assert!(host::eventually(Duration::from_secs(60), are_both_asked));
        assert_eq!(told(), expected);
        assert_eq!(ASKED.load(Ordering::SeqCst), 1);
    }

    #[test]
    fn kernel_sectors_are_converted_to_bytes() {
        let system = tempfile::tempdir().unwrap();
        let folder = system.path().join("block/sda");
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::write(folder.join("stat"), "  1 2 3 4 5 6 1000 8 9 10 11\n").unwrap();
        assert_eq!(written_bytes(system.path(), "sda"), Some(512_000));
        std::fs::write(folder.join("stat"), "1 2 3").unwrap();
        assert_eq!(written_bytes(system.path(), "sda"), None);
    }
}
