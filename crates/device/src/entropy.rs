//! Randomness from the system: identities and secrets, never decisions.

use std::io;

/// Fills `bytes` with random ones.
///
/// # Errors
/// When the kernel refuses.
pub(crate) fn fill(mut bytes: &mut [u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        // SAFETY: the pointer and the length are of one slice.
        let got = unsafe { libc::getrandom(bytes.as_mut_ptr().cast(), bytes.len(), 0) };
        match usize::try_from(got) {
            Ok(got) => bytes = &mut bytes[got..],
            Err(_) => {
                let error = io::Error::last_os_error();
                if error.kind() != io::ErrorKind::Interrupted {
                    return Err(error);
                }
            }
        }
    }
    Ok(())
}

/// Returns that many random bytes.
///
/// # Errors
/// When the kernel refuses.
pub(crate) fn bytes<const N: usize>() -> io::Result<[u8; N]> {
    let mut bytes = [0; N];
    fill(&mut bytes)?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    #[test]
    fn two_draws_differ() {
        assert_ne!(super::bytes::<32>().unwrap(), super::bytes::<32>().unwrap());
    }
}
