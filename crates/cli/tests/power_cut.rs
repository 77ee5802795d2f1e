//! The power fails under a mounted ext4, over a medium that then loses any part of what was not synced, in any order and torn
//! at sectors: what was fsynced is there, e2fsck finds nothing, the volume's invariants hold. On each layout.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod common;

use common::chain::{Chain, unmount};
use common::{can_attach, dir, eventually, replayed_and_faultless, run, text};
use std::fs::{self, File};
use std::io::Write;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use vellum_core::format::areas::Layout;
use vellum_device::inspect::check_medium;
use vellum_device::pack::Compression;
use vellum_device::policy::Policy;
use vellum_device::{CreateOptions, OpenOptions, Volume};
use vellum_medium::{FaultMedium, Medium, Plan};

/// How often, on each.
const LIVES: [(Layout, u64); 3] = [(Layout::Log, 6), (Layout::Ordered, 3), (Layout::Shadow, 3)];
/// 256 MiB.
const BLOCKS: u64 = 64 << 10;

/// A volume on the medium, as a block device.
struct Attached {
    volume: Arc<Volume>,
    chain: Chain,
}

impl Attached {
    fn up(medium: &Arc<dyn Medium>, layout: Layout, fuse: &Path, life: u64) -> Self {
        let policy = match layout {
            Layout::Log => Policy {
                compression: Compression::ALL[life as usize % Compression::ALL.len()],
                replay: life.is_multiple_of(2),
                ..Policy::default()
            },
            _ => Policy {
                dedup: life.is_multiple_of(2),
                ..Policy::default()
            },
        };
        let options = OpenOptions {
            policy,
            ..OpenOptions::default()
        };
        let volume = Arc::new(Volume::open(Arc::clone(medium), &options).unwrap());
        let chain = Chain::up(fuse, Arc::clone(&volume).into());
        Self { volume, chain }
    }

    /// Ends it. A loop device disappears when its last user does, and until then the volume would write to the medium.
    fn down(self) {
        drop(self.chain);
        eventually("nobody has the volume", || {
            Arc::strong_count(&self.volume) == 1
        });
    }

    fn device(&self) -> &str {
        self.chain.device()
    }
}

fn content(n: u64) -> Vec<u8> {
    n.to_le_bytes().repeat(512 * (n as usize % 5 + 1))
}

/// Makes files until it fails; `synced` is the last one that is durable, including its name. jbd2 ignores the result of the
/// flush after an asynchronous commit, so an fsync without power does not count.
fn write_on(mount: &Path, synced: &AtomicU64, medium: &FaultMedium) {
    let mut n = synced.load(Ordering::SeqCst);
    let one = |n: u64| -> std::io::Result<()> {
        let mut file = File::create(mount.join(format!("f{n}")))?;
        file.write_all(&content(n))?;
        file.sync_all()?;
        File::open(mount)?.sync_all()
    };
    while one(n + 1).is_ok() && !medium.is_off() {
        n += 1;
        synced.store(n, Ordering::SeqCst);
    }
}

#[test]
fn a_mounted_ext4_misses_nothing_synced_after_a_power_cut() {
    if !can_attach("a_mounted_ext4_misses_nothing_synced_after_a_power_cut") {
        return;
    }
    for (layout, lives) in LIVES {
        lives_under_ext4(layout, lives);
    }
}

fn lives_under_ext4(layout: Layout, lives: u64) {
    let dir = dir();
    let (fuse, mount) = (dir.path().join("fuse"), dir.path().join("mnt"));
    fs::create_dir(&fuse).unwrap();
    fs::create_dir(&mount).unwrap();
    let faulty = Arc::new(FaultMedium::over_memory(BLOCKS, Plan::default()));
    let medium: Arc<dyn Medium> = faulty.clone();
    let options = CreateOptions {
        layout,
        ..CreateOptions::default()
    };
    Volume::create(&*medium, &options).unwrap();
    let synced = AtomicU64::new(0);
    for life in 0..lives {
        faulty.set_plan(Plan::seeded(life));
        let attached = Attached::up(&medium, layout, &fuse, life);
        if life == 0 {
            run("mkfs.ext4", &["-q", "-F", "-b", "4096", attached.device()]);
        }
        let options = match layout.keeps_order() {
            true => "data=journal,journal_async_commit",
            false => "data=journal",
        };
        run("mount", &["-o", options, attached.device(), text(&mount)]);
        let before = synced.load(Ordering::SeqCst);
        std::thread::scope(|scope| {
            let writer = scope.spawn(|| write_on(&mount, &synced, &faulty));
            while synced.load(Ordering::SeqCst) < before + 60 + 17 * life {
                assert!(
                    !writer.is_finished(),
                    "{layout:?}, life {life}: a write failed"
                );
                std::thread::sleep(Duration::from_millis(1));
            }
            faulty.power_cut(life);
        });
        unmount(&mount);
        attached.down();
        faulty.restart();

        let attached = Attached::up(&medium, layout, &fuse, life);
        println!("{layout:?}, life {life}");
        replayed_and_faultless(attached.device(), &mount, options);
        run("mount", &["-o", "ro", attached.device(), text(&mount)]);
        let total = synced.load(Ordering::SeqCst);
        for n in 1..=total {
            let got = fs::read(mount.join(format!("f{n}"))).unwrap_or_default();
            assert!(
                got == content(n),
                "{layout:?}, life {life}: synced file {n} of {total} is lost or changed"
            );
        }
        unmount(&mount);
        attached.volume.stop().unwrap();
        attached.down();
        let all = vellum_core::check::Options {
            data: true,
            ..Default::default()
        };
        let report = check_medium(&*medium, all);
        assert!(report.is_sound(), "{layout:?}: {:?}", report.findings);
    }
}
