//! Sizes of a volume's parts.

pub use vellum_policies::size::Size;
use vellum_policies::size::exact;

/// Parses the memory for blocks in flight, `--buffer`.
pub fn buffer(text: &str) -> Result<Size, String> {
    let size: Size = text.parse()?;
    match ((8 << 20)..=(8 << 30)).contains(&size.0) {
        true => Ok(size),
        false => Err(format!("{}: it is from 8M to 8G", exact(size.0))),
    }
}

/// Parses the size of a segment, `--segment-size`.
pub fn segment(text: &str) -> Result<Size, String> {
    let size: Size = text.parse()?;
    match size.0.is_power_of_two() && ((256 << 10)..=(256 << 20)).contains(&size.0) {
        true => Ok(size),
        false => Err(format!(
            "{}: it must be a power of two from 256K to 256M",
            exact(size.0)
        )),
    }
}
