//! What the paper says about a kind of persistence, and what is compared with it.

use super::loads::Load;
use crate::outcome::Outcome;
use crate::paper::claim::{Claim, Range, Stated, range};
use crate::paper::scenarios::{scenario, workload};
use crate::scenario::{self, Scenario, Synthetic};
use crate::sim::Pace;

/// The paper's configurations, and the log beside them.
pub const SYSTEMS: [(&str, &str); 6] = [
    ("plain device", "base"),
    ("shadow", "vellum:zero=off,dedup,layout=shadow"),
    (
        "ordered",
        "vellum:zero=off,dedup,layout=ordered,merging=off,anticipation=off",
    ),
    (
        "+ merging",
        "vellum:zero=off,dedup,layout=ordered,anticipation=off",
    ),
    ("+ anticipation", "vellum:zero=off,dedup,layout=ordered"),
    ("log", "vellum:zero=off,dedup"),
];
pub const PLAIN: usize = 0;
pub const SHADOW: usize = 1;
pub const WHOLE: usize = 4;

/// The most requests of the application open at a time.
const DEPTH: u32 = 16;

/// What the paper states for one kind of persistence, in percent.
pub struct Says {
    pub figure: &'static str,
    pub strong: bool,
    pub saved: Range,
    /// How far from the ideal, in points, if it says so.
    pub from_ideal: Option<f64>,
    /// How much more Dmdedup writes than the plain device.
    pub dmdedup: (&'static str, Range),
    pub install: Range,
}

pub const SAYS: [Says; 2] = [
    Says {
        figure: "Figure 2: weak persistence",
        strong: false,
        saved: (18.0, 63.0),
        from_ideal: Some(5.0),
        dmdedup: ("-33 to -7%, and 7% on BBench", (-33.0, 7.0)),
        install: (11.0, 15.0),
    },
    Says {
        figure: "Figure 3: strong persistence",
        strong: true,
        saved: (15.0, 51.0),
        from_ideal: None,
        dmdedup: ("400 to 1100%: 5 to 12 times as much", (400.0, 1100.0)),
        install: (37.0, 42.0),
    },
];

impl Says {
    /// A policy under its persistence. The plain device has none of its own.
    pub fn policy(&self, policy: &str, plain: bool) -> String {
        match self.strong && !plain {
            true => format!("{policy},persistence=strong"),
            false => policy.into(),
        }
    }

    /// The name of the claim about what is not written.
    pub fn fewer(&self) -> String {
        let least = self.saved.0;
        format!("fewer blocks than the plain device, each load with {least:.0}% duplicates or more")
    }

    pub fn persistence(&self) -> &'static str {
        match self.strong {
            true => "strong",
            false => "weak",
        }
    }
}

/// A load under a system: percent of the plain device's blocks, and its time relative to the plain device's.
#[derive(Clone, Copy, Default)]
pub struct Shown {
    pub percent: f64,
    pub time: f64,
}

impl Shown {
    pub fn of(outcome: &Outcome, plain: &Outcome) -> Self {
        Self {
            percent: outcome.medium_blocks() as f64 * 100.0 / plain.medium_blocks().max(1) as f64,
            time: outcome.seconds / plain.seconds.max(1e-9),
        }
    }
}

/// Of the blocks that a load writes to, how many per cent are not stored at its end.
pub fn space(load: &Load, outcome: &Outcome) -> f64 {
    let live = outcome.counted("live_blocks");
    100.0 - live as f64 * 100.0 / load.shares.touched.max(1) as f64
}

/// A load on an empty volume.
pub fn run_of(load: &Load, durable: bool) -> Scenario<'_> {
    let requests = if durable {
        &load.durable
    } else {
        &load.requests
    };
    // Twice the room: space is not what is measured.
    let capacity = (load.blocks * 2 * 4096).max(256 << 20);
    let nothing = Synthetic::new(workload("uniform"));
    let mut scenario = Scenario {
        load: scenario::Load::Requests(requests),
        pace: Pace::Elastic {
            depth: DEPTH,
            think: None,
        },
        ..scenario(load.device, capacity, nothing)
    };
    scenario.device.over_provisioning = Some(900);
    scenario
}

pub const FROM_IDEAL: &str = "points from the ideal";
pub const SPACE: &str = "space saved";
pub const TIME: &str = "time of the load over the plain device's, but for an installation";
pub const INSTALL: &str = "the same, an installation";

/// What is compared with the paper's statements, for one load.
pub struct Seen<'a> {
    pub name: &'a str,
    pub ideal: f64,
    pub whole: Shown,
    pub shadow: Shown,
    /// In percent of the plain device's blocks.
    pub dmdedup: f64,
    pub space: f64,
}

