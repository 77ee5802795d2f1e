//! The page of the evaluations: what `vellum lab paper` prints, and `docs/benchmarks/lab-papers.md`, byte for byte.

use super::claim::{BAND, Claim, Verdict, count};
use super::evaluation::{Evaluation, Frame};
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
    let claims = frames.flat_map(|frame| {
        let claims = frame.claims.iter();
        claims.map(|claim| (claim, frame.is_alone(claim)))
    });
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
is at least BAND of what it states. **NO**: neither. **explained**: outside that as well, but an
experiment finds the reason. It varies one assumption that the paper does not state, and nothing else;
at a value that is plausible, ours is the paper's figure by the rule of *yes*. What a paper says in
words, without a figure, holds or does not.

An experiment stands below the table of its figures: what is varied, its value in all other runs, which
values are plausible and why, and ours at each value, in bold where it is the paper's figure. At the
usual value it must give the figure of the table to the last bit, or it explains nothing: so no second
assumption can hide in it. A value that is not plausible explains nothing either. **explained alone**:
at the value that explains it, another figure of the table is not the paper's, or was not run: one that
is met, or that another value of the same assumption explains. Another value that was tried may give both.
What a paper says in words is not run at other values.

The last column says why what is not *yes* differs. What is run of each paper, and what is not, is
[the list at the end](#every-figure-and-table-of-the-evaluations); how many of the figures are met is
the last line.
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
            let alone = if frame.is_alone(claim) { " alone" } else { "" };
            let verdict = format!("{}{alone}", claim.verdict);
            [
                &claim.what,
                &claim.theirs,
                &claim.ours,
                &verdict,
                &reason(frame, claim),
            ]
            .map(Clone::clone)
            .to_vec()
        });
        let heads = ["the paper says", "theirs", "ours", "met", "why they differ"];
        table(out, &heads.map(str::to_owned), &claims.collect::<Vec<_>>());
        let experiments = frame.experiments.iter();
        experiments.for_each(|experiment| experiment.print(out));
    }
    if !evaluation.missing.is_empty() {
        out.push_str("\n### Not run\n\n");
        for line in &evaluation.missing {
            let _ = writeln!(out, "- {line}");
        }
    }
}

/// Why a claim's figures differ, with what the experiments of its table say.
fn reason(frame: &Frame, claim: &Claim) -> String {
    let is_open = claim.verdict != Verdict::Yes && claim.found.is_none();
    let tried = frame.experiments.iter().filter(|own| own.is_about(claim));
    let tried = tried.filter(|_| is_open);
    let without = tried.map(|own| {
        format!(
            "; no value that was tried of *{}*, below, gives it",
            own.varies
        )
    });
    claim.reason() + &without.collect::<String>()
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
