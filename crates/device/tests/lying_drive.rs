//! A drive that loses writes, or puts them elsewhere, and reports success. Nothing that such a drive keeps is promised. But while
//! the volume is served, a read returns what was written, or an error: no block is another's, and none is an older one.
//! Afterwards a block may be an older one. After one lie it is not another's. After many it may be, in a segment all of whose
//! writes went astray, and a check reports it.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use common::{Client, Random, create_as, open, open_packing, small};
use std::collections::BTreeSet;
use std::sync::Arc;
use vellum_core::addr::Lba;
use vellum_core::check::{Options, Problem};
use vellum_core::format::areas::Layout;
use vellum_device::Volume;
use vellum_device::inspect::check_medium;
use vellum_device::pack::Compression;
use vellum_medium::{Fault, FaultMedium, Medium, Plan};

const BLOCKS: u64 = 300;
/// The medium gets more writes than this in each life.
const WRITES: u64 = 30;
/// A block with a write that was refused.
const UNKNOWN: u64 = u64::MAX;

/// The results of lives.
#[derive(Debug, Default)]
struct Told {
    right: u64,
    errors: u64,
    /// Blocks read after the next opening, and those of them that were another block.
    after: u64,
    others: u64,
}

/// The contents of blocks, and everything that each of them ever held.
struct Blocks {
    now: Vec<u64>,
    ever: Vec<BTreeSet<u64>>,
    fresh: u64,
}

fn write_on(client: &mut Client<Volume>, blocks: &mut Blocks, random: &mut Random) {
    for number in 0..600u64 {
        let length = 1 + random.below(4);
        let lba = random.below(BLOCKS - length);
        let fills: Vec<u64> = (0..length).map(|n| blocks.fresh + n).collect();
        blocks.fresh += length;
        // It may be refused: then its contents are unknown.
        let is_there = client.write(lba, &fills).is_ok();
        for (fill, at) in fills.iter().zip(lba as usize..) {
            blocks.now[at] = if is_there { *fill } else { UNKNOWN };
            blocks.ever[at].insert(*fill);
        }
        if number % 50 == 0 {
            let _ = client.flush();
        }
    }
}

/// How often a drive lies in a life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Lies {
    Once,
    /// In 20 of 1000 writes.
    Often,
}

fn lives_with(fault: Fault, lies: Lies, layout: Layout, seed: u64, told: &mut Told) {
    let medium = Arc::new(FaultMedium::over_memory(3000, Plan::default()));
    create_as(&*medium, layout);
    let as_medium: Arc<dyn Medium> = medium.clone();
    let volume = match layout {
        // Only a log stores blocks in fewer bytes.
        Layout::Log if seed % 2 == 1 => open_packing(&as_medium, Compression::Lz4),
        _ => open(&as_medium),
    };
    let mut client = Client::new(&volume);
    let mut random = Random(seed);
    let mut blocks = Blocks {
        now: vec![0; BLOCKS as usize],
        ever: vec![BTreeSet::from([0]); BLOCKS as usize],
        fresh: 1,
    };
    write_on(&mut client, &mut blocks, &mut random);
    let plan = Plan::seeded(seed);
    medium.set_plan(match lies {
        Lies::Once => plan.with_nth(fault, random.below(WRITES)),
        Lies::Often => plan.with_rate(fault, 20_000),
    });
    for _ in 0..3 {
        write_on(&mut client, &mut blocks, &mut random);
        for (lba, fill) in (0..).zip(&blocks.now) {
            match client.read(lba, 1) {
                Err(_) => told.errors += 1,
                Ok(_) if *fill == UNKNOWN => {}
                Ok(found) => {
                    told.right += 1;
                    assert_eq!(
                        found,
                        [*fill],
                        "{fault:?} {layout:?} seed {seed}: LBA {lba}"
                    );
                }
            }
        }
    }
    let _ = volume.stop();
    drop((client, volume));
    medium.set_plan(Plan::default());
    let others = after_that(&as_medium, &blocks, told);
    let of = format!("{fault:?} {lies:?} {layout:?} seed {seed}");
    if lies == Lies::Once {
        let times = medium.stats().faults[fault as usize];
        assert_eq!(times, 1, "{of}: it has lied as often");
        assert_eq!(others, [], "{of}: LBAs, and what they are");
    } else if !others.is_empty() {
        // All writes to a segment, and that of its summary, have gone astray: the old contents are whole.
        let report = check_medium(&*medium, Options::default());
        for (lba, found) in others {
            let is_told = report.findings.iter().any(|problem| match problem {
                Problem::Owner { lba: of, .. } => *of == Lba(lba),
                _ => false,
            });
            assert!(
                layout == Layout::Log && is_told,
                "{of}: LBA {lba} is {found}, and no check tells"
            );
            told.others += 1;
        }
    }
}

/// Opens the volume again. What such a drive has kept may be too old or lost, or no volume any more. Returns the LBAs that hold
/// another block, with its number.
fn after_that(medium: &Arc<dyn Medium>, blocks: &Blocks, told: &mut Told) -> Vec<(u64, u64)> {
    let Ok(volume) = Volume::open(medium.clone(), &small()) else {
        return Vec::new();
    };
    let mut client = Client::new(&Arc::new(volume));
    let mut others = Vec::new();
    for (lba, ever) in (0..).zip(&blocks.ever) {
        if let Ok(found) = client.read(lba, 1) {
            told.after += 1;
            let [found] = found[..] else { unreachable!() };
            if !ever.contains(&found) {
                others.push((lba, found));
            }
        }
    }
    others
}

fn lives(fault: Fault) {
    let is_long = std::env::var_os("VELLUM_LONG").is_some();
    for layout in [Layout::Log, Layout::Ordered, Layout::Shadow] {
        for lies in [Lies::Once, Lies::Often] {
            let mut told = Told::default();
            let seeds = match lies {
                Lies::Once if is_long => 40,
                Lies::Once => 12,
                Lies::Often => 8,
            };
            (0..seeds).for_each(|seed| lives_with(fault, lies, layout, seed, &mut told));
            println!("{fault:?} {lies:?} {layout:?}: {told:?}");
            let is_noticed = lies == Lies::Once || told.errors > 0;
            assert!(
                told.right > 1000 && is_noticed,
                "{fault:?} {lies:?} {layout:?}: {told:?}"
            );
        }
    }
}

#[test]
fn a_lost_write_is_an_error_and_never_older_data() {
    lives(Fault::LostWrite);
}

#[test]
fn a_misdirected_write_is_an_error_and_never_others_data() {
    lives(Fault::MisdirectedWrite);
}
