//! The page of the evaluations: what `vellum lab paper` prints, and `docs/benchmarks/lab-papers.md`, byte for byte.

use super::claim::{BAND, count};
use super::evaluation::Evaluation;
use super::list::table;
use std::fmt::Write;

/// The page as Markdown. The last line says how many of the papers' figures are met.
#[must_use]
pub fn page(evaluations: &[Evaluation]) -> String {
    let mut out = OPENING.replace("BAND", &format!("{:.0}%", BAND * 100.0));
    for evaluation in evaluations {
        one(&mut out, evaluation);
    }
    out.push('\n');
    out.push_str(&list(evaluations));
    let frames = evaluations.iter().flat_map(|evaluation| &evaluation.frames);
    let claims = frames.flat_map(|frame| &frame.claims);
    let _ = writeln!(out, "\n{}", count(claims));
    out
}

const OPENING: &str = "\
# The papers' evaluations, run again

What `vellum lab paper all` prints, and nothing else. All is of virtual time or counts, and so the same
on any machine and any number of cores. Loads are synthetic, the file system is the lab's model of jbd2,
which is held against a real ext4 ([lab.md](lab.md)). A paper's figures are drawn, not printed: *theirs*
is what its text states.

*Met*, by one rule for all. **yes**: ours is within BAND of the paper's own figure, better or worse; of
a range, all of ours lie in it, widened by BAND of each end; of a limit (\"less than\", \"at most\"),
ours is no more than BAND above it. **direction**: outside that, but the effect goes the paper's way and
is at least BAND of what it states. **NO**: neither. What a paper says in words, without a figure, holds
or does not. The last column says why what is not *yes* differs. What is run of each paper, and what is
not, is [the list at the end](#every-figure-and-table-of-the-evaluations); how many of the figures are
met is the last line.
";

fn one(out: &mut String, evaluation: &Evaluation) {
    let _ = writeln!(out, "\n## {}", evaluation.paper);
    for frame in &evaluation.frames {
        let _ = writeln!(out, "\n### {}\n\n{}\n", frame.name, frame.setting);
        table(out, &frame.columns, &frame.rows);
        if frame.claims.is_empty() {
            continue;
        }
        out.push('\n');
        let claims = frame.claims.iter().map(|claim| {
            let verdict = claim.verdict.to_string();
            [
                &claim.what,
                &claim.theirs,
                &claim.ours,
                &verdict,
                &claim.why,
            ]
            .map(Clone::clone)
            .to_vec()
        });
        let heads = ["the paper says", "theirs", "ours", "met", "why they differ"];
        table(out, &heads.map(str::to_owned), &claims.collect::<Vec<_>>());
    }
    if !evaluation.missing.is_empty() {
        out.push_str("\n### Not run\n\n");
        for line in &evaluation.missing {
            let _ = writeln!(out, "- {line}");
        }
    }
}

/// The list of figures and tables as Markdown, under a heading of the second level.
fn list(evaluations: &[Evaluation]) -> String {
    let mut out = String::from("## Every figure and table of the evaluations\n\n");
    let heads = ["paper", "figure or table", "shows", "run here"];
    let rows = evaluations.iter().flat_map(|evaluation| {
        let paper = evaluation.paper.split(':').next().unwrap_or_default();
        evaluation.list.iter().map(move |listed| {
            let run = match (&listed.frame, listed.note.as_str()) {
                (Some(frame), "") => format!("*{frame}*"),
                (Some(frame), note) => format!("*{frame}*: {note}"),
                (None, why) => format!("no: {why}"),
            };
            [paper, &listed.name, &listed.shows, &run]
                .map(str::to_owned)
                .to_vec()
        })
    });
    table(
        &mut out,
        &heads.map(str::to_owned),
        &rows.collect::<Vec<_>>(),
    );
    out
}
