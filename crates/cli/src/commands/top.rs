//! `vellum top`: shows all volumes of this machine in a terminal, and keeps the display current.

mod pace;
mod screen;

use crate::drives::{Drives, Promise};
use crate::observed::Servers;
use crate::outcome::usage;
use crate::signals::Stop;
use anyhow::{Result, anyhow};
use pace::Paces;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEvent, KeyModifiers};
use screen::Shown;
use std::io::{IsTerminal, stdout};
use std::time::{Duration, Instant};
use vellum_ops::site::Source;

/// Arguments.
#[derive(clap::Args)]
#[command(
    after_help = "Keys: up and down choose a volume, q or Ctrl-C ends.\n\n\
    Examples:\n  sudo vellum top\n  sudo vellum top --every 10 --tbw nvme0n1=600\n\n\
    Each user sees the servers that are his: root's are what `sudo vellum attach` has attached.\n\
    Without a terminal, `vellum stats` and `vellum metrics` tell the same."
)]
pub struct Args {
    /// Ask again after so many seconds.
    #[arg(long, value_name = "SECONDS", default_value_t = 2,
          value_parser = clap::value_parser!(u64).range(1..=3600))]
    every: u64,
    /// How many terabytes a drive may be written, by its data sheet ("TBW"), like nvme0n1=600; may be repeated.
    #[arg(long, value_name = "DRIVE=TERABYTES")]
    tbw: Vec<Promise>,
}

/// How soon a signal is noticed while waiting for keys.
const LOOK_EVERY: Duration = Duration::from_millis(200);

/// Shows the volumes until the user quits.
pub fn run(args: Args) -> Result<()> {
    if !stdout().is_terminal() {
        return Err(usage(
            "top draws on a terminal: use `vellum stats`, or `vellum metrics`",
        ));
    }
    let servers = Servers::new(Drives::new(args.tbw.into_iter()));
    // Before the terminal is changed, so that a failure is shown on a normal one.
    let mut shown = Shown::of(servers.view().map_err(|why| anyhow!(why))?);
    let stop = Stop::with_terminal()?;
    let mut terminal = ratatui::try_init()?;
    let ended = watch(
        &mut terminal,
        &servers,
        &mut shown,
        Duration::from_secs(args.every),
        &stop,
    );
    ratatui::try_restore()?;
    ended
}

fn watch(
    terminal: &mut ratatui::DefaultTerminal,
    servers: &Servers,
    shown: &mut Shown,
    every: Duration,
    stop: &Stop,
) -> Result<()> {
    let began = Instant::now();
    let mut paces = Paces::default();
    let mut asked = Instant::now();
    paces.note(shown.view(), began.elapsed());
    let mut is_new = true;
    loop {
        if is_new {
            terminal.draw(|frame| shown.draw(&paces, frame))?;
        }
        let left = every.saturating_sub(asked.elapsed());
        // A key, or a change of the terminal's size.
        is_new = event::poll(left.min(LOOK_EVERY))?;
        if stop.asked() || (is_new && is_end(&event::read()?, shown)) {
            return Ok(());
        }
        if asked.elapsed() >= every {
            asked = Instant::now();
            shown.replace(servers.view().map_err(|why| anyhow!(why))?);
            paces.note(shown.view(), began.elapsed());
            is_new = true;
        }
    }
}

/// Handles a key. Returns true if it quits.
fn is_end(event: &Event, shown: &mut Shown) -> bool {
    let Event::Key(KeyEvent {
        code, modifiers, ..
    }) = event
    else {
        return false;
    };
    match code {
        KeyCode::Char('c') => return modifiers.contains(KeyModifiers::CONTROL),
        KeyCode::Char('q' | 'Q') | KeyCode::Esc => return true,
        KeyCode::Down | KeyCode::Char('j') => shown.choose_next(),
        KeyCode::Up | KeyCode::Char('k') => shown.choose_before(),
        _ => {}
    }
    false
}
