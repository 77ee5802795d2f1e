//! Which step must be on the medium before which: the paper's four cases as graphs (OrderMergeDedup §2.1, figure 1).
//!
//! Two rules make the graphs. Data is there before anything leads to it. A count is raised before the link that it counts, and
//! lowered after the link is gone: so after a crash a count may be too high, but never too low.
//!
//! In each graph, steps of one kind have the same depth. So steps are carried out by depth, for all writes of a commit together: one
//! write for each table block and depth (`commit.rs`). A cycle could arise only if one count must go down, and another one in the same
//! table block must go up. No answer waits for a count to go down, so that is left to a later commit.

/// Something that reaches the medium.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// The new block's bytes.
    Data,
    /// The count of the block that the LBA will lead to is raised; once more for its fingerprint if it is new.
    CountUp,
    /// The fingerprint of a block that is to be given up is removed.
    Unprint,
    /// The LBA's link, in place of the old one.
    Link,
    /// The new block's fingerprint.
    Print,
    /// The count of the block that the LBA, or its fingerprint, led to before is lowered.
    CountDown,
}

/// When a step is taken, counted in barriers of the medium.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Stage {
    /// The blocks that links will lead to.
    Ground,
    /// Links.
    Links,
    /// Steps that no answer waits for.
    Later,
}

impl Step {
    /// All of them.
    pub const ALL: [Self; 6] = [
        Self::Data,
        Self::CountUp,
        Self::Unprint,
        Self::Link,
        Self::Print,
        Self::CountDown,
    ];

    /// The stage in which it is taken, which follows from the cases.
    pub const fn stage(self) -> Stage {
        STAGES[self as usize]
    }
}

/// One of the paper's cases.
#[derive(Clone, Copy, Debug)]
pub struct Case {
    /// What is written.
    pub name: &'static str,
    /// The steps.
    pub steps: &'static [Step],
    /// The first of each pair is on the medium before the second is written.
    pub before: &'static [(Step, Step)],
    /// The steps after which the client is answered.
    pub answered: &'static [Step],
}

use Step::{CountDown, CountUp, Data, Link, Print, Unprint};

/// The paper's four cases, and two of the same kind. They determine in which stage of a commit a step is carried out.
pub const CASES: [Case; 6] = [
    Case {
        name: "new write, duplicate",
        steps: &[CountUp, Link],
        before: &[(CountUp, Link)],
        answered: &[Link],
    },
    Case {
        name: "new write, not a duplicate",
        steps: &[Data, CountUp, Link, Print],
        before: &[
            (Data, Link),
            (CountUp, Link),
            (Data, Print),
            (CountUp, Print),
        ],
        answered: &[Link],
    },
    Case {
        name: "overwrite, duplicate",
        steps: &[CountUp, Link, CountDown],
        before: &[(CountUp, Link), (Link, CountDown)],
        answered: &[Link],
    },
    Case {
        name: "overwrite, not a duplicate",
        steps: &[Data, CountUp, Link, Print, CountDown],
        before: &[
            (Data, Link),
            (CountUp, Link),
            (Data, Print),
            (CountUp, Print),
            (Link, CountDown),
        ],
        answered: &[Link],
    },
    Case {
        name: "discard, or zeros",
        steps: &[Link, CountDown],
        before: &[(Link, CountDown)],
        answered: &[Link],
    },
    Case {
        name: "a fingerprint is given up",
        steps: &[Unprint, CountDown],
        before: &[(Unprint, CountDown)],
        answered: &[],
    },
];

const STAGES: [Stage; Step::ALL.len()] = {
    let mut stages = [Stage::Ground; Step::ALL.len()];
    let mut index = 0;
    while index < stages.len() {
        assert!(Step::ALL[index] as usize == index);
        stages[index] = stage_of(Step::ALL[index]);
        index += 1;
    }
    stages
};

/// First come the steps that wait for nothing in every case, then the steps that an answer waits for, then the others.
const fn stage_of(step: Step) -> Stage {
    let (mut waits, mut is_answered) = (false, false);
    let mut case = 0;
    while case < CASES.len() {
        let Case {
            before, answered, ..
        } = CASES[case];
        let mut arrow = 0;
        while arrow < before.len() {
            waits |= before[arrow].1 as usize == step as usize;
            arrow += 1;
        }
        let mut answer = 0;
        while answer < answered.len() {
            is_answered |= answered[answer] as usize == step as usize;
            answer += 1;
        }
        case += 1;
    }
    match (waits, is_answered) {
        (false, _) => Stage::Ground,
        (true, true) => Stage::Links,
        (true, false) => Stage::Later,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stages_keep_every_order() {
        for case in CASES {
            for (first, then) in case.before {
                assert!(
                    first.stage() < then.stage(),
                    "{}: {first:?} {then:?}",
                    case.name
                );
                assert!(case.steps.contains(first) && case.steps.contains(then));
            }
        }
    }

    /// This many barriers suffice for all of the paper's cases (its figure 1).
    #[test]
    fn stages_are_those_of_the_paper() {
        let stages = Step::ALL.map(Step::stage);
        let (ground, later) = (Stage::Ground, Stage::Later);
        assert_eq!(stages, [ground, ground, ground, Stage::Links, later, later]);
    }

    #[test]
    fn answers_wait_only_for_critical_steps() {
        let is_critical = |step: &Step| !matches!(step.stage(), Stage::Later);
        for case in CASES {
            for step in case.answered {
                assert!(is_critical(step), "{}: {step:?}", case.name);
                for (first, then) in case.before {
                    assert!(
                        then != step || is_critical(first),
                        "{}: {first:?}",
                        case.name
                    );
                }
            }
        }
    }

    /// Checks both rules for every case: nothing leads to a missing block, and no count is too low.
    #[test]
    fn every_case_follows_the_rules() {
        for case in CASES {
            let ordered = |a, b| case.before.contains(&(a, b));
            let has = |step| case.steps.contains(&step);
            for link in [Link, Print] {
                for ground in [Data, CountUp] {
                    assert!(
                        !has(link) || !has(ground) || ordered(ground, link),
                        "{}: {link:?} without {ground:?}",
                        case.name
                    );
                }
            }
            if has(CountDown) {
                assert!(
                    ordered(Link, CountDown) || ordered(Unprint, CountDown),
                    "{}",
                    case.name
                );
            }
        }
    }
}
