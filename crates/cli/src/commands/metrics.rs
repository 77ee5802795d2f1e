//! `vellum metrics`: what servers have counted, for Prometheus and its kin.
//!
//! A program of its own asks the servers by their control sockets: one place for all volumes of a machine, and nothing that
//! listens to a network in a server that has data.

mod families;
mod http;

use crate::observed::Observed;
use crate::outcome::out;
use anyhow::{Context, Result};
use std::io::Write;
use std::net::SocketAddr;

/// Arguments.
#[derive(clap::Args)]
#[command(
    after_help = "Examples:\n  sudo vellum metrics > /var/lib/prometheus/node-exporter/vellum.prom\n  \
    sudo vellum metrics --listen 127.0.0.1:9822\n\n\
    Each user sees the servers that are his: root's are what `sudo vellum attach` has attached.\n\
    Whoever reaches the address sees the volumes' paths and counters, and no data."
)]
pub struct Args {
    /// Answer HTTP at this address, until SIGTERM, instead of printing once.
    #[arg(long, value_name = "ADDR:PORT")]
    listen: Option<SocketAddr>,
}

/// Tells them.
pub fn run(args: &Args) -> Result<()> {
    match args.listen {
        None => write!(out(), "{}", families::older(&text()?))?,
        Some(address) => http::serve(address, &text)
            .with_context(|| format!("cannot answer HTTP at {address}"))?,
    }
    Ok(())
}

/// All metrics as they are now, in the format of OpenMetrics.
fn text() -> Result<String> {
    families::text(&Observed::all()?)
}
