//! Formats bytes, times and years for people.

/// Formats bytes, with three digits.
pub fn bytes(bytes: f64) -> String {
    const UNITS: [&str; 6] = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
    let mut scaled = bytes;
    let mut unit = 0;
    while scaled >= 1000.0 && unit < UNITS.len() - 1 {
        scaled /= 1024.0;
        unit += 1;
    }
    let digits = match scaled {
        _ if unit == 0 => 0,
        ..9.995 => 2,
        ..99.95 => 1,
        _ => 0,
    };
    format!("{scaled:.digits$} {}", UNITS[unit])
}

/// Formats microseconds, with two digits or more.
pub fn micros(micros: u64) -> String {
    let (scaled, unit) = match micros {
        0..1000 => return format!("{micros} \u{b5}s"),
        1000..1_000_000 => (micros as f64 / 1e3, "ms"),
        _ => (micros as f64 / 1e6, "s"),
    };
    let digits = usize::from(scaled < 9.95);
    format!("{scaled:.digits$} {unit}")
}

/// Formats a duration in seconds, in the largest unit of which there is more than one.
pub fn span(seconds: f64) -> String {
    const UNITS: [(f64, &str); 4] = [
        (86_400.0, "days"),
        (3600.0, "hours"),
        (60.0, "minutes"),
        (1.0, "seconds"),
    ];
    let fits = UNITS.iter().find(|(unit, _)| seconds >= 2.0 * unit);
    let (unit, name) = fits.unwrap_or(&(1.0, "seconds"));
    format!("{:.0} {name}", seconds / unit)
}

/// Formats years, no finer than they can be known.
pub fn years(years: f64) -> String {
    match years {
        ..0.125 => "less than two months".to_owned(),
        ..2.0 => format!("{:.0} months", years * 12.0),
        ..9.95 => format!("{years:.1} years"),
        ..=100.0 => format!("{years:.0} years"),
        _ => "more than 100 years".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_have_three_digits() {
        let told = [0.0, 999.0, 1000.0, 1048576.0, 10485760.0, 1023.0 * 1024.0];
        let told = told.map(bytes);
        assert_eq!(
            told,
            [
                "0 B", "999 B", "0.98 KiB", "1.00 MiB", "10.0 MiB", "1.00 MiB"
            ]
        );
    }

    #[test]
    fn micros_are_in_the_unit_that_fits() {
        let told = [999, 1000, 4096, 12_500, 999_999, 1_048_576].map(micros);
        let expected = [
            "999 \u{b5}s",
            "1.0 ms",
            "4.1 ms",
            "12 ms",
            "1000 ms",
            "1.0 s",
        ];
        assert_eq!(told, expected);
    }

    #[test]
    fn spans_and_years_are_in_units_that_fit() {
        let spans = [5.0, 119.0, 120.0, 7200.0, 500_000.0].map(span);
        assert_eq!(
            spans,
            ["5 seconds", "119 seconds", "2 minutes", "2 hours", "6 days"]
        );
        let told = [0.01, 0.5, 3.08, 12.4, 400.0].map(years);
        assert_eq!(
            told,
            [
                "less than two months",
                "6 months",
                "3.1 years",
                "12 years",
                "more than 100 years"
            ]
        );
    }
}
