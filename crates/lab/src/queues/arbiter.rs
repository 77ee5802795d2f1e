//! Which queue the controller takes its next command from ("Command Arbitration" of the NVMe base specification).
//!
//! Round robin takes up to a burst of commands from each queue that has any, in turn. With weights each queue has a class. Urgent
//! queues go before all others, and may starve them. The other three classes take turns, and each may have as many commands in a
//! round as its weight says. Queues of one class take turns as in round robin. What a class leaves, the next one gets.

use crate::flash::{Queues, Weights};

/// The class of a queue, where arbitration is weighted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Class {
    /// Before all others.
    Urgent,
    /// Weighted.
    High,
    /// Weighted: what Linux gives its queues.
    #[default]
    Medium,
    /// Weighted.
    Low,
}

impl Class {
    /// All classes.
    pub const ALL: [Self; 4] = [Self::Urgent, Self::High, Self::Medium, Self::Low];

    /// Its name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Urgent => "urgent",
            Self::High => "high",
            Self::Medium => "medium",
            Self::Low => "low",
        }
    }
}

/// Queues that take turns.
struct Ring {
    queues: Vec<usize>,
    /// The place of the queue that commands were taken from last.
    at: usize,
    /// Commands that are left of its burst.
    left: u32,
}

impl Ring {
    fn new(queues: Vec<usize>) -> Self {
        Self {
            // The first queue comes after the last.
            at: queues.len().saturating_sub(1),
            queues,
            left: 0,
        }
    }

    fn pick(&mut self, burst: u32, has: &impl Fn(usize) -> bool) -> Option<usize> {
        let count = self.queues.len();
        let last = *self.queues.get(self.at)?;
        if self.left == 0 || !has(last) {
            let mut others = (self.at + 1..=self.at + count).map(|place| place % count);
            self.at = others.find(|&place| has(self.queues[place]))?;
            self.left = burst;
        }
        self.left -= 1;
        Some(self.queues[self.at])
    }
}

/// Chooses among the queues that have commands.
pub struct Arbiter {
    burst: u32,
    /// Before the others: urgent queues, or all of them without weights.
    first: Ring,
    weighted: [Ring; 3],
    weights: [u32; 3],
    /// The class whose turn it is, and what it may still have in this round.
    turn: usize,
    credits: u32,
}

impl Arbiter {
    /// An arbiter of queues with these classes, by number.
    #[must_use]
    pub fn new(queues: &Queues, classes: &[Class]) -> Self {
        let of = |wanted: Class| {
            let each = classes.iter().enumerate();
            let own = each.filter(|(_, class)| **class == wanted);
            Ring::new(own.map(|(queue, _)| queue).collect())
        };
        let none = || Ring::new(Vec::new());
        let (first, weighted, weights) = match queues.weights {
            None => {
                let all = Ring::new((0..classes.len()).collect());
                (all, [none(), none(), none()], [1; 3])
            }
            Some(Weights { high, medium, low }) => (
                of(Class::Urgent),
                [of(Class::High), of(Class::Medium), of(Class::Low)],
                [high, medium, low].map(|weight| weight.max(1)),
            ),
        };
        Self {
            burst: queues.burst.max(1),
            first,
            weighted,
            credits: weights[0],
            weights,
            turn: 0,
        }
    }