pub fn claims(stated: &Says, all: &[Seen<'_>]) -> Vec<Claim> {
    let scattered = match stated.strong {
        true => {
            "a write that comes alone is three blocks: its data, its count, its link. Only what comes \
                while a commit is under way, or lies in the same blocks of the tables, shares \
             them; the times between the paper's requests are not known"
        }
        false => {
            "each flush writes a block of the map and of the counts for each place that was touched since \
                the last: a load whose writes lie apart, or that flushes after few of \
             them, pays one or two blocks of tables a block of data; the requests of the paper's loads \
             are not known"
        }
    };
    let each = |of: &dyn Fn(&Seen<'_>) -> f64| list(all, of);
    let least = stated.saved.0;
    let loads = |of: &dyn Fn(&Seen<'_>) -> f64, which: &dyn Fn(&Seen<'_>) -> bool| {
        range(all.iter().filter(|seen| which(seen)).map(of))
    };
    let every = |_: &Seen<'_>| true;
    let saved = |seen: &Seen<'_>| 100.0 - seen.whole.percent;
    let enough = |seen: &Seen<'_>| 100.0 - seen.ideal >= least;
    let mut claims = vec![Claim::new(
        stated.fewer(),
        format!("{least:.0} to {:.0}%", stated.saved.1),
        each(&saved),
        Stated::range(stated.saved, loads(&saved, &enough)).over(0.0),
        scattered,
    )];
    if let Some(theirs) = stated.from_ideal {
        let off = |seen: &Seen<'_>| seen.whole.percent - seen.ideal;
        let near = all.iter().filter(|seen| off(seen) <= theirs).count();
        claims.push(Claim::new(
            FROM_IDEAL,
            format!("within {theirs}, all loads"),
            format!(
                "{near} of {} are: {}",
                all.len(),
                each(&off).replace('%', "")
            ),
            Stated::AtMost {
                theirs,
                ours: loads(&off, &every).1,
            },
            scattered,
        ));
    }
    claims.extend(shadowing(stated, all));
    claims.extend(times(stated, all));
    let space = |seen: &Seen<'_>| seen.space;
    claims.push(Claim::new(
        SPACE,
        "22 to 56%",
        each(&space),
        Stated::range((22.0, 56.0), loads(&space, &every)).over(0.0),
        "of the blocks in use at the end fewer are duplicates than of those written, where a load \
            overwrites what it wrote; and no load can save more than its duplicates",
    ));
    claims
}

/// Lists a figure for each load, in whole percent.
fn list(all: &[Seen<'_>], of: impl Fn(&Seen<'_>) -> f64) -> String {
    let each = all
        .iter()
        .map(|seen| format!("{} {:.0}%", seen.name, of(seen)));
    each.collect::<Vec<_>>().join(", ")
}

/// The time of a load relative to the plain device's.
fn times(stated: &Says, all: &[Seen<'_>]) -> Vec<Claim> {
    let time = |seen: &Seen<'_>| (seen.whole.time - 1.0) * 100.0;
    let installs = |seen: &&Seen<'_>| seen.name.starts_with("install");
    let others = |seen: &&Seen<'_>| !installs(seen);
    let steps = "a commit has two steps one after the other (what links lead to, then links), each \
        written and synced, where the plain device has one; the times between the paper's \
                 requests are not known";
    let times = list(all, time).replace("-0%", "0%");
    let mut claims = vec![Claim::new(
        TIME,
        "within 5%",
        &times,
        Stated::AtMost {
            theirs: 5.0,
            ours: range(all.iter().filter(others).map(time)).1,
        },
        steps,
    )];
    if all.iter().any(|seen| installs(&seen)) {
        claims.push(Claim::new(
            INSTALL,
            format!("{:.0} to {:.0}%", stated.install.0, stated.install.1),
            &times,
            Stated::range(stated.install, range(all.iter().filter(installs).map(time))).over(0.0),
            steps,
        ));
    }
    claims
}

/// What shadowing writes: Dmdedup's count, and ours.
fn shadowing(stated: &Says, all: &[Seen<'_>]) -> [Claim; 2] {
    let shadow = range(
        all.iter()
            .map(|seen| seen.shadow.percent / seen.whole.percent),
    );
    let dmdedup = range(all.iter().map(|seen| seen.dmdedup / seen.whole.percent));
    let more = |seen: &Seen<'_>| seen.dmdedup - 100.0;
    let (theirs, figures) = stated.dmdedup;
    let why = "what a commit of each writes, and how many there are, is counted below; the paper's loads \
        are not known";
    [
        Claim::words(
            "shadowing loses to order and merging",
            "Dmdedup writes more",
            format!(
                "Dmdedup, counted, {:.2} to {:.2} times as much, our shadow {:.2} to {:.2} times",
                dmdedup.0, dmdedup.1, shadow.0, shadow.1
            ),
            dmdedup.0 >= 1.0,
        )
        .because(why),
        Claim::new(
            "what Dmdedup, counted, writes more than the plain device",
            theirs,
            list(all, more),
            Stated::range(figures, range(all.iter().map(more))).over(0.0),
            why,
        ),
    ]
}
