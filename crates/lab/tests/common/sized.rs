//! The size of a test: small in `make test`, full in the long set (`VELLUM_LONG=1`).

/// Returns the value for the set that runs.
pub fn sized<T>(short: T, long: T) -> T {
    match std::env::var_os("VELLUM_LONG") {
        None => short,
        Some(_) => long,
    }
}
