//! `vellum metrics`: servers' counters, for Prometheus and similar, and for people with a browser.
//!
//! It is a separate program that queries the servers through their control sockets. So there is one place for all volumes of a
//! machine, and no server with data listens to a network for this.

mod http;

use crate::drives::{Drives, Promise};
use crate::observed::Servers;
use crate::outcome::{out, usage};
use anyhow::{Context, Result, anyhow};
use std::io::Write;
use std::net::SocketAddr;
use vellum_ops::http::Hosts;
use vellum_ops::metrics;
use vellum_ops::site::{Site, Source};

/// Arguments.
#[derive(clap::Args)]
#[command(
    after_help = "Examples:\n  sudo vellum metrics > /var/lib/prometheus/node-exporter/vellum.prom\n  \
    sudo vellum metrics --listen\n  \
    sudo vellum metrics --page                  # and look at http://127.0.0.1:9822/\n  \
    sudo vellum metrics --page --listen 0.0.0.0:9822 --host disks.example.org\n\n\
    Each user sees the servers that are his: root's are what `sudo vellum attach` has attached.\n\
    Whoever reaches the address sees the volumes' paths and counters, and no data."
)]
pub struct Args {
    /// Answer HTTP at this address, until SIGTERM, instead of printing once.
    #[arg(long, value_name = "ADDR:PORT", num_args = 0..=1, default_missing_value = LOCAL)]
    listen: Option<SocketAddr>,
    /// Serve a page for people at the same address as well: http://127.0.0.1:9822/ unless --listen has another one.
    #[arg(long)]
    page: bool,
    /// Answer requests for this host name too, besides localhost and addresses; may be repeated. Other names are refused, so that no
    /// web site can read the page through a name of its own (DNS rebinding).
    #[arg(long, value_name = "NAME")]
    host: Vec<String>,
    /// How many terabytes a drive may be written, by its data sheet ("TBW"), like nvme0n1=600; may be repeated. Otherwise that is
    /// reckoned from what the drive says is used of its life.
    #[arg(long, value_name = "DRIVE=TERABYTES")]
    tbw: Vec<Promise>,
}

/// The default address.
const LOCAL: &str = "127.0.0.1:9822";

/// Serves or prints the metrics.
pub fn run(args: Args) -> Result<()> {
    let servers = Servers::new(Drives::new(args.tbw.into_iter()));
    let address = match (args.listen, args.page) {
        (Some(address), _) => address,
        (None, true) => LOCAL.parse()?,
        (None, false) if !args.host.is_empty() => {
            return Err(usage("--host needs --listen, or --page"));
        }
        (None, false) => {
            let text = servers.metrics().map_err(|why| anyhow!(why))?;
            write!(out(), "{}", metrics::older(&text))?;
            return Ok(());
        }
    };
    let site = Site::new(Hosts::new(args.host), args.page);
    let path = if args.page { "" } else { "metrics" };
    http::serve(address, path, move |request| site.answer(request, &servers))
        .with_context(|| format!("cannot answer HTTP at {address}"))
}
