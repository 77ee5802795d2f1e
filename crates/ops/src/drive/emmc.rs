//! The life time estimates of eMMC 5.0: one for each of its two kinds of cells, in tenths.

use crate::drive::wear::Wear;

/// Parses the kernel's `life_time`, like `0x01 0x02`, and takes the worse of the two.
///
/// # Errors
/// If it has no estimate.
pub fn of_estimates(text: &str) -> Result<Wear, String> {
    let tenth = |word: &str| u8::from_str_radix(word.strip_prefix("0x")?, 16).ok();
    let tenths = text
        .split_whitespace()
        .map(tenth)
        .collect::<Option<Vec<_>>>();
    let worst = tenths.and_then(|tenths| tenths.into_iter().max());
    match worst {
        // 1: up to 10%; 10: up to 100%; 11: "exceeded its maximum estimated device life time".
        Some(tenth @ 1..=11) => Ok(Wear {
            used_percent: tenth * 10,
            step_percent: 10,
            written_bytes: None,
        }),
        Some(0) => Err("it is an eMMC that does not tell its wear".to_owned()),
        _ => Err(format!(
            "its life time estimates are none: {:?}",
            text.trim()
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_worse_estimate_counts() {
        let used = |text| of_estimates(text).map(|wear| wear.used_percent);
        assert_eq!(used("0x01 0x02\n"), Ok(20));
        assert_eq!(used("0x0b 0x01\n"), Ok(110));
        for nothing in [
            "0x00 0x00",
            "",
            "0x0c 0x01",
            "7",
            "0xfff 0x01",
            "0x01 \u{1f41e}",
        ] {
            assert!(used(nothing).is_err(), "{nothing}");
        }
    }
}
