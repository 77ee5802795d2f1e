//! The result of a comparison, in one sentence.

use crate::outcome::Outcome;

/// Compares the policy that writes least with the one that was run first; none without two to compare.
#[must_use]
pub fn sentence(outcomes: &[Outcome]) -> Option<String> {
    let (first, others) = outcomes.split_first()?;
    let of_first = first.write_amplification.filter(|&wa| wa > 0.0)?;
    let (best, of_best) = others
        .iter()
        .filter_map(|outcome| Some((outcome, outcome.write_amplification?)))
        .min_by(|a, b| a.1.total_cmp(&b.1))?;
    let written = match of_best <= of_first {
        true => format!("{:.0}% less written", 100.0 * (1.0 - of_best / of_first)),
        false => format!("{:.0}% more written", 100.0 * (of_best / of_first - 1.0)),
    };
    let years = |outcome: &Outcome| outcome.life.as_ref().and_then(|life| life.years);
    let lasts = match (years(best), years(first)) {
        (Some(with), Some(without)) => format!("{with:.1} years instead of {without:.1}, "),
        _ => String::new(),
    };
    Some(format!(
        "On this drive, with this load, {} instead of {}: {lasts}{written}.",
        best.policy, first.policy
    ))
}
