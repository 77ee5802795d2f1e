//! How much a test does: little in `make test`, all of it in the long set (`VELLUM_LONG=1`).

/// The one or the other.
pub fn sized<T>(short: T, long: T) -> T {
    match std::env::var_os("VELLUM_LONG") {
        None => short,
        Some(_) => long,
    }
}
