//! Compares the two indexes of contents: how much of what a perfect pass finds they find, how many entries a look-up is compared
//! with, and how long it takes. `cargo bench -p vellum-core --bench index`, and the same with `-- DIRECTORY` for a stream of real
//! contents.

#![allow(clippy::unwrap_used, reason = "not a server")]

#[path = "support/streams.rs"]
mod streams;

use std::time::Instant;
use streams::{Again, Chance, Shape};
use vellum_core::addr::Lba;
use vellum_core::index::{Holder, Index};
use vellum_core::policy::dedup::content_hash;
use vellum_core::seam::{CaftlSearch, EntryOrder, IndexKind};

const COMPACT_ENTRY: usize = 8;
/// The most blocks of a stream of files (32 GiB).
const FILE_BLOCKS_MAX: usize = 8 << 20;

fn main() {
    let mut all = vec![
        (
            "zeta 2.6, mostly soon",
            streams::zeta(200_000, 2.6, Again::MostlySoon),
        ),
        (
            "zeta 2.95, mostly soon",
            streams::zeta(200_000, 2.95, Again::MostlySoon),
        ),
        (
            "zeta 3.6, mostly soon",
            streams::zeta(200_000, 3.6, Again::MostlySoon),
        ),
        (
            "zeta 2.6, any time",
            streams::zeta(200_000, 2.6, Again::AnyTime),
        ),
        (
            "zeta 2.95, any time",
            streams::zeta(200_000, 2.95, Again::AnyTime),
        ),
        ("few hot, 23%", streams::few_hot(200_000, 23)),
        ("few hot, 55%", streams::few_hot(200_000, 55)),
        ("a set, written twice", streams::twice(200_000)),
    ];
    for directory in std::env::args().skip(1).filter(|arg| !arg.starts_with('-')) {
        let mut stream = Vec::new();
        streams::files(directory.as_ref(), FILE_BLOCKS_MAX, &mut stream);
        all.push(("files", stream));
    }
    shares(&all);
    loads();
    look_ups();
}

fn shares(all: &[(&str, Vec<u32>)]) {
    println!(
        "{:24} {:>7} {:>9} {:>9} | {:>8} {:>8} | {:>8} {:>8} {:>8} {:>8}",
        "percent of:", "blocks", "contents", "", "", "", "dupl.", "", "", ""
    );
    println!(
        "{:24} {:>7} {:>9} {:>9} | {:>8} {:>8} | {:>8} {:>8} {:>8} {:>8}",
        "stream",
        "dupl.",
        "contents",
        ">2 copies",
        "compact",
        "caftl",
        "compact",
        "caftl",
        "caftl 3x",
        "best set"
    );
    println!(
        "{:53}| {:^17} | {:^35}",
        "", "all, 90% load", "a tenth of them"
    );
    for (name, stream) in all {
        let shape = Shape::of(stream);
        let percent = |part: usize, whole: usize| part as f64 * 100.0 / whole.max(1) as f64;
        let run = |store, bytes| {
            percent(
                streams::found(stream, &mut Index::new(store, bytes)),
                shape.duplicates,
            )
        };
        let caftl = IndexKind::Caftl(CaftlSearch::default());
        let (tenth, whole) = (
            shape.unique / 10 * COMPACT_ENTRY,
            shape.unique * COMPACT_ENTRY * 10 / 9,
        );
        println!(
            "{name:24} {:7.1} {:9} {:9.1} | {:8.1} {:8.1} | {:8.1} {:8.1} {:8.1} {:8.1}",
            percent(shape.duplicates, stream.len()),
            shape.unique,
            percent(shape.hot, shape.unique),
            run(IndexKind::Compact, whole),
            run(caftl, whole * 3 / 2),
            run(IndexKind::Compact, tenth),
            run(caftl, tenth * 3 / 2),
            run(caftl, tenth * 3),
            percent(shape.of_best_tenth, shape.duplicates),
        );
    }
    println!(
        "compact: 8 B an entry; caftl: 12 B, the same number of entries; 3x: three times compact's \
         memory;\nbest set: duplicates of the tenth of the contents that has most\n"
    );
}

/// What is found of a whole set that is written a second time, by how full it makes the index.
fn loads() {
    const CONTENTS: u32 = 1_000_000;
    let stream = streams::twice(CONTENTS);
    println!("a set of {CONTENTS} contents, written twice");
    println!(
        "{:>5} {:>10} {:>8} {:>8}",
        "load", "B, compact", "compact", "caftl"
    );
    for load in [100, 95, 90, 80, 64, 32] {
        let bytes = CONTENTS as usize * COMPACT_ENTRY * 100 / load;
        let percent = |store, bytes| {
            let found = streams::found(&stream, &mut Index::new(store, bytes));
            found as f64 * 100.0 / f64::from(CONTENTS)
        };
        println!(
            "{load:4}% {:10.1} {:7.1}% {:7.1}%",
            bytes as f64 / f64::from(CONTENTS),
            percent(IndexKind::Compact, bytes),
            percent(IndexKind::Caftl(CaftlSearch::default()), bytes * 3 / 2),
        );
    }
    println!();
}

/// A full store of 16 MiB, and look-ups, one in eight of which finds something.
fn look_ups() {
    const BYTES: usize = 16 << 20;
    const LOOK_UPS: u64 = 2_000_000;
    println!("16 MiB, filled twice over; look-ups of 7 unknown contents to 1 known");
    println!(
        "{:34} {:>9} {:>12} {:>8} {:>8}",
        "store", "entries", "comparisons", "less", "ns"
    );
    let search = |order, range_check| IndexKind::Caftl(CaftlSearch { range_check, order });
    let mut plain = None;
    for (name, store) in [
        ("caftl", search(EntryOrder::Arrival, false)),
        ("caftl, range check", search(EntryOrder::Arrival, true)),
        ("caftl, by hotness", search(EntryOrder::Hotness, false)),
        (
            "caftl, by hotness, range check",
            search(EntryOrder::Hotness, true),
        ),
        ("caftl, by value", search(EntryOrder::Value, false)),
        (
            "caftl, by value, range check",
            search(EntryOrder::Value, true),
        ),
        ("compact", IndexKind::Compact),
    ] {
        let mut index = Index::new(store, BYTES);
        let contents = index.capacity() as u32 * 2;
        let mut chance = Chance(3);
        for content in 0..contents {
            let owners = if chance.next().is_multiple_of(8) {
                2 + chance.next() as u32 % 20
            } else {
                1
            };
            index.insert(
                content_hash(streams::checksum(content)),
                Holder::Lba(Lba(content.into())),
                owners,
            );
        }
        let (compared, began) = (index.comparisons(), Instant::now());
        let mut there = 0;
        for look_up in 0..LOOK_UPS {
            let from = if look_up % 8 == 0 { 0 } else { contents };
            let content = from + (chance.next() % u64::from(contents)) as u32;
            there += u64::from(
                index
                    .find(content_hash(streams::checksum(content)))
                    .is_some(),
            );
        }
        let nanos = began.elapsed().as_nanos() as f64 / LOOK_UPS as f64;
        let comparisons = (index.comparisons() - compared) as f64 / LOOK_UPS as f64;
        let plain = *plain.get_or_insert(comparisons);
        let less = (1.0 - comparisons / plain) * 100.0;
        println!(
            "{name:34} {:9} {comparisons:12.1} {less:7.1}% {nanos:8.0}",
            index.len()
        );
        assert!(there > 0);
    }
}
