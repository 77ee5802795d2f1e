//! The screen of `vellum top`: the sentence, a row for each volume, and for the chosen one what is written and how long fsyncs wait.

use crate::commands::top::pace::Paces;
use ratatui::Frame;
use ratatui::layout::{Alignment, Constraint, Layout, Rect};
use ratatui::style::{Color, Style, Stylize};
use ratatui::text::{Line, Span};
use ratatui::widgets::{
    Bar, BarChart, BarGroup, Block, Borders, Padding, Paragraph, Row, Table, Wrap,
};
use vellum_ops::units;
use vellum_ops::view::{Counted, View, VolumeView};

/// The one colour that carries meaning.
const ACCENT: Color = Color::Cyan;
/// With fewer columns, panels are stacked instead of side by side.
const NARROW: u16 = 80;
/// Columns of a histogram bar, and between two bars.
const BAR: (u16, u16) = (6, 1);

/// What is shown.
pub struct Shown {
    view: View,
    chosen: usize,
}

impl Shown {
    /// Shows this view, with its first volume chosen.
    pub fn of(view: View) -> Self {
        Self { view, chosen: 0 }
    }

    /// The current view.
    pub fn view(&self) -> &View {
        &self.view
    }

    /// Replaces the view by a later one. The chosen volume stays chosen.
    pub fn replace(&mut self, view: View) {
        let uuid = self
            .view
            .volumes
            .get(self.chosen)
            .map(|volume| &volume.uuid);
        let at = view
            .volumes
            .iter()
            .position(|volume| Some(&volume.uuid) == uuid);
        self.chosen = at.unwrap_or(0);
        self.view = view;
    }

    /// Chooses the volume below.
    pub fn choose_next(&mut self) {
        self.chosen = (self.chosen + 1).min(self.view.volumes.len().saturating_sub(1));
    }

    /// Chooses the volume above.
    pub fn choose_before(&mut self) {
        self.chosen = self.chosen.saturating_sub(1);
    }

    /// Draws the screen.
    pub fn draw(&self, paces: &Paces, frame: &mut Frame<'_>) {
        let volumes = u16::try_from(self.view.volumes.len()).unwrap_or(u16::MAX);
        let parts = [
            Constraint::Length(4),
            Constraint::Length(volumes.saturating_add(2).min(10)),
            Constraint::Fill(1),
            Constraint::Length(1),
        ];
        let [sentence, table, details, keys] = Layout::vertical(parts).areas(frame.area());
        self.draw_sentence(frame, sentence);
        self.draw_volumes(paces, frame, table);
        if let Some(volume) = self.view.volumes.get(self.chosen) {
            draw_volume(volume, frame, details);
        }
        let words = "up, down: another volume   q: end".dim();
        frame.render_widget(Line::from(words), keys);
    }

    /// The sentence about the chosen volume's drive.
    fn draw_sentence(&self, frame: &mut Frame<'_>, area: Rect) {
        let uuid = self
            .view
            .volumes
            .get(self.chosen)
            .map(|volume| &volume.uuid);
        let is_below = |volumes: &[String]| uuid.is_some_and(|uuid| volumes.contains(uuid));
        let drive = self
            .view
            .drives
            .iter()
            .find(|drive| is_below(&drive.volumes));
        let lines = match drive {
            None => vec![Line::from(self.view.headline().bold())],
            Some(drive) => vec![
                Line::from(vec![Span::from(drive.headline.as_str()).bold().fg(ACCENT)]),
                Line::from(drive.name.as_str().dim()),
                Line::from(drive.because.as_str().dim()),
            ],
        };
        frame.render_widget(Paragraph::new(lines).wrap(Wrap { trim: true }), area);
    }

    fn draw_volumes(&self, paces: &Paces, frame: &mut Frame<'_>, area: Rect) {
        let names = [
            "VOLUME",
            "HEALTH",
            "WRITTEN",
            "TO DRIVE",
            "FSYNCS",
            "99 % WAIT",
            "SAVED",
            "USED",
        ];
        let header = Row::new(names.map(|name| cell(name, name == "VOLUME" || name == "HEALTH")));
        let rows = self.view.volumes.iter().enumerate().map(|(at, volume)| {
            let row = row(volume, paces);
            match at == self.chosen {
                true => row.reversed(),
                false => row,
            }
        });
        let widths = [
            Constraint::Min(10),
            Constraint::Length(8),
            Constraint::Length(12),
            Constraint::Length(12),
            Constraint::Length(8),
            Constraint::Length(9),
            Constraint::Length(6),
            Constraint::Length(5),
        ];
        frame.render_widget(Table::new(rows, widths).header(header.dim()), area);
    }
}

