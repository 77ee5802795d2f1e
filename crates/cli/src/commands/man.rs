//! `vellum man`.

use anyhow::{Context, Result};
use clap::Command;
use clap_mangen::Man;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// Arguments.
#[derive(clap::Args)]
pub struct Args {
    /// Write a page a subcommand into this directory; without it, the main page goes to standard output.
    directory: Option<PathBuf>,
}

/// Writes the pages of the whole command line.
pub fn run(args: &Args, whole: Command) -> Result<()> {
    let mut whole = whole.disable_help_subcommand(true);
    whole.build();
    match &args.directory {
        None => Ok(io::stdout().write_all(page(whole)?.1.as_bytes())?),
        Some(dir) => write(whole, dir)
            .with_context(|| format!("cannot write manual pages into {}", dir.display())),
    }
}

fn write(command: Command, dir: &Path) -> io::Result<()> {
    let visible = command.get_subcommands().filter(|sub| !sub.is_hide_set());
    for sub in visible.cloned() {
        write(sub, dir)?;
    }
    let (name, text) = page(command)?;
    std::fs::write(dir.join(name), text)
}

/// A page's file name and text. clap_mangen leaves out options' values in a synopsis, and calls notes "EXTRA".
fn page(mut command: Command) -> io::Result<(String, String)> {
    let usage = command.render_usage().to_string();
    let usage = usage.trim_start_matches("Usage: ").replace('-', "\\-");
    let man = Man::new(command).source(concat!("vellum ", env!("CARGO_PKG_VERSION")));
    let (name, mut made) = (man.get_filename(), Vec::new());
    man.render(&mut made)?;
    let (mut text, mut is_replaced) = (String::new(), false);
    for line in String::from_utf8_lossy(&made).lines() {
        is_replaced &= !line.starts_with(".SH ");
        text += match line {
            ".SH EXTRA" => ".SH NOTES",
            _ if is_replaced => continue,
            line => line,
        };
        text.push('\n');
        if line == ".SH SYNOPSIS" {
            is_replaced = true;
            text += &usage
                .lines()
                .map(str::trim)
                .collect::<Vec<_>>()
                .join("\n.br\n");
            text.push('\n');
        }
    }
    Ok((name, text))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_shows_the_usage_and_calls_notes_notes() {
        let mut whole = crate::command_line();
        whole.build();
        let sweep = whole.find_subcommand("lab").unwrap();
        let sweep = sweep.find_subcommand("sweep").unwrap().clone();
        let (name, text) = page(sweep).unwrap();
        assert_eq!(name, "vellum-lab-sweep.1");
        let usage = ".SH SYNOPSIS\nvellum lab sweep [OPTIONS] \\-\\-vary <KEY=VALUES> [\\-\\- <RUN>...]\n.SH";
        assert!(text.contains(usage), "{text}");
        let (_, text) = page(whole).unwrap();
        assert!(
            text.contains(".SH NOTES\n") && !text.contains("EXTRA"),
            "{text}"
        );
    }
}
