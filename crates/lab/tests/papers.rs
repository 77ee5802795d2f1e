//! The papers' evaluations: what a paper states is met, or the difference is explained; twice gives the same.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a failure is a test's"
)]

#[path = "common/sized.rs"]
mod sized;

use sized::sized;
use vellum_lab::paper::{Evaluation, Size, caftl, csafs, oftl, omd, text, woj};

fn holds(evaluation: &Evaluation) {
    let text = text(evaluation);
    let claims = || evaluation.frames.iter().flat_map(|frame| &frame.claims);
    assert!(claims().count() > 4, "{text}");
    assert!(!claims().any(|claim| claim.is_open()), "{text}");
    for frame in &evaluation.frames {
        let width = frame.columns.len();
        assert!(
            frame.rows.iter().all(|row| row.len() == width),
            "{}",
            frame.name
        );
        assert!(!text.contains("NaN") && !text.contains("inf "), "{text}");
        let listed = evaluation.list.iter().any(|l| l.frame == Some(&frame.name));
        let own = frame.setting.starts_with("Not in the paper.");
        assert!(listed != own, "{} is not listed", frame.name);
    }
    for listed in evaluation.list {
        match listed.frame {
            Some(name) => assert!(evaluation.frames.iter().any(|f| f.name == name), "{name}"),
            None => assert!(!listed.note.is_empty(), "{} is not run: why", listed.name),
        }
    }
}

/// The names of the claims that are not met.
fn unmet(evaluation: &Evaluation) -> Vec<&str> {
    let claims = evaluation.frames.iter().flat_map(|frame| &frame.claims);
    let unmet = claims.filter(|claim| !claim.met);
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
    // What many threads do to the others' order, `oftl` shows as well, and sooner.
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
    assert!(strong.met, "{}", text(&two));
    if sized(false, true) {
        let one = omd::evaluate(Size::Tiny, 1, None).unwrap();
        assert_eq!(text(&two), text(&one));
    }
}
