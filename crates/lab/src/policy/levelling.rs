//! What a drive does about uneven wear, as an option of anything on the drive.

use crate::base::{Levelling, THRESHOLD};

/// Sets what a drive does about uneven wear, if the option is about that.
pub(super) fn set(levelling: &mut Levelling, option: &str) -> Option<Result<(), String>> {
    match option.split_once('=') {
        None if option == "level-dynamic" => levelling.dynamic = true,
        None if option == "level-static" => levelling.threshold = Some(THRESHOLD),
        Some(("level-static", erasures)) => {
            let erasures = erasures.parse().ok().filter(|e| (1..=100_000).contains(e));
            levelling.threshold = erasures;
            if erasures.is_none() {
                return Some(Err("level-static= needs erasures, from 1 to 100000".into()));
            }
        }
        _ => return None,
    }
    Some(Ok(()))
}

/// Levelling in the syntax of options.
pub(super) fn shown(levelling: Levelling) -> impl Iterator<Item = String> {
    let dynamic = levelling.dynamic.then(|| "level-dynamic".to_string());
    let fixed = levelling.threshold.map(|erasures| match erasures {
        THRESHOLD => "level-static".to_string(),
        erasures => format!("level-static={erasures}"),
    });
    dynamic.into_iter().chain(fixed)
}
