//! The planning problem as numbers: choose one option for each GPU so that all demand is served.

use super::options::Pool;

/// GPUs, their options that are still possible, and the demand of each row.
#[derive(Debug)]
pub(super) struct Model {
    pub(super) pool: Pool,
    pub(super) groups: Vec<Vec<u32>>,
    pub(super) wanted: Vec<u32>,
}

/// What one pass minimises, and what passes before it have settled.
#[derive(Debug, Clone)]
pub(super) struct Stage {
    pub(super) goal: Goal,
    /// Levels of cost whose total may not pass a limit.
    pub(super) limits: Vec<(usize, u32)>,
}

#[derive(Debug, Clone)]
pub(super) enum Goal {
    /// The demand that is not served, each row with its weight.
    Unserved(Vec<u32>),
    /// One level of the cost; all demand is served.
    Cost(usize),
}

impl Model {
    /// Rows of the problem: first the demand, then the limits, all in the form `sum ≥ right-hand side`.
    pub(super) fn rows(&self, stage: &Stage) -> usize {
        self.wanted.len() + stage.limits.len()
    }

    pub(super) fn right_hand_side(&self, stage: &Stage) -> Vec<i32> {
        let demand = self.wanted.iter().map(|&n| to_i32(n));
        demand
            .chain(stage.limits.iter().map(|&(_, limit)| -to_i32(limit)))
            .collect()
    }

    /// Calls `with` for each row and the option's number in it.
    pub(super) fn each_entry(&self, stage: &Stage, option: u32, mut with: impl FnMut(usize, i32)) {
        for &(row, n) in self.pool.supply(option) {
            with(row.into(), n.into());
        }
        let cost = self.pool.cost(option);
        for (at, &(level, _)) in stage.limits.iter().enumerate() {
            with(self.wanted.len() + at, -to_i32(cost[level]));
        }
    }

    /// What the option adds to the goal.
    pub(super) fn value(&self, stage: &Stage, option: u32) -> u32 {
        match stage.goal {
            Goal::Unserved(_) => 0,
            Goal::Cost(level) => self.pool.cost(option)[level],
        }
    }

    /// What the option adds to the goal once each row has its price.
    pub(super) fn reduced(&self, stage: &Stage, prices: &[f64], option: u32) -> f64 {
        let mut value = f64::from(self.value(stage, option));
        self.each_entry(stage, option, |row, n| value -= prices[row] * f64::from(n));
        value
    }

    /// The goal of a choice.
    pub(super) fn goal(&self, stage: &Stage, choice: &[u32]) -> u32 {
        let Goal::Unserved(weights) = &stage.goal else {
            return choice.iter().map(|&option| self.value(stage, option)).sum();
        };
        let mut open = self.right_hand_side(stage);
        for &option in choice {
            self.each_entry(stage, option, |row, n| open[row] -= n);
        }
        let lacking = open.iter().zip(weights);
        lacking
            .map(|(&open, &weight)| open.max(0).unsigned_abs().saturating_mul(weight))
            .fold(0, u32::saturating_add)
    }
}

pub(super) fn to_i32(n: u32) -> i32 {
    i32::try_from(n).unwrap_or(i32::MAX)
}