/// Text is aligned to the left, figures to the right.
fn cell(text: impl Into<String>, is_words: bool) -> Line<'static> {
    let line = Line::from(text.into());
    match is_words {
        true => line,
        false => line.alignment(Alignment::Right),
    }
}

fn row(volume: &VolumeView, paces: &Paces) -> Row<'static> {
    let pace = paces.of(&volume.uuid);
    let rate = |bytes: f64| format!("{}/s", units::bytes(bytes));
    let or = |told: Option<String>| cell(told.unwrap_or_else(|| "-".to_owned()), false);
    let counted = volume.counted.as_ref();
    let percent = |part: u64, of: u64| (of > 0).then(|| format!("{} %", 100 * part / of));
    let health = match volume.health {
        "OK" => cell("OK", true),
        other => cell(other, true).fg(Color::Red),
    };
    Row::new(vec![
        cell(volume.name.clone(), true),
        health,
        or(pace.map(|pace| rate(pace.clients))),
        or(pace.map(|pace| rate(pace.medium))),
        or(pace.map(|pace| format!("{:.0}/s", pace.flushes))),
        or(counted.and_then(|it| (it.flushes.count > 0).then(|| units::micros(it.flushes.most)))),
        or(counted.and_then(|it| {
            percent(
                it.clients_written.saturating_sub(it.medium_written),
                it.clients_written,
            )
        })),
        or(counted.and_then(|it| percent(it.space.used, it.space.capacity))),
    ])
}

fn draw_volume(volume: &VolumeView, frame: &mut Frame<'_>, area: Rect) {
    let lately = 2 + u16::try_from(volume.findings.len().clamp(1, 4)).unwrap_or(4);
    let parts = [Constraint::Fill(1), Constraint::Length(lately)];
    let [plots, troubles] = Layout::vertical(parts).areas(area);
    if let Some(counted) = &volume.counted {
        let halves = [Constraint::Fill(1), Constraint::Fill(1)];
        let [left, right] = match plots.width {
            ..NARROW => Layout::vertical(halves).areas(plots),
            _ => Layout::horizontal(halves).spacing(2).areas(plots),
        };
        draw_written(counted, frame, left);
        draw_waits(counted, frame, right);
    }
    let words = match volume.findings.is_empty() {
        true => "Nothing is wrong.".to_owned(),
        false => volume.findings.join("\n"),
    };
    frame.render_widget(Paragraph::new(words).block(titled("Health")), troubles);
}

fn titled(title: &str) -> Block<'_> {
    let padding = Padding::ZERO;
    Block::new()
        .borders(Borders::TOP)
        .title(title.bold())
        .padding(padding)
}

/// What programs wrote, what the drive received, and that by cause, one line each.
fn draw_written(counted: &Counted, frame: &mut Frame<'_>, area: Rect) {
    let (wrote, got) = (counted.clients_written, counted.medium_written);
    let parts = counted
        .causes
        .iter()
        .map(|cause| (format!("  {}", cause.name), cause.bytes, true));
    let shares = [
        ("programs wrote".to_owned(), wrote, false),
        ("the drive got".to_owned(), got, true),
    ];
    let shares: Vec<_> = shares.into_iter().chain(parts).collect();
    let most = shares
        .iter()
        .map(|(_, bytes, _)| *bytes)
        .max()
        .unwrap_or(0)
        .max(1);
    let room = usize::from(area.width).saturating_sub(24 + 10);
    let lines = shares.iter().map(|(name, bytes, is_drive)| {
        let length = (*bytes as f64 / most as f64 * room as f64).ceil() as usize;
        let bar = "\u{2588}".repeat(length);
        let bar = if *is_drive { bar.fg(ACCENT) } else { bar.dim() };
        let bytes = units::bytes(*bytes as f64);
        Line::from(vec![Span::from(format!("{name:<24}{bytes:>9} ")), bar])
    });
    let lines: Vec<_> = lines.collect();
    frame.render_widget(
        Paragraph::new(lines).block(titled("Written since it was opened")),
        area,
    );
}

