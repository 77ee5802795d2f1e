//! The timing of a device of which only that is known, by the size of a request.

use vellum_core::addr::BLOCK_BYTES;

/// Requests are split into parts of this many blocks, as a drive's interface does, unless a drive with a page map says otherwise.
pub const PART_BLOCKS: u32 = 256;
/// The most sizes in a table.
pub const POINTS_MAX: usize = 8;
/// The largest size, in bytes: larger requests are split.
pub const SIZE_MAX: u64 = PART_BLOCKS as u64 * BLOCK_BYTES as u64;
/// The longest latency in a table.
pub const LATENCY_MAX_NS: u64 = 1_000_000_000;

/// How long requests of one direction take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Speed {
    /// The same latency for all, and the time of their bytes.
    Flat {
        /// Latency without the bytes.
        latency_ns: u64,
        /// Speed of the bytes.
        bytes_per_s: u64,
    },
    /// Measured, size by size.
    Measured(Table),
}

impl Speed {
    /// Returns how long a request occupies the device, which delays the requests after it.
    #[must_use]
    pub fn transfer_ns(&self, bytes: u64) -> u64 {
        match self {
            Self::Flat { bytes_per_s, .. } => transfer_ns(bytes, *bytes_per_s),
            Self::Measured(table) => table.transfer_ns(bytes),
        }
    }

    /// Returns how long a request takes that waits for no other.
    #[must_use]
    pub fn alone_ns(&self, bytes: u64) -> u64 {
        match self {
            Self::Flat { latency_ns, .. } => self.transfer_ns(bytes) + latency_ns,
            Self::Measured(table) => table.alone_ns(bytes),
        }
    }
}

const fn transfer_ns(bytes: u64, bytes_per_s: u64) -> u64 {
    let bytes_per_s = if bytes_per_s == 0 { 1 } else { bytes_per_s };
    bytes * 1_000_000_000 / bytes_per_s
}

/// The measured figures of one size of request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Point {
    /// The size.
    pub bytes: u64,
    /// How long a request takes that waits for no other.
    pub latency_ns: u64,
    /// Bytes of such requests that the device transfers in a second, when it is always busy.
    pub bytes_per_s: u64,
}

/// An error in a point, alone or compared with those before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TableError {
    /// The number of points.
    #[error("a table has from 1 to {POINTS_MAX} sizes")]
    Points,
    /// A size.
    #[error(
        "a size is a multiple of {BLOCK_BYTES} bytes up to {SIZE_MAX}, and larger than the one before it"
    )]
    Size,
    /// A latency.
    #[error(
        "a latency is from 0.001 to 1000000 microseconds, and no less than that of a smaller size"
    )]
    Latency,
    /// A bandwidth.
    #[error("at that bandwidth the bytes alone take more than the latency that was measured")]
    Bandwidth,
    /// A bandwidth, compared with another.
    #[error("at these bandwidths the larger size would take less time than the smaller one")]
    Falling,
}

/// A point, in the form used to compute.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Known {
    bytes: u32,
    alone_ns: u32,
    transfer_ns: u32,
}

/// Returns a bandwidth at which the bytes take the same time: the one with the most zeros at its end.
fn roundest(known: &Known) -> u64 {
    let bytes = u64::from(known.bytes);
    let most = bytes * 1_000_000_000 / u64::from(known.transfer_ns.max(1));
    let mut rounded = (0..12).rev().map(|zeros| most - most % 10u64.pow(zeros));
    let same = |rate: &u64| transfer_ns(bytes, *rate) == u64::from(known.transfer_ns);
    rounded.find(same).unwrap_or(most)
}

/// Latency and bandwidth by the size of a request.
///
/// Times between two sizes are interpolated linearly, so a larger request never takes less time, and its bandwidth lies between
/// theirs. A request smaller than all sizes takes what the smallest takes; a larger one continues at the bandwidth of the
/// largest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Table {
    /// By size; the points from `count` on are unused.
    points: [Known; POINTS_MAX],
    count: u8,
}

impl Table {
    /// Builds a table from points, smallest size first.
    ///
    /// # Errors
    /// With the index of the first invalid point.
    pub const fn new(points: &[Point]) -> Result<Self, (usize, TableError)> {
        if points.is_empty() || points.len() > POINTS_MAX {
            return Err((0, TableError::Points));
        }
        let nothing = Known {
            bytes: 0,
            alone_ns: 0,
            transfer_ns: 0,
        };
        let mut known = [nothing; POINTS_MAX];
        let mut last = nothing;
        let mut index = 0;
        while index < points.len() {
            let Point {
                bytes,
                latency_ns,
                bytes_per_s,
            } = points[index];
            if bytes <= last.bytes as u64 || bytes > SIZE_MAX || bytes % BLOCK_BYTES as u64 != 0 {
                return Err((index, TableError::Size));
            }
            let earlier = last.alone_ns as u64;
            if latency_ns == 0 || latency_ns > LATENCY_MAX_NS || latency_ns < earlier {
                return Err((index, TableError::Latency));
            }
            let transfer = transfer_ns(bytes, bytes_per_s);
            if transfer > latency_ns {
                return Err((index, TableError::Bandwidth));
            }
            if transfer < last.transfer_ns as u64 {
                return Err((index, TableError::Falling));
            }
            last = Known {
                bytes: bytes as u32,
                alone_ns: latency_ns as u32,
                transfer_ns: transfer as u32,
            };
            known[index] = last;
            index += 1;
        }
        Ok(Self {
            points: known,
            count: index as u8,
        })
    }

