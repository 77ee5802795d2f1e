//! Parses numbers as people write them. The result is exactly what was written, or an error.

use std::ops::RangeInclusive;

/// Parses a whole number in a range. The error names the range.
pub fn number<T>(range: RangeInclusive<u64>) -> impl Fn(&str) -> Result<T, String> + Clone
where
    T: TryFrom<u64>,
{
    move |text| {
        let number = text.parse().ok().filter(|number| range.contains(number));
        let wrong = || format!("it is a whole number in {range:?}");
        number
            .and_then(|number| T::try_from(number).ok())
            .ok_or_else(wrong)
    }
}

/// Parses a percentage with at most one decimal, as thousandths. The result is exactly what was written, or an error.
pub fn permille(text: &str, range: RangeInclusive<u32>) -> Result<u32, String> {
    let wrong = || {
        let (least, most) = (f64::from(*range.start()), f64::from(*range.end()));
        let (least, most) = (least / 10.0, most / 10.0);
        format!("it is from {least} to {most} percent, in steps of 0.1")
    };
    let percent: f64 = text.parse().map_err(|_| wrong())?;
    let permille = (percent * 10.0).round();
    // NaN is not in the range either.
    let fits = (f64::from(*range.start())..=f64::from(*range.end())).contains(&permille)
        && (percent * 10.0 - permille).abs() < 1e-6;
    fits.then_some(permille as u32).ok_or_else(wrong)
}

/// Parses a percentage as thousandths.
pub fn over_provisioning(text: &str) -> Result<u32, String> {
    permille(text, 20..=10_000)
}

#[cfg(test)]
mod tests {
    use super::permille;

    #[test]
    fn shares_are_parsed_and_errors_say_what_is_allowed() {
        assert_eq!(permille("2.5", 0..=300), Ok(25));
        assert_eq!(permille("0", 0..=300), Ok(0));
        assert_eq!(permille("7", 20..=10_000), Ok(70));
        assert_eq!(permille("7.3", 20..=10_000), Ok(73));
        assert_eq!(permille("1000", 20..=10_000), Ok(10_000));
        // No value is rounded silently.
        for text in ["", "x", "-1", "30.1", "NaN", "inf", "1e99", "7.05", "7.04"] {
            let error = permille(text, 0..=300).unwrap_err();
            assert_eq!(
                error, "it is from 0 to 30 percent, in steps of 0.1",
                "{text}"
            );
        }
    }
}
