//! A volume in zones, each with its share of the writes and of the reads.

use crate::rng::Rng;
use std::fmt;
use std::str::FromStr;

/// The most zones of a volume.
pub const ZONES_MAX: usize = 8;
/// Shares are kept in thousandths.
const ALL: u16 = 1000;

/// A zone, in thousandths of all.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Zone {
    space: u16,
    writes: u16,
    reads: u16,
}

/// The zones, in their order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Zones {
    zones: [Zone; ZONES_MAX],
    count: u8,
}

/// What is wrong with the text of some zones.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum ZonesError {
    /// The text does not have the form.
    #[error(
        "zones are SPACE:WRITES or SPACE:WRITES:READS in percent, with at most one decimal, from 1 to \
         {ZONES_MAX} with a comma between, like 10:60:0,40:40:0,50:0:100 (the last one is only read)"
    )]
    Form,
    /// Shares do not add up to 100%.
    #[error("the zones have {percent}% of the {what}; together they have 100%")]
    Sum {
        /// What is shared: space, writes or reads.
        what: &'static str,
        /// Their sum.
        percent: f64,
    },
    /// A zone is empty.
    #[error("a zone has some of the space: at least 0.1%")]
    Empty,
}

impl FromStr for Zones {
    type Err = ZonesError;

    fn from_str(text: &str) -> Result<Self, ZonesError> {
        let mut zones = [Zone::default(); ZONES_MAX];
        let mut count = 0u8;
        for part in text.split(',') {
            let zone = zones.get_mut(usize::from(count)).ok_or(ZonesError::Form)?;
            let mut shares = part.split(':').map(share);
            let mut next = || shares.next().ok_or(ZonesError::Form)?;
            let (space, writes) = (next()?, next()?);
            let reads = shares.next().unwrap_or(Ok(writes))?;
            if shares.next().is_some() {
                return Err(ZonesError::Form);
            }
            if space == 0 {
                return Err(ZonesError::Empty);
            }
            *zone = Zone {
                space,
                writes,
                reads,
            };
            count += 1;
        }
        let sum = |of: fn(&Zone) -> u16| zones.iter().map(|zone| u32::from(of(zone))).sum::<u32>();
        for (what, all) in [
            ("space", sum(|zone| zone.space)),
            ("writes", sum(|zone| zone.writes)),
            ("reads", sum(|zone| zone.reads)),
        ] {
            if all != u32::from(ALL) {
                let percent = f64::from(all) / 10.0;
                return Err(ZonesError::Sum { what, percent });
            }
        }
        Ok(Self { zones, count })
    }
}

/// Parses a percentage into thousandths.
fn share(text: &str) -> Result<u16, ZonesError> {
    let (whole, tenth) = text.split_once('.').unwrap_or((text, "0"));
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    if !digits(whole) || !digits(tenth) || whole.len() > 3 || tenth.len() != 1 {
        return Err(ZonesError::Form);
    }
    let number = |text: &str| text.parse::<u16>().map_err(|_| ZonesError::Form);
    Ok(number(whole)? * 10 + number(tenth)?)
}

impl fmt::Display for Zones {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, zone) in self.all().iter().enumerate() {
            let comma = if index > 0 { "," } else { "" };
            let percent = |share: u16| f64::from(share) / 10.0;
            let (space, writes) = (percent(zone.space), percent(zone.writes));
            write!(f, "{comma}{space}:{writes}")?;
            if zone.reads != zone.writes {
                write!(f, ":{}", percent(zone.reads))?;
            }
        }
        Ok(())
    }
}

impl Zones {
    fn all(&self) -> &[Zone] {
        &self.zones[..usize::from(self.count)]
    }

    /// The next place of `places`, for a read or a write.
    pub fn draw(&self, rng: &mut Rng, places: u64, read: bool) -> u64 {
        let mut drawn = rng.below(ALL.into()) as u16;
        let mut before = 0;
        for zone in self.all() {
            let share = if read { zone.reads } else { zone.writes };
            let (from, to) = (before, before + zone.space);
            if drawn < share {
                let at =
                    |share: u16| (u128::from(places) * u128::from(share) / u128::from(ALL)) as u64;
                // If the volume is too small for a zone, the zone is one place.
                let first = at(from).min(places - 1);
                return first + rng.below((at(to) - first).max(1));
            }
            drawn -= share;
            before = to;
        }
        unreachable!("the shares are a whole")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hits(zones: &Zones, read: bool) -> Vec<u32> {
        let mut rng = Rng::new(3);
        let mut hits = vec![0; 1000];
        (0..100_000).for_each(|_| hits[zones.draw(&mut rng, 1000, read) as usize] += 1);
        hits
    }

    #[test]
    fn each_zone_gets_its_share_and_a_read_only_zone_no_writes() {
        let zones: Zones = "10:60:0,39.5:40:0,50.5:0:100".parse().unwrap();
        let writes = hits(&zones, false);
        let sum = |hits: &[u32]| hits.iter().sum::<u32>();
        assert!((59_400..60_600).contains(&sum(&writes[..100])));
        assert_eq!(sum(&writes[495..]), 0);
        // Within a zone all are alike: 600 each, with a deviation of 24.
        assert!(writes[..100].iter().all(|hits| (470..730).contains(hits)));
        let reads = hits(&zones, true);
        assert_eq!(sum(&reads[..495]), 0);
    }

    #[test]
    fn shares_must_add_up_and_valid_zones_are_shown_as_written() {
        for text in [
            "100:100",
            "20:80,80:20",
            "10:60:0,40:40:0,50:0:100",
            "0.1:50,99.9:50",
        ] {
            let zones: Zones = text.parse().unwrap();
            assert_eq!(zones.to_string(), text);
        }
        for (text, said) in [
            ("", "zones are SPACE:WRITES"),
            ("20", "zones are SPACE:WRITES"),
            ("20:80:10:1,80:20", "zones are SPACE:WRITES"),
            ("20:8x,80:20", "zones are SPACE:WRITES"),
            ("20:80.25,80:19.75", "zones are SPACE:WRITES"),
            ("20:80,80:20,", "zones are SPACE:WRITES"),
            ("20:80,70:20", "90% of the space"),
            ("20:80,80:30", "110% of the writes"),
            ("20:80:10,80:20:10", "20% of the reads"),
            ("0:50,100:50", "some of the space"),
            (&["10:10"; 9].join(","), "from 1 to 8"),
        ] {
            let error = text.parse::<Zones>().unwrap_err().to_string();
            assert!(error.contains(said), "{text}: {error}");
        }
    }
}
