//! The papers' evaluations: each statement of a paper is met, or the difference is explained; two runs give the same. The
//! recorded results are still current, and the page is that record, as the command prints it. The record: `vellum lab paper all
//! --json`.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a failure is a test's"
)]

#[path = "common/sized.rs"]
mod sized;

use sized::sized;
use std::path::PathBuf;
use vellum_lab::paper::{
    Claim, Evaluation, NAMES, Size, Stated, Verdict, caftl, csafs, oftl, omd, page, woj,
};

fn text(evaluation: &Evaluation) -> String {
    page(std::slice::from_ref(evaluation))
}

fn document(name: &str) -> String {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../docs/benchmarks");
    std::fs::read_to_string(path.join(name)).unwrap()
}

fn recorded() -> Vec<Evaluation> {
    serde_json::from_str(&document("lab-papers.json")).unwrap()
}

#[test]
fn the_page_is_the_record_as_the_command_prints_it() {
    let recorded = recorded();
    assert_eq!(recorded.len(), NAMES.len());
    assert_eq!(document("lab-papers.md"), page(&recorded));
    let frames = recorded.iter().flat_map(|evaluation| &evaluation.frames);
    let alone = frames.clone().flat_map(|frame| {
        let claims = frame.claims.iter();
        claims.filter(|claim| frame.is_alone(claim))
    });
    let alone: Vec<_> = alone.map(|claim| claim.what.as_str()).collect();
    assert!(
        alone.contains(&"latency added with 2 MB")
            && alone.contains(&"kernel build: fewer erasures")
    );
    assert!(page(&recorded).contains("| explained alone | at 55 ms"));
    for claim in frames.flat_map(|frame| &frame.claims) {
        assert_eq!(claim.verdict, claim.judged(), "{}", claim.what);
        compares_what_it_prints(claim);
    }
    recorded.iter().for_each(varies_one_thing);
}

/// Checks the experiments: each has the usual value, and figures of claims of its frame; and what is explained is
/// explained by one of them, at a value that is plausible.
fn varies_one_thing(evaluation: &Evaluation) {
    for frame in &evaluation.frames {
        let claim = |name: &str| frame.claims.iter().find(|claim| claim.what == name);
        for experiment in &frame.experiments {
            let about = &experiment.varies;
            assert!(experiment.trials.len() > 2, "{about}: too few values");
            assert!(!experiment.because.is_empty() && !experiment.columns.is_empty());
            for column in &experiment.columns {
                let claim = claim(&column.claim).expect("an experiment is about a claim");
                assert!(experiment.repeats(claim), "{about}: {}", claim.what);
                let (_, ours) = claim.stated.ours();
                let tried = faster(&format!("{ours:.0}{}", column.unit));
                assert_eq!(tried, faster(&claim.ours), "{}, {about}", claim.what);
            }
        }
        let explained = |claim: &&Claim| claim.verdict == Verdict::Explained;
        for claim in frame.claims.iter().filter(explained) {
            let found = claim.found.as_ref().expect("an experiment found it");
            assert!(found.is_plausible, "{claim:?}");
            let its = frame.experiments.iter().filter(|experiment| {
                let mut columns = experiment.columns.iter();
                experiment.varies == found.varies && columns.any(|c| c.claim == claim.what)
            });
            assert_eq!(its.count(), 1, "{claim:?}");
        }
    }
}

/// Returns the numbers in a text, each with the unit of its last digit.
fn numbers(text: &str) -> Vec<(f64, f64)> {
    let cut = |c: char| !(c.is_ascii_digit() || c == '.' || c == '-');
    let words = text.split(cut).map(|word| word.trim_end_matches('.'));
    let decimals = |word: &str| word.split_once('.').map_or(0, |(_, after)| after.len());
    words
        .filter_map(|word| {
            let place = 0.1_f64.powi(i32::try_from(decimals(word)).unwrap());
            Some((word.parse().ok()?, place))
        })
        .collect()
}

/// By how many percent faster a text says that something is: "26% slower" is -26. None if it is about no speed.
fn faster(text: &str) -> Option<f64> {
    let (figure, way) = text.rsplit_once("% ")?;
    let sign = [("faster", 1.0), ("slower", -1.0)]
        .into_iter()
        .find_map(|(word, sign)| (word == way).then_some(sign))?;
    Some(sign * figure.parse::<f64>().unwrap())
}

/// Checks that the figures behind the verdict are those that a reader sees, to the last digit printed.
fn compares_what_it_prints(claim: &Claim) {
    let (theirs, ours) = match claim.stated {
        Stated::Figures { theirs, ours, .. } => (theirs, ours),
        Stated::AtMost { theirs, ours } => ((theirs, theirs), (ours, ours)),
        Stated::Words { .. } => return,
    };
    // "7% slower" and "writes 7% more" express a sign in words.
    let printed = |text: &str, figure: f64| {
        let near =
            |(number, place): (f64, f64)| (number.abs() - figure.abs()).abs() <= 0.501 * place;
        numbers(text).into_iter().any(near)
    };
    for figure in [theirs.0, theirs.1] {
        assert!(printed(&claim.theirs, figure), "{figure}: {claim:?}");
    }
    for figure in [ours.0, ours.1] {
        assert!(printed(&claim.ours, figure), "{figure}: {claim:?}");
    }
}