/// One bar for each step; if there is no room, for several steps together.
fn draw_waits(counted: &Counted, frame: &mut Frame<'_>, area: Rect) {
    let block = titled("How long an fsync waits: % that took less than");
    let steps = counted.flushes.steps();
    let has_some = |(_, count): &(u64, u64)| *count > 0;
    let ends = (
        steps.iter().position(has_some),
        steps.iter().rposition(has_some),
    );
    let (Some(first), Some(last)) = ends else {
        frame.render_widget(Paragraph::new("No fsync yet.".dim()).block(block), area);
        return;
    };
    let room = usize::from((area.width + BAR.1) / (BAR.0 + BAR.1)).max(1);
    let together = (last - first + 1).div_ceil(room);
    let bars: Vec<Bar<'_>> = steps[first..=last]
        .chunks(together)
        .map(|steps| {
            let end = steps.last().map_or(0, |(end, _)| *end);
            let count: u64 = steps.iter().map(|(_, count)| count).sum();
            let share = 100.0 * count as f64 / counted.flushes.count.max(1) as f64;
            Bar::with_label(units::micros(end), (10.0 * share) as u64)
                .text_value(format!("{share:.1}"))
        })
        .collect();
    let chart = BarChart::default()
        .data(BarGroup::default().bars(&bars))
        .bar_width(BAR.0)
        .bar_gap(BAR.1)
        .bar_style(Style::new().fg(ACCENT))
        .value_style(Style::new().fg(Color::Black).bg(ACCENT))
        .block(block);
    frame.render_widget(chart, area);
}

#[cfg(test)]
mod tests {
    use super::*;
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;
    use serde_json::json;
    use std::time::Duration;
    use vellum_ops::Observed;

    fn view(uuids: &[&str], written: u64) -> View {
        let volume = |uuid: &&str| {
            let told = json!({
                "path": format!("/srv/{uuid}.vellum"), "drive": {"unknown": "it is in memory"},
                "stats": {
                    "clients": {"write": {"bytes": written}}, "core": {},
                    "medium": {"written_bytes": written / 4, "data_bytes": written / 5},
                    "room": {"used_bytes": 1, "capacity_bytes": 4},
                    "flushes": {"waited": {"count": 4, "most_micros": 900, "histogram": [
                        {"below_micros": 16, "count": 1}, {"below_micros": 32, "count": 3},
                    ]}},
                },
            });
            Observed::new((*uuid).to_owned(), Some(told))
        };
        let volumes: Vec<_> = uuids.iter().map(volume).collect();
        View::of(&volumes, &[])
    }

    fn drawn(shown: &Shown, paces: &Paces, width: u16, height: u16) -> String {
        let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
        terminal.draw(|frame| shown.draw(paces, frame)).unwrap();
        terminal.backend().to_string()
    }

    #[test]
    fn a_screen_says_what_the_page_says() {
        let mut shown = Shown::of(view(&["a", "b"], 0));
        let mut paces = Paces::default();
        paces.note(shown.view(), Duration::ZERO);
        shown.choose_next();
        shown.replace(view(&["a", "b"], 8 << 20));
        paces.note(shown.view(), Duration::from_secs(2));
        let text = drawn(&shown, &paces, 110, 24);
        for told in [
            "Programs wrote 8.00 MiB, the drive got 2.00 MiB: 75 % saved.",
            "it is in memory",
            "/srv/a.vellum",
            "/srv/b.vellum",
            "4.00 MiB/s",
            "1.00 MiB/s",
            "75 %",
            "25 %",
            "900 \u{b5}s",
            "programs wrote",
            "25.0",
            "75.0",
            "32 \u{b5}s",
            "Nothing is wrong.",
        ] {
            assert!(text.contains(told), "{told}: {text}");
        }
    }

    #[test]
    fn the_chosen_volume_stays_chosen_and_no_size_is_too_small() {
        let mut shown = Shown::of(view(&["a", "b"], 0));
        shown.choose_before();
        shown.choose_next();
        shown.choose_next();
        shown.replace(view(&["0", "a", "b"], 0));
        assert_eq!(shown.chosen, 2);
        shown.replace(view(&["0"], 0));
        assert_eq!(shown.chosen, 0);
        for (width, height) in [(1, 1), (20, 5), (80, 24), (300, 100)] {
            drawn(&shown, &Paces::default(), width, height);
            drawn(&Shown::of(view(&[], 0)), &Paces::default(), width, height);
        }
    }
}
