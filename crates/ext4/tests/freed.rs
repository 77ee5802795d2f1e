//! A host with a journal, which orders its writes like ext4 and jbd2, over a device that drops the blocks it believes
//! freed. After each step the device may crash, and a replay of the journal must find what a device without drops has.
//!
//! The model's host does everything that Linux may do. Transaction `T + 1` runs while `T` is being committed, and what
//! it allocates is written before `T` is. In data=writeback it reuses what `T` has freed. Bitmaps are written home
//! late, repeatedly, and while nothing else waits. The host crashes alone and replays in any order. Tools write bitmaps
//! without the journal.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a failure is a test's"
)]

mod host;

#[path = "../../../fuzz/src/ext4.rs"]
#[allow(dead_code, reason = "the targets' own parts are not used here")]
mod ext4;

use host::{Host, Mode, Rng, Twist};

/// Runs one host. Returns how many blocks were dropped.
type Life = fn(u64, Twist) -> u64;

/// Runs one host's lives. Returns how many blocks were dropped.
fn live(seed: u64, twist: Twist) -> u64 {
    let mut rng = Rng(seed);
    let mode = rng
        .pick(&[Mode::Ordered, Mode::Writeback, Mode::Journal])
        .unwrap();
    let lives = 1 + rng.below(4);
    let mut host = Host::new(&mut rng, mode, twist);
    for _ in 0..lives {
        for _ in 0..host.rng.below(600) {
            host.step();
            host.check();
            if host.rng.below(150) == 0 {
                host.scan();
            }
        }
        host.crash();
        host.check();
    }
    host.dropped
}

/// Runs one host whose device is restored, in each life, to what it held some steps before. Returns how many blocks were dropped.
fn restore(seed: u64, twist: Twist) -> u64 {
    let mut rng = Rng(seed);
    let mode = rng
        .pick(&[Mode::Ordered, Mode::Writeback, Mode::Journal])
        .unwrap();
    let lives = 1 + rng.below(4);
    let mut host = Host::new(&mut rng, mode, twist);
    for _ in 0..lives {
        host.live(1500);
        // The log begins again, before what is left of the old one.
        host.crash();
        host.live(100);
        let image = host.image();
        host.live(2000);
        host.restore(&image);
        host.check();
        host.crash();
        host.check();
    }
    host.dropped
}

fn seeds(default: u64) -> core::ops::Range<u64> {
    let number = |name| std::env::var(name).ok().and_then(|text| text.parse().ok());
    match number("VELLUM_SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..number("VELLUM_SEEDS").unwrap_or(default),
    }
}

/// Runs many seeds. Returns how many blocks were dropped.
fn holds(twist: Twist, default: u64, live: Life) -> u64 {
    let mut dropped = 0;
    let all = seeds(default);
    let count = all.end - all.start;
    for seed in all {
        let told = std::panic::catch_unwind(|| live(seed, twist));
        dropped += told.unwrap_or_else(|_| panic!("{twist:?}: VELLUM_SEED={seed}"));
    }
    println!("{twist:?}: {dropped} blocks dropped over {count} seeds");
    assert!(count == 1 || dropped > 5 * count, "{dropped}");
    dropped
}

#[test]
fn nothing_that_a_replay_finds_is_dropped() {
    holds(Twist::None, 400, live);
}

/// The stale lap of an image's journal, behind its head, arrives after the head; then bitmaps and data do.
#[test]
fn nothing_of_an_image_that_is_written_back_is_dropped() {
    holds(Twist::None, 200, restore);
}

/// Either half of the rule would do: that a block was not written since the previous commit, and that its bitmap is
/// written home only when no transaction holds it.
#[test]
fn each_half_of_the_rule_is_enough() {
    holds(Twist::Early, 200, live);
    holds(Twist::Forgetful, 200, live);
}

/// A deliberately broken rule must be detected.
#[test]
fn canaries() {
    std::panic::set_hook(Box::new(|_| {}));
    let twists: [(Twist, Life); 5] = [
        (Twist::EarlyAndForgetful, live),
        (Twist::Blind, live),
        (Twist::Hasty, live),
        (Twist::Late, live),
        (Twist::Credulous, restore),
    ];
    for (twist, live) in twists {
        let fails = |seed: &u64| std::panic::catch_unwind(|| live(*seed, twist)).is_err();
        let found = (0..400).find(fails);
        assert!(found.is_some(), "{twist:?} was not noticed");
        println!("{twist:?}: seed {}", found.unwrap());
    }
}
