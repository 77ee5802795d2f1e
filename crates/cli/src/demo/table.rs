//! The final table.

use super::measure::{CAUSES, Column};
use std::fmt::Write;
use std::time::Duration;

const NAME: usize = 44;
const CELL: usize = 24;

/// Renders it.
pub fn render(columns: &[Column]) -> String {
    let mut out = String::new();
    let mut row = |name: &str, cell: &dyn Fn(&Column) -> String| {
        let _ = write!(out, "{name:<NAME$}");
        for column in columns {
            let _ = write!(out, "{:>CELL$}", cell(column));
        }
        out.push('\n');
    };
    row("", &|c| c.title[0].into());
    row("", &|c| c.title[1].into());
    speeds(columns, &mut row);
    row("host wrote", &|c| mib(c.counters.host));
    row("medium got", &|c| mib(c.counters.medium_bytes()));
    row("flushes from the host", &|c| c.counters.flushes.to_string());
    row("syncs of the medium", &|c| c.counters.syncs.to_string());
    journal(&mut row);
    row("blocks stored in a part of a page", &|c| {
        unless_none(c.counters.packed, |blocks| blocks.to_string())
    });
    let share = |c: &Column, bytes: u64| {
        unless_none(c.counters.host, |host| {
            format!("{:.3}", bytes as f64 / host as f64)
        })
    };
    row("write amplification", &|c| {
        share(c, c.counters.medium_bytes())
    });
    for (i, (_, cause)) in CAUSES.iter().enumerate() {
        row(&format!("  {cause}"), &|c| share(c, c.counters.medium[i]));
    }
    out
}

/// Adds a row: its name, and the cell for a column.
type AddRow<'a> = dyn FnMut(&str, &dyn Fn(&Column) -> String) + 'a;

/// A dash where there is none of what a cell counts or divides by.
fn unless_none(count: u64, cell: impl Fn(u64) -> String) -> String {
    match count {
        0 => "-".to_owned(),
        count => cell(count),
    }
}

/// How fast each application was.
fn speeds(columns: &[Column], row: &mut AddRow<'_>) {
    let laps = columns.first().map_or(&[][..], |c| &c.laps);
    for (i, lap) in laps.iter().enumerate() {
        row(&lap.name, &|c| {
            let lap = c.laps.get(i);
            lap.map_or("-".into(), |l| speed(l.operations, l.time))
        });
    }
    row("all", &|c| format!("{:.2} s", total(c).as_secs_f64()));
}

/// What the file system's journal committed, and what of that was written home.
fn journal(row: &mut AddRow<'_>) {
    row("commits of the journal", &|c| {
        unless_none(c.counters.commits, |commits| commits.to_string())
    });
    row("  syncs of the medium for each", &|c| {
        unless_none(c.counters.commits, |commits| {
            format!("{:.2}", c.counters.syncs as f64 / commits as f64)
        })
    });
    row("blocks written home", &|c| {
        unless_none(c.counters.home_writes, |blocks| blocks.to_string())
    });
    row("  mapped to their journal copy instead", &|c| {
        unless_none(c.counters.home_writes, |blocks| {
            let share = c.counters.remapped as f64 * 100.0 / blocks as f64;
            format!("{share:.1} %")
        })
    });
}

/// The sentence to remember, from what reached the medium.
pub fn to_remember(ordered: u64, volume: u64) -> String {
    let (less, word) = match ordered.checked_sub(volume) {
        Some(less) => (less, "less"),
        None => (volume - ordered, "more"),
    };
    format!(
        "ext4 in its safest mode wrote {} here, on a volume with no option; \
         data=ordered on the plain file wrote {}: {:.0}% {word}.",
        mib(volume),
        mib(ordered),
        less as f64 * 100.0 / ordered.max(1) as f64
    )
}

fn total(column: &Column) -> Duration {
    column.laps.iter().map(|l| l.time).sum()
}

fn speed(operations: u64, time: Duration) -> String {
    let seconds = time.as_secs_f64();
    format!(
        "{seconds:.2} s {:>8.0}/s",
        operations as f64 / seconds.max(1e-9)
    )
}

fn mib(bytes: u64) -> String {
    format!("{:.1} MiB", bytes as f64 / f64::from(1 << 20))
}

#[cfg(test)]
mod tests {
    use super::to_remember;

    #[test]
    fn a_loss_is_stated_as_plainly_as_a_gain() {
        let won = to_remember(120 << 20, 30 << 20);
        assert!(
            won.contains("wrote 30.0 MiB") && won.contains("wrote 120.0 MiB: 75% less."),
            "{won}"
        );
        let lost = to_remember(100 << 20, 117 << 20);
        assert!(lost.ends_with("wrote 100.0 MiB: 17% more."), "{lost}");
        assert!(to_remember(0, 0).ends_with("0% less."));
    }
}