/// Checks that the record has the current frames, columns and statements.
fn is_recorded(evaluation: &Evaluation) {
    let says = |evaluation: &Evaluation| {
        let frames = evaluation.frames.iter().map(|frame| {
            let claims = frame.claims.iter();
            let claims =
                claims.map(|claim| (claim.what.clone(), claim.theirs.clone(), claim.why.clone()));
            let columns = frame.columns.clone();
            let varied = frame.experiments.iter().map(|own| {
                let values: Vec<f64> = own.trials.iter().map(|trial| trial.value).collect();
                let assumed = (own.varies.clone(), own.usual, own.plausible);
                (assumed, own.because.clone(), own.columns.clone(), values)
            });
            let varied: Vec<_> = varied.collect();
            (
                frame.name.clone(),
                frame.setting.clone(),
                columns,
                claims.collect::<Vec<_>>(),
                varied,
            )
        });
        let list = serde_json::to_string(&evaluation.list).unwrap();
        (frames.collect::<Vec<_>>(), evaluation.missing.clone(), list)
    };
    let recorded = recorded();
    let of_it = recorded
        .iter()
        .find(|other| other.paper == evaluation.paper);
    let of_it = of_it.expect("docs/benchmarks/lab-papers.json has every paper");
    assert_eq!(
        says(evaluation),
        says(of_it),
        "record it again: `vellum lab paper all`"
    );
}

fn holds(evaluation: &Evaluation) {
    is_recorded(evaluation);
    let text = text(evaluation);
    let claims = || evaluation.frames.iter().flat_map(|frame| &frame.claims);
    assert!(claims().count() > 4, "{text}");
    assert!(!claims().any(Claim::is_open), "{text}");
    claims().for_each(compares_what_it_prints);
    varies_one_thing(evaluation);
    for frame in &evaluation.frames {
        let width = frame.columns.len();
        assert!(
            frame.rows.iter().all(|row| row.len() == width),
            "{}",
            frame.name
        );
        assert!(!text.contains("NaN") && !text.contains("inf "), "{text}");
        let listed = evaluation
            .list
            .iter()
            .any(|l| l.frame.as_ref() == Some(&frame.name));
        let own = frame.setting.starts_with("Not in the paper.");
        assert!(listed != own, "{} is not listed", frame.name);
    }
    for listed in &evaluation.list {
        match &listed.frame {
            Some(name) => assert!(evaluation.frames.iter().any(|f| f.name == *name), "{name}"),
            None => assert!(!listed.note.is_empty(), "{} is not run: why", listed.name),
        }
    }
}

/// Returns the names of the claims that are not met.
fn unmet(evaluation: &Evaluation) -> Vec<&str> {
    let claims = evaluation.frames.iter().flat_map(|frame| &frame.claims);
    let unmet = claims.filter(|claim| claim.verdict == Verdict::No);
    unmet.map(|claim| claim.what.as_str()).collect()
}

#[test]
fn oftl_is_met_on_one_thread_and_on_many() {
    let two = oftl::evaluate(Size::Tiny, 2).unwrap();
    holds(&two);
    // A commit's few blocks, one after the other, take as long as a short flush.
    let serial = "the stream FTL is comparable to OFTL";
    assert_eq!(unmet(&two), [serial], "{}", text(&two));
    assert_eq!(text(&two), text(&oftl::evaluate(Size::Tiny, 1).unwrap()));
}

#[test]
fn woj_is_met_or_explained() {
    holds(&woj::evaluate(Size::Tiny, 2).unwrap());
}

#[test]
fn caftl_is_met_or_explained() {
    holds(&caftl::evaluate(Size::Tiny, 2).unwrap());
}

#[test]
fn csafs_is_met_or_explained_on_one_thread_and_on_many() {
    let two = csafs::evaluate(Size::Tiny, 2).unwrap();
    holds(&two);
    // `oftl` also shows what many threads do to the others' order, and sooner.
    if sized(false, true) {
        assert_eq!(text(&two), text(&csafs::evaluate(Size::Tiny, 1).unwrap()));
    }
}

#[test]
fn omd_is_met_or_explained_on_one_thread_and_on_many() {
    let two = omd::evaluate(Size::Tiny, 2, None).unwrap();
    holds(&two);
    let claims = two.frames.iter().flat_map(|frame| &frame.claims);
    let mut lost = claims.filter(|claim| claim.what.starts_with("shadowing loses"));
    let strong = lost.next_back().expect("figure 3 is the last of the two");
    assert_eq!(strong.verdict, Verdict::Yes, "{}", text(&two));
    if sized(false, true) {
        let one = omd::evaluate(Size::Tiny, 1, None).unwrap();
        assert_eq!(text(&two), text(&one));
    }
}
