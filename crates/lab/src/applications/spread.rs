//! Sizes around a mean.

use crate::rng::Rng;
use std::f64::consts::TAU;

/// An exponential distribution, with a mean of 1.
pub fn exponential(rng: &mut Rng) -> f64 {
    -(1.0 - rng.unit()).ln()
}

/// A gamma distribution of shape 1.5: the sum of one of shape 1 and one of shape 0.5; the latter is half the square of
/// a normal one.
pub fn gamma_of_three_halves(rng: &mut Rng, mean: f64) -> f64 {
    let whole = exponential(rng);
    let half = exponential(rng) * (TAU * rng.unit()).cos().powi(2);
    (whole + half) * mean / 1.5
}

/// A lognormal distribution: a normal one by Box and Muller.
pub fn lognormal(rng: &mut Rng, median: f64, sigma: f64) -> f64 {
    let normal = (2.0 * exponential(rng)).sqrt() * (TAU * rng.unit()).cos();
    median * (sigma * normal).exp()
}
