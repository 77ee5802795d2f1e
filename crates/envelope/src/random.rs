//! Randomness from the system.

/// Returns unpredictable bytes.
///
/// # Errors
/// If the system provides none.
pub(crate) fn random<const N: usize>() -> std::io::Result<[u8; N]> {
    let mut bytes = [0; N];
    getrandom::fill(&mut bytes).map_err(std::io::Error::other)?;
    Ok(bytes)
}