    /// The queue of the next command; none if no queue has one. `has` says which queues have commands.
    pub fn pick(&mut self, has: impl Fn(usize) -> bool) -> Option<usize> {
        if let Some(queue) = self.first.pick(self.burst, &has) {
            return Some(queue);
        }
        let (mut turn, mut credits) = (self.turn, self.credits);
        // The class whose turn it is, the two others, and that class in the next round.
        for _ in 0..=self.weights.len() {
            if credits > 0
                && let Some(queue) = self.weighted[turn].pick(self.burst, &has)
            {
                (self.turn, self.credits) = (turn, credits - 1);
                return Some(queue);
            }
            turn = (turn + 1) % self.weights.len();
            credits = self.weights[turn];
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::Rng;

    fn arbiter(burst: u32, weights: Option<[u32; 3]>, classes: &[Class]) -> Arbiter {
        let queues = Queues {
            burst,
            weights: weights.map(|[high, medium, low]| Weights { high, medium, low }),
            ..Queues::default()
        };
        Arbiter::new(&queues, classes)
    }

    /// Commands from each queue, of so many in all, while all queues have some.
    fn shares(arbiter: &mut Arbiter, queues: usize, picks: u32) -> Vec<u32> {
        let mut taken = vec![0; queues];
        for _ in 0..picks {
            taken[arbiter.pick(|_| true).unwrap()] += 1;
        }
        taken
    }

    #[test]
    fn round_robin_takes_a_burst_from_each_queue_in_turn() {
        for burst in [1, 2, 8, 64] {
            let mut arbiter = arbiter(burst, None, &[Class::Medium; 3]);
            for turn in 0..30 {
                for _ in 0..burst {
                    assert_eq!(arbiter.pick(|_| true), Some(turn % 3), "{burst}");
                }
            }
        }
    }

    #[test]
    fn a_queue_without_commands_loses_its_turn_and_the_rest_of_its_burst() {
        let mut arbiter = arbiter(4, None, &[Class::Medium; 3]);
        assert_eq!(arbiter.pick(|_| true), Some(0));
        assert_eq!(arbiter.pick(|queue| queue == 2), Some(2));
        assert_eq!(arbiter.pick(|_| false), None);
        for wanted in [2, 2, 2, 0, 0, 0, 0, 1] {
            assert_eq!(arbiter.pick(|_| true), Some(wanted));
        }
        assert_eq!(
            super::Arbiter::new(&Queues::default(), &[]).pick(|_| true),
            None
        );
    }

    #[test]
    fn a_class_has_its_weight_to_one_percent_whatever_the_burst() {
        let classes = [Class::High, Class::Medium, Class::Medium, Class::Low];
        for weights in [[8, 4, 1], [1, 1, 1], [256, 1, 32], [3, 200, 7]] {
            for burst in [1, 4, 64] {
                let picks = 1_000_000;
                let mut arbiter = arbiter(burst, Some(weights), &classes);
                let taken = shares(&mut arbiter, classes.len(), picks);
                let all: u32 = weights.iter().sum();
                let of = [taken[0], taken[1] + taken[2], taken[3]];
                for (taken, weight) in of.into_iter().zip(weights) {
                    let wanted = f64::from(picks) * f64::from(weight) / f64::from(all);
                    let off = (f64::from(taken) - wanted).abs() / wanted;
                    assert!(off < 0.01, "{weights:?} {burst}: {of:?}");
                }
                // The two of one class are never more than a burst apart.
                assert!(
                    taken[1].abs_diff(taken[2]) <= burst,
                    "{weights:?} {burst}: {taken:?}"
                );
            }
        }
    }

    #[test]
    fn what_a_class_leaves_goes_to_the_others_by_their_weights() {
        let classes = [Class::High, Class::Medium, Class::Low];
        let mut arbiter = arbiter(1, Some([100, 6, 2]), &classes);
        let mut taken = [0; 3];
        for _ in 0..80_000 {
            taken[arbiter.pick(|queue| queue != 0).unwrap()] += 1;
        }
        assert_eq!(taken, [0, 60_000, 20_000]);
    }

    #[test]
    fn only_urgent_queues_starve_others() {
        let classes = [Class::Low, Class::Urgent, Class::High, Class::Urgent];
        let mut arbiter = arbiter(2, Some([64, 1, 1]), &classes);
        assert_eq!(shares(&mut arbiter, 4, 1000), [0, 500, 0, 500]);
        // An urgent queue that comes back goes first at once.
        assert!(matches!(arbiter.pick(|queue| queue % 2 == 0), Some(0 | 2)));
        assert_eq!(arbiter.pick(|queue| queue != 3), Some(1));
    }

    #[test]
    fn no_queue_waits_longer_than_a_round_of_the_others() {
        let classes = [
            Class::High,
            Class::High,
            Class::Medium,
            Class::Low,
            Class::Low,
        ];
        let (burst, weights) = (8, [16, 4, 2]);
        let plain = classes.len() as u32 * burst;
        // A queue of two in the class `low` waits for two of its class's turns; a burst may take four.
        let weighted = weights.iter().sum::<u32>() * 2 * burst;
        for (weights, most) in [(None, plain), (Some(weights), weighted)] {
            let mut arbiter = arbiter(burst, weights, &classes);
            let mut rng = Rng::new(5);
            let mut waits = [0; 5];
            for _ in 0..100_000 {
                // A queue that waits keeps its commands; the others have some by chance.
                let chance: Vec<bool> = (0..5).map(|_| rng.below(2) == 0).collect();
                let Some(queue) = arbiter.pick(|queue| waits[queue] > 0 || chance[queue]) else {
                    continue;
                };
                for (other, waited) in waits.iter_mut().enumerate() {
                    *waited += u32::from(*waited > 0 || chance[other]);
                }
                waits[queue] = 0;
                assert!(waits.iter().all(|waited| *waited <= most), "{waits:?}");
            }
        }
    }
}
