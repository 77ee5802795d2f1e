//! The speed of a block device, as arguments: measured figures that replace a preset's.

use crate::size::Size;
use crate::wrong::OptionError;
use vellum_lab::drives::DriveFile;
use vellum_lab::flash::{Kind, Point, Preset, Speed, Table};

/// Arguments.
#[derive(clap::Args)]
#[command(
    next_help_heading = "A block device, as it was measured (in place of the preset's figures)"
)]
pub struct SpeedArgs {
    /// Reads: for up to 8 sizes up to 1M what one takes by itself and how many MB/s the device does of them, like
    /// 4K:90:410,128K:420:540. Between two sizes times are on the line between theirs.
    #[arg(long, value_name = "SIZE:MICROSECONDS:MB/S,...", value_parser = table)]
    read_speed: Option<Table>,
    /// Writes, likewise.
    #[arg(long, value_name = "SIZE:MICROSECONDS:MB/S,...", value_parser = table)]
    write_speed: Option<Table>,
}

fn point(text: &str) -> Result<Point, String> {
    let wrong = || {
        format!("{text:?} is not SIZE:MICROSECONDS:MB/S, like 4K:90:410 (a MB has 1,000,000 bytes)")
    };
    let mut fields = text.split(':');
    let (Some(size), Some(latency), Some(bandwidth), None) =
        (fields.next(), fields.next(), fields.next(), fields.next())
    else {
        return Err(wrong());
    };
    let number = |text: &str| {
        let number: f64 = text.trim().parse().map_err(|_| wrong())?;
        let fits = number.is_finite() && number > 0.0;
        fits.then_some(number).ok_or_else(wrong)
    };
    let Size(bytes) = size.parse()?;
    Ok(Point {
        bytes,
        latency_ns: (number(latency)? * 1e3).round() as u64,
        bytes_per_s: (number(bandwidth)? * 1e6).round() as u64,
    })
}

fn table(text: &str) -> Result<Table, String> {
    let texts: Vec<&str> = text.split(',').collect();
    let points = texts.iter().map(|text| point(text));
    let points: Vec<Point> = points.collect::<Result<_, _>>()?;
    Table::new(&points).map_err(|(index, error)| format!("{:?}: {error}", texts[index]))
}

impl SpeedArgs {
    /// The device with these figures. They are refused for a drive simulated down to its flash, which
    /// computes its times from its parts.
    pub fn measured(
        &self,
        drive: &DriveFile,
        flush_ns: Option<u64>,
    ) -> Result<Preset, OptionError> {
        let mut preset = drive.preset;
        match &mut preset.kind {
            Kind::Block(figures) => {
                figures.read = self.read_speed.map_or(figures.read, Speed::Measured);
                figures.write = self.write_speed.map_or(figures.write, Speed::Measured);
                figures.flush_ns = flush_ns.unwrap_or(figures.flush_ns);
            }
            Kind::Nand(_) if self.read_speed.or(self.write_speed).is_some() => {
                return Err(OptionError::new(format!(
                    "{} is simulated down to its flash: --read-speed and --write-speed \
                     are of a block device, like fast-ssd",
                    drive.name
                )));
            }
            Kind::Nand(_) => {}
        }
        Ok(preset)
    }

    /// What a reader has to know about these figures.
    pub fn about(&self) -> Option<String> {
        let reads = self.read_speed.map(|_| "reads");
        let given: Vec<&str> = reads
            .into_iter()
            .chain(self.write_speed.map(|_| "writes"))
            .collect();
        (!given.is_empty()).then(|| {
            format!(
                "{} go by a table that was given, not by these figures",
                given.join(" and ")
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use vellum_lab::drives;

    #[test]
    fn a_table_is_parsed_and_errors_say_what_is_allowed() {
        let speeds = SpeedArgs {
            read_speed: Some(table("4K:90.5:410,128K:420:540").unwrap()),
            write_speed: None,
        };
        let fast = drives::find("fast-ssd").unwrap();
        let Kind::Block(figures) = speeds.measured(fast, Some(7)).unwrap().kind else {
            panic!("a block device")
        };
        let Kind::Block(before) = fast.preset.kind else {
            panic!("a block device")
        };
        assert_eq!(figures.read.alone_ns(4096), 90_500);
        assert_eq!((figures.write, figures.flush_ns), (before.write, 7));
        assert!(
            speeds
                .measured(drives::find("oftl").unwrap(), None)
                .is_err()
        );
        assert!(speeds.about().unwrap().starts_with("reads go"));
        for (text, said) in [
            ("", "is not SIZE:MICROSECONDS:MB/S"),
            ("4K:90", "is not SIZE:MICROSECONDS:MB/S"),
            ("4K:90:NaN", "is not SIZE:MICROSECONDS:MB/S"),
            ("4K:-1:400", "is not SIZE:MICROSECONDS:MB/S"),
            ("4x:90:400", "is not a size"),
            ("2K:90:400", "\"2K:90:400\": a size is a multiple of 4096"),
            (
                "4K:90:400,2M:900:3000",
                "\"2M:900:3000\": a size is a multiple of 4096",
            ),
            ("4K:90:400,8K:80:400", "from 0.001 to 1000000 microseconds"),
            ("4K:90:4", "more than the latency"),
            ("4K:90:100,8K:90:400", "less time than the smaller"),
        ] {
            let error = table(text).unwrap_err();
            assert!(error.contains(said), "{text}: {error}");
        }
    }
}
