//! How long hashing takes in the simulated controller, as arguments.

use crate::number::number;
use vellum_lab::vellum::Hashing;

/// Arguments.
#[derive(clap::Args)]
#[command(next_help_heading = "The controller's hash engine (without it hashing takes no time)")]
pub struct HashArgs {
    /// Cycles that hashing a block takes (SHA-1: 47548 in CAFTL's measurement): one block after the other, before the engine
    /// looks it up.
    #[arg(long, value_name = "CYCLES", value_parser = number::<u64>(1..=100_000_000))]
    hash_cycles: Option<u64>,
    /// The hash engine's clock.
    #[arg(
        long,
        value_name = "MHZ",
        default_value_t = 934,
        requires = "hash_cycles"
    )]
    #[arg(value_parser = number::<u64>(1..=100_000))]
    hash_clock: u64,
    /// Cycles of a weak hash that is looked up first (CRC32: 4120): --hash-cycles are then spent where it is known alone. For
    /// policies with `decide=` a hash; the others compare bytes then.
    #[arg(long, value_name = "CYCLES", requires = "hash_cycles")]
    #[arg(value_parser = number::<u64>(1..=100_000_000))]
    prehash_cycles: Option<u64>,
    /// Hash nothing from the moment the write buffer is 95% full until it is half empty.
    #[arg(long, requires = "hash_cycles")]
    hash_switch: bool,
}

impl HashArgs {
    /// The simulated hashing, if any.
    pub fn hashing(&self) -> Option<Hashing> {
        let nanos = |cycles: u64| (cycles * 1000).div_ceil(self.hash_clock);
        let strong = nanos(self.hash_cycles?);
        let (check_ns, print_ns) = match self.prehash_cycles {
            Some(weak) => (nanos(weak), strong),
            None => (strong, 0),
        };
        Some(Hashing {
            check_ns,
            print_ns,
            switch: self.hash_switch,
        })
    }
}
