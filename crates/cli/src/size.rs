//! Sizes of a volume's parts.

pub use vellum_policies::size::Size;

/// Parses the memory for blocks in flight, `--buffer`.
pub fn buffer(text: &str) -> Result<Size, String> {
    let size: Size = text.parse()?;
    match ((8 << 20)..=(8 << 30)).contains(&size.0) {
        true => Ok(size),
        false => Err(format!("{size}: it is from 8M to 8G")),
    }
}

/// Parses the size of a segment, `--segment-size`.
pub fn segment(text: &str) -> Result<Size, String> {
    let size: Size = text.parse()?;
    match size.0.is_power_of_two() && ((256 << 10)..=(256 << 20)).contains(&size.0) {
        true => Ok(size),
        false => Err(format!(
            "{size}: it must be a power of two from 256 KiB to 256 MiB"
        )),
    }
}
