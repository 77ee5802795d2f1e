//! What simulated flash does beyond plain commands, as arguments: wearing out, bit errors, suspension, cache commands.

use crate::number::{number, permille};
use crate::wrong::OptionError;
use vellum_lab::drives::DriveFile;
use vellum_lab::flash::{BitErrors, Endurance, Kind, Options, Suspend};

/// Arguments.
#[derive(clap::Args)]
#[command(next_help_heading = "Flash, beyond plain commands (nothing of it unless asked for)")]
pub struct FlashArgs {
    /// Let blocks wear out at limits around --erase-limit and be replaced by spare ones, until there are none: the drive's end.
    #[arg(long)]
    wear_out: bool,
    /// The standard deviation of the blocks' limits, in percent of --erase-limit: 0 to 30.
    #[arg(
        long,
        value_name = "PERCENT",
        default_value = "10",
        requires = "wear_out"
    )]
    #[arg(value_parser = |text: &str| permille(text, 0..=300))]
    limit_spread: u32,
    /// Spare blocks of each die beyond its capacity, in percent of its blocks: 0.1 to 20.
    #[arg(
        long,
        value_name = "PERCENT",
        default_value = "2",
        requires = "wear_out"
    )]
    #[arg(value_parser = |text: &str| permille(text, 1..=200))]
    spare: u32,
    /// Blocks that are bad when the drive is new, in percent: 0 to 10. Each takes a spare one.
    #[arg(
        long,
        value_name = "PERCENT",
        default_value = "0",
        requires = "wear_out"
    )]
    #[arg(value_parser = |text: &str| permille(text, 0..=100))]
    factory_bad: u32,
    /// Go on with the load until the drive is worn out.
    #[arg(
        long,
        requires = "wear_out",
        requires = "workload",
        conflicts_with = "requests"
    )]
    until_worn_out: bool,
    /// Let reads find bits wrong: the share in a new block and in one at its limit, like 1e-5:5e-3. From 1e-9 to 0.1.
    #[arg(long, value_name = "NEW:WORN", value_parser = rates)]
    bit_errors: Option<(f64, f64)>,
    /// Bits that are corrected in 1 KiB.
    #[arg(
        long,
        value_name = "COUNT",
        default_value_t = 72,
        requires = "bit_errors"
    )]
    #[arg(value_parser = number::<u32>(1..=1000))]
    ecc_bits: u32,
    /// How often a read is tried again, each time with half as many bits wrong, before it is a read error.
    #[arg(
        long,
        value_name = "COUNT",
        default_value_t = 5,
        requires = "bit_errors"
    )]
    #[arg(value_parser = number::<u32>(0..=30))]
    read_retries: u32,
    /// What stops for a read that the host waits for: program, erase or both.
    #[arg(long, value_name = "WHAT", conflicts_with = "fcfs", value_parser = ["program", "erase", "both"])]
    suspend: Option<String>,
    /// What stopping takes, and again what going on takes, in microseconds.
    #[arg(
        long,
        value_name = "MICROSECONDS",
        default_value_t = 20,
        requires = "suspend"
    )]
    #[arg(value_parser = number::<u64>(0..=10_000))]
    suspend_time: u64,
    /// How often one program or erasure is stopped, at most.
    #[arg(long, value_name = "COUNT", default_value_t = 16, requires = "suspend")]
    #[arg(value_parser = number::<u32>(1..=10_000))]
    suspend_most: u32,
    /// Let data cross the channel while the cells are busy (cache program, cache read).
    #[arg(long)]
    cache_commands: bool,
    /// Let each program be of one plane's page, even where planes could work together.
    #[arg(long)]
    single_plane: bool,
}

fn rates(text: &str) -> Result<(f64, f64), String> {
    let wrong = || {
        "it is NEW:WORN, two shares of bits from 1e-9 to 0.1, the second no less than the first"
            .to_string()
    };
    let (fresh, worn) = text.split_once(':').ok_or_else(wrong)?;
    let rate = |text: &str| {
        let rate: f64 = text.parse().map_err(|_| wrong())?;
        (1e-9..=0.1)
            .contains(&rate)
            .then_some(rate)
            .ok_or_else(wrong)
    };
    let (fresh, worn) = (rate(fresh)?, rate(worn)?);
    (fresh <= worn).then_some((fresh, worn)).ok_or_else(wrong)
}

impl FlashArgs {
    /// The options of the simulated flash.
    pub fn options(&self) -> Options {
        Options {
            endurance: self.wear_out.then_some(Endurance {
                spread: self.limit_spread,
                spare: self.spare,
                factory_bad: self.factory_bad,
            }),
            errors: self.bit_errors.map(|(fresh, worn)| BitErrors {
                fresh,
                worn,
                correctable: self.ecc_bits,
                retries: self.read_retries,
            }),
            suspend: self.suspend.as_deref().map(|what| Suspend {
                program: what != "erase",
                erase: what != "program",
                each_ns: self.suspend_time * 1000,
                most: self.suspend_most,
            }),
            cache_commands: self.cache_commands,
            single_plane: self.single_plane,
        }
    }

    /// True if a load continues until the drive is worn out.
    pub fn until_worn_out(&self) -> bool {
        self.until_worn_out
    }

    /// Refuses these options for a device whose inside is not simulated.
    pub fn check(&self, drive: &DriveFile) -> Result<(), OptionError> {
        if matches!(drive.preset.kind, Kind::Block(_)) && self.options() != Options::default() {
            return Err(OptionError::new(format!(
                "the inside of {} is not known: --wear-out, --bit-errors, --suspend, \
                 --cache-commands and --single-plane need a device of flash",
                drive.name
            )));
        }
        Ok(())
    }

    /// What a reader has to know about these options.
    pub fn about(&self) -> Vec<String> {
        let percent = |permille: u32| f64::from(permille) / 10.0;
        let mut about = Vec::new();
        if self.wear_out {
            about.push(format!(
                "wear: limits spread by {}%, {}% spare blocks, {}% bad when new",
                percent(self.limit_spread),
                percent(self.spare),
                percent(self.factory_bad)
            ));
        }
        if let Some((fresh, worn)) = self.bit_errors {
            about.push(format!(
                "bit errors: {fresh:e} of the bits in a new block, {worn:e} in one at its limit; {} of \
                 1 KiB are corrected, {} retries (a model: no part's figures)",
                self.ecc_bits, self.read_retries
            ));
        }
        if let Some(what) = &self.suspend {
            about.push(format!(
                "suspend: {what}, {} us to stop and to go on, at most {} times",
                self.suspend_time, self.suspend_most
            ));
        }
        about.extend(self.cache_commands.then(|| "cache commands".into()));
        about.extend(
            self.single_plane
                .then(|| "planes do not work together".into()),
        );
        about
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_parsed_and_errors_say_what_is_allowed() {
        assert_eq!(rates("1e-5:5e-3"), Ok((1e-5, 5e-3)));
        for text in [
            "",
            "1e-5",
            "1e-5:",
            "0:1e-3",
            "1e-3:1e-5",
            "1e-3:1",
            "NaN:NaN",
            "1e-5:1e-4:1e-3",
        ] {
            assert!(rates(text).unwrap_err().contains("1e-9 to 0.1"), "{text}");
        }
    }
}