    fn known(&self) -> &[Known] {
        &self.points[..usize::from(self.count)]
    }

    /// Returns points that would build this table.
    pub fn points(&self) -> impl Iterator<Item = Point> {
        self.known().iter().map(|known| Point {
            bytes: known.bytes.into(),
            latency_ns: known.alone_ns.into(),
            bytes_per_s: roundest(known),
        })
    }

    fn transfer_ns(&self, bytes: u64) -> u64 {
        self.between(bytes, |point| point.transfer_ns)
    }

    fn alone_ns(&self, bytes: u64) -> u64 {
        self.between(bytes, |point| point.alone_ns)
    }

    fn between(&self, bytes: u64, of: impl Fn(&Known) -> u32) -> u64 {
        let points = self.known();
        let above = points.partition_point(|point| u64::from(point.bytes) < bytes);
        let at = |point: &Known| (u64::from(point.bytes), u64::from(of(point)));
        match (
            above.checked_sub(1).map(|below| &points[below]),
            points.get(above),
        ) {
            (Some(below), Some(above)) => {
                let ((from, least), (to, most)) = (at(below), at(above));
                least + (most - least) * (bytes - from) / (to - from)
            }
            (Some(largest), None) => {
                let (from, least) = at(largest);
                least + (bytes - from) * u64::from(largest.transfer_ns) / from
            }
            (None, smallest) => smallest.map_or(0, |point| at(point).1),
        }
    }
}

const _: () = assert!(SIZE_MAX <= u32::MAX as u64);
const _: () = assert!(LATENCY_MAX_NS <= u32::MAX as u64);

#[cfg(test)]
mod tests {
    use super::*;

    const US: u64 = 1000;
    const MB: u64 = 1_000_000;

    fn point(kib: u64, us: u64, mb: u64) -> Point {
        Point {
            bytes: kib << 10,
            latency_ns: us * US,
            bytes_per_s: mb * MB,
        }
    }

    #[test]
    fn measured_sizes_are_exact_and_others_interpolated() {
        let points = [point(4, 100, 64), point(16, 160, 128), point(64, 400, 256)];
        let table = Table::new(&points).unwrap();
        for point in points {
            assert_eq!(table.alone_ns(point.bytes), point.latency_ns);
            assert_eq!(
                table.transfer_ns(point.bytes),
                transfer_ns(point.bytes, point.bytes_per_s)
            );
        }
        assert_eq!(table.alone_ns(8 << 10), 120 * US);
        assert_eq!(table.alone_ns(40 << 10), 280 * US);
        // Beyond the largest, its bandwidth: 64 KiB in 256 us.
        assert_eq!(table.transfer_ns(128 << 10), 512 * US);
        assert_eq!(table.alone_ns(128 << 10), 656 * US);
        let mut last = (0, 0);
        for blocks in 1..=u64::from(PART_BLOCKS) {
            let bytes = blocks * BLOCK_BYTES as u64;
            let now = (table.transfer_ns(bytes), table.alone_ns(bytes));
            assert!(
                now.0 >= last.0 && now.1 >= last.1 && now.0 <= now.1,
                "{blocks} blocks"
            );
            last = now;
        }
        let few = Table::new(&points[1..]).unwrap();
        assert_eq!(few.alone_ns(4096), 160 * US, "no less than the smallest");
    }

    #[test]
    fn an_impossible_table_names_the_wrong_point() {
        let first = point(4, 100, 64);
        for (wrong, error) in [
            (vec![], (0, TableError::Points)),
            (vec![first; 9], (0, TableError::Points)),
            (vec![first, first], (1, TableError::Size)),
            (vec![first, point(10, 100, 100)], (1, TableError::Size)),
            (
                vec![first, point(2 << 10, 900_000, 900)],
                (1, TableError::Size),
            ),
            (vec![first, point(8, 99, 100)], (1, TableError::Latency)),
            (vec![point(4, 0, 64)], (0, TableError::Latency)),
            (vec![point(4, 1_000_001, 64)], (0, TableError::Latency)),
            (vec![point(4, 60, 64)], (0, TableError::Bandwidth)),
            (vec![point(4, 60, 0)], (0, TableError::Bandwidth)),
            (vec![first, point(8, 100, 200)], (1, TableError::Falling)),
        ] {
            assert_eq!(Table::new(&wrong), Err(error), "{wrong:?}");
        }
    }
}
