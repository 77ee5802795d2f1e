//! The formats of traces, and their names.

/// A format that can be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// The output of `blkparse`.
    Blkparse,
    /// FIU's traces (and those of Light-Dedup): nine columns, an MD5 per 512 B or 4 KiB.
    Fiu,
    /// MSR Cambridge: seven columns of CSV, time in 100 ns since 1601.
    Msr,
    /// `CloudPhysics` as in libCacheSim: CSV with a header line, SCSI opcodes.
    CloudPhysics,
    /// Alibaba's block storage: CSV, R or W, bytes and microseconds.
    Alibaba,
    /// Tencent's block storage: CSV of numbers, sectors and seconds.
    Tencent,
    /// `DiskSim`'s ASCII: five columns, time in milliseconds.
    DiskSim,
    /// MQSim's: the same five columns, time in nanoseconds, and 0 means a write.
    Mqsim,
    /// fio's iologs, versions 2 and 3.
    Fio,
    /// blktrace's binary events.
    Blktrace,
    /// The output of `vellum serve --record` and `vellum record`.
    Vellum,
    /// CSV whose columns a map names; never detected.
    Csv,
}

impl Format {
    /// All formats.
    pub const ALL: [Self; 12] = [
        Self::Vellum,
        Self::Blktrace,
        Self::Fio,
        Self::Blkparse,
        Self::Fiu,
        Self::Msr,
        Self::CloudPhysics,
        Self::Alibaba,
        Self::Tencent,
        Self::DiskSim,
        Self::Mqsim,
        Self::Csv,
    ];

    /// Its name on the command line.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Blkparse => "blkparse",
            Self::Fiu => "fiu",
            Self::Msr => "msr",
            Self::CloudPhysics => "cloudphysics",
            Self::Alibaba => "alibaba",
            Self::Tencent => "tencent",
            Self::DiskSim => "disksim",
            Self::Mqsim => "mqsim",
            Self::Fio => "fio",
            Self::Blktrace => "blktrace",
            Self::Vellum => "vellum",
            Self::Csv => "csv",
        }
    }
}
