//! Prices of the demand: the dual of the linear relaxation, by the simplex method.
//!
//! The relaxation lets a GPU take options in fractions that sum to one. Each GPU has one *key* option, which is whatever
//! its other options leave; only options beside the key, and the slack of each row, are in the basis, so that its size is
//! the number of rows and not of GPUs (generalised upper bounding, Dantzig and Van Slyke 1967).
//!
//! Whatever prices come out, the bound made of them is valid: [`Priced::bound`] is computed from the prices alone.

use super::model::{Goal, Model, Stage};

/// Prices of the rows and what follows from them.
#[derive(Debug)]
pub(super) struct Priced {
    pub(super) prices: Vec<f64>,
    /// No choice has a smaller goal.
    pub(super) bound: f64,
    /// For each GPU, the option with the largest share.
    pub(super) lead: Vec<u32>,
    /// GPUs whose options have shares, not a whole.
    pub(super) split: Vec<usize>,
}

const EPSILON: f64 = 1e-7;

/// Far more than any fleet has taken, so that numbers which go round in circles end.
const STEPS: u32 = 50_000;

/// Prices, starting from a choice that keeps the limits (and serves the demand, where that is asked).
pub(super) fn price(model: &Model, stage: &Stage, start: &[u32]) -> Priced {
    let mut simplex = Simplex::new(model, stage, start);
    // It is over when there is no better step.
    let _ = (0..STEPS).all(|_| simplex.step());
    simplex.finish()
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Basic {
    /// What a row has too much.
    Surplus(usize),
    /// What a row lacks.
    Unserved(usize),
    Option(usize, u32),
}

struct Simplex<'a> {
    model: &'a Model,
    stage: &'a Stage,
    rows: usize,
    key: Vec<u32>,
    basis: Vec<Basic>,
    inverse: Vec<Vec<f64>>,
    /// Values of the basic variables.
    values: Vec<f64>,
    prices: Vec<f64>,
    /// Where the search for a better option goes on.
    next: usize,
}

impl<'a> Simplex<'a> {
    fn new(model: &'a Model, stage: &'a Stage, start: &[u32]) -> Self {
        let rows = model.rows(stage);
        let mut open = model.right_hand_side(stage);
        for &option in start {
            model.each_entry(stage, option, |row, n| open[row] -= n);
        }
        let basic = |(row, &open): (usize, &i32)| {
            if open > 0 {
                Basic::Unserved(row)
            } else {
                Basic::Surplus(row)
            }
        };
        let basis = open.iter().enumerate().map(basic).collect();
        let mut simplex = Self {
            model,
            stage,
            rows,
            key: start.to_vec(),
            basis,
            inverse: Vec::new(),
            values: Vec::new(),
            prices: Vec::new(),
            next: 0,
        };
        simplex.refresh();
        simplex
    }

    /// Enters one variable; false once none makes the goal smaller.
    fn step(&mut self) -> bool {
        for row in 0..self.rows {
            if self.prices[row] < -EPSILON && !self.basis.contains(&Basic::Surplus(row)) {
                return self.enter(Basic::Surplus(row));
            }
            if let Some(weight) = self.weight(row)
                && self.prices[row] > weight + EPSILON
                && !self.basis.contains(&Basic::Unserved(row))
            {
                return self.enter(Basic::Unserved(row));
            }
        }
        let gpus = self.model.groups.len();
        for offset in 0..gpus {
            let gpu = (self.next + offset) % gpus;
            let reduced = |option| self.model.reduced(self.stage, &self.prices, option);
            let key = reduced(self.key[gpu]);
            let best = self.model.groups[gpu].iter().map(|&option| (reduced(option), option));
            if let Some((value, option)) = best.min_by(|a, b| a.0.total_cmp(&b.0))
                && value < key - EPSILON
                && !self.basis.contains(&Basic::Option(gpu, option))
            {
                self.next = gpu;
                return self.enter(Basic::Option(gpu, option));
            }
        }
        false
    }

    fn weight(&self, row: usize) -> Option<f64> {
        match &self.stage.goal {
            Goal::Unserved(weights) => weights.get(row).map(|&weight| f64::from(weight)),
            Goal::Cost(_) => None,
        }
    }

    fn enter(&mut self, entering: Basic) -> bool {
        let direction = self.solve(&self.column(entering));
        let basics = self.values.iter().zip(&direction).enumerate();
        let basics = basics.map(|(at, (&value, &rate))| (Leaving::Basic(at), value, rate));
        let keys = self.keys(entering, &direction).into_iter();
        let keys = keys.map(|(gpu, share, rate)| (Leaving::Key(gpu), share, -rate));
        // What falls to nothing first, as the entering variable grows.
        let falls = |(leaving, value, rate): (_, f64, f64)| (rate > EPSILON).then(|| (value.max(0.0) / rate, leaving));
        let first = basics.chain(keys).filter_map(falls).min_by(|a, b| a.0.total_cmp(&b.0));
        match first.map(|(_, leaving)| leaving) {
            None => return false,
            Some(Leaving::Basic(at)) => self.basis[at] = entering,
            Some(Leaving::Key(gpu)) => match entering {
                Basic::Option(own, option) if own == gpu => self.key[gpu] = option,
                _ => {
                    let other = |basic: &Basic| matches!(basic, Basic::Option(own, _) if *own == gpu);
                    let Some(at) = self.basis.iter().position(other) else {
                        return false;
                    };
                    if let Basic::Option(_, option) = self.basis[at] {
                        self.key[gpu] = option;
                    }
                    self.basis[at] = entering;
                }
            },
        }
        self.refresh();
        true
    }

    /// GPUs whose key changes when the entering variable grows: share of the key and its rate.
    fn keys(&self, entering: Basic, direction: &[f64]) -> Vec<(usize, f64, f64)> {
        let mut keys: Vec<(usize, f64, f64)> = Vec::new();
        let mut change = |gpu: usize, share: f64, rate: f64| match keys.iter_mut().find(|key| key.0 == gpu) {
            Some(key) => (key.1, key.2) = (key.1 - share, key.2 + rate),
            None => keys.push((gpu, 1.0 - share, rate)),
        };
        if let Basic::Option(gpu, _) = entering {
            change(gpu, 0.0, -1.0);
        }
        for (at, basic) in self.basis.iter().enumerate() {
            if let Basic::Option(gpu, _) = *basic {
                change(gpu, self.values[at], direction[at]);
            }
        }
        keys
    }

    fn column(&self, basic: Basic) -> Vec<f64> {
        let mut column = vec![0.0; self.rows];
        match basic {
            Basic::Surplus(row) => column[row] = -1.0,
            Basic::Unserved(row) => column[row] = 1.0,
            Basic::Option(gpu, option) => {
                self.model
                    .each_entry(self.stage, option, |row, n| column[row] += f64::from(n));
                self.model
                    .each_entry(self.stage, self.key[gpu], |row, n| column[row] -= f64::from(n));
            }
        }
        column
    }

    fn basic_value(&self, basic: Basic) -> f64 {
        match basic {
            Basic::Surplus(_) => 0.0,
            Basic::Unserved(row) => self.weight(row).unwrap_or(0.0),
            Basic::Option(gpu, option) => {
                let value = |option| f64::from(self.model.value(self.stage, option));
                value(option) - value(self.key[gpu])
            }
        }
    }

    fn solve(&self, column: &[f64]) -> Vec<f64> {
        self.inverse
            .iter()
            .map(|row| row.iter().zip(column).map(|(a, b)| a * b).sum())
            .collect()
    }

    /// Inverse, values and prices from the basis and the keys.
    fn refresh(&mut self) {
        let columns: Vec<_> = self.basis.iter().map(|&basic| self.column(basic)).collect();
        if let Some(inverse) = invert(&columns) {
            self.inverse = inverse;
        }
        let mut open: Vec<_> = self
            .model
            .right_hand_side(self.stage)
            .into_iter()
            .map(f64::from)
            .collect();
        for &option in &self.key {
            self.model
                .each_entry(self.stage, option, |row, n| open[row] -= f64::from(n));
        }
        self.values = self.solve(&open);
        let costs: Vec<_> = self.basis.iter().map(|&basic| self.basic_value(basic)).collect();
        self.prices = (0..self.rows)
            .map(|row| {
                costs
                    .iter()
                    .zip(&self.inverse)
                    .map(|(cost, inverse)| cost * inverse[row])
                    .sum()
            })
            .collect();
    }

    fn finish(self) -> Priced {
        let price = |(row, &price): (usize, &f64)| price.clamp(0.0, self.weight(row).unwrap_or(f64::INFINITY));
        let prices: Vec<f64> = self.prices.iter().enumerate().map(price).collect();
        let bound = bound(self.model, self.stage, &prices);
        let mut lead = self.key.clone();
        let mut split = Vec::new();
        for (basic, &value) in self.basis.iter().zip(&self.values) {
            if let Basic::Option(gpu, option) = *basic {
                if value > 0.5 {
                    lead[gpu] = option;
                }
                if (EPSILON..1.0 - EPSILON).contains(&value) {
                    split.push(gpu);
                }
            }
        }
        split.sort_unstable();
        split.dedup();
        Priced {
            prices,
            bound,
            lead,
            split,
        }
    }
}

enum Leaving {
    Basic(usize),
    Key(usize),
}

/// The least goal that any choice can have at these prices (Lagrange).
fn bound(model: &Model, stage: &Stage, prices: &[f64]) -> f64 {
    let least = |options: &Vec<u32>| {
        options
            .iter()
            .map(|&option| model.reduced(stage, prices, option))
            .fold(f64::INFINITY, f64::min)
    };
    let paid: f64 = model
        .right_hand_side(stage)
        .into_iter()
        .zip(prices)
        .map(|(n, price)| f64::from(n) * price)
        .sum();
    paid + model.groups.iter().map(least).sum::<f64>()
}

/// The inverse of a matrix given by its columns; `None` if it is singular.
fn invert(columns: &[Vec<f64>]) -> Option<Vec<Vec<f64>>> {
    let n = columns.len();
    let mut left: Vec<Vec<f64>> = (0..n)
        .map(|row| columns.iter().map(|column| column[row]).collect())
        .collect();
    let mut right: Vec<Vec<f64>> = (0..n)
        .map(|row| (0..n).map(|at| f64::from(u8::from(row == at))).collect())
        .collect();
    for at in 0..n {
        let pivot = (at..n).max_by(|&a, &b| left[a][at].abs().total_cmp(&left[b][at].abs()))?;
        if left[pivot][at].abs() < 1e-9 {
            return None;
        }
        left.swap(at, pivot);
        right.swap(at, pivot);
        let by = left[at][at];
        left[at].iter_mut().chain(&mut right[at]).for_each(|x| *x /= by);
        let (source_left, source_right) = (left[at].clone(), right[at].clone());
        for row in (0..n).filter(|&row| row != at) {
            let by = left[row][at];
            if by != 0.0 {
                left[row].iter_mut().zip(&source_left).for_each(|(x, y)| *x -= by * y);
                right[row].iter_mut().zip(&source_right).for_each(|(x, y)| *x -= by * y);
            }
        }
    }
    Some(right)
}

#[cfg(test)]
mod tests {
    use microlp::{ComparisonOp, LinearExpr, OptimizationDirection, Problem, SolveOutcome};
    use proptest::prelude::*;

    use super::*;
    use crate::mig::{
        Demand, Fleet,
        plan::{options::Pool, search::minimise, table::Table, tests::fleets},
    };

    /// The least of the relaxation, by a solver that has nothing to do with this one.
    fn relaxed(model: &Model, stage: &Stage) -> f64 {
        let mut problem = Problem::new(OptimizationDirection::Minimize);
        let mut sums = vec![LinearExpr::empty(); model.rows(stage)];
        for options in &model.groups {
            let mut shares = LinearExpr::empty();
            for &option in options {
                let share = problem.add_var(model.value(stage, option).into(), (0.0, 1.0));
                shares.add(share, 1.0);
                model.each_entry(stage, option, |row, n| sums[row].add(share, n.into()));
            }
            problem.add_constraint(shares, ComparisonOp::Eq, 1.0);
        }
        if let Goal::Unserved(weights) = &stage.goal {
            for (sum, &weight) in sums.iter_mut().zip(weights) {
                sum.add(problem.add_var(weight.into(), (0.0, f64::INFINITY)), 1.0);
            }
        }
        for (sum, least) in sums.into_iter().zip(model.right_hand_side(stage)) {
            problem.add_constraint(sum, ComparisonOp::Ge, least.into());
        }
        let SolveOutcome::Solution(solution) = problem.solve().expect("a choice is known") else {
            panic!("it has no limit of time");
        };
        solution.objective()
    }

    #[track_caller]
    fn agrees(model: &Model, stage: &Stage, start: &[u32]) -> Result<(), TestCaseError> {
        let priced = price(model, stage, start);
        let expected = relaxed(model, stage);
        prop_assert!(
            (priced.bound - expected).abs() < 1e-4,
            "{} for {expected}",
            priced.bound
        );
        // The leads are a solution of the relaxation but for the GPUs that it splits, and those are few.
        let mut groups = model.groups.clone();
        for (gpu, options) in groups.iter_mut().enumerate() {
            prop_assert!(options.contains(&priced.lead[gpu]));
            if priced.split.binary_search(&gpu).is_err() {
                *options = vec![priced.lead[gpu]];
            }
        }
        prop_assert!(priced.split.len() <= model.rows(stage));
        let led = Model {
            pool: model.pool.clone(),
            groups,
            wanted: model.wanted.clone(),
        };
        prop_assert!((relaxed(&led, stage) - expected).abs() < 1e-4, "{:?}", priced);
        Ok(())
    }

    fn each_stage_agrees(fleet: &Fleet, demand: &Demand) -> Result<(), TestCaseError> {
        let Ok(table) = Table::new(fleet, demand) else {
            return Ok(());
        };
        let model = Model {
            pool: table.pool.clone(),
            groups: table.groups.clone(),
            wanted: demand.iter().map(|(_, n)| n).collect(),
        };
        let weights = (1..).take(model.wanted.len()).collect();
        let any: Vec<_> = model.groups.iter().map(|options| options[0]).collect();
        let stage = |goal, limits: &[(usize, u32)]| Stage {
            goal,
            limits: limits.to_vec(),
        };
        agrees(&model, &stage(Goal::Unserved(weights), &[]), &any)?;
        let Ok((mut choice, mut model)) = table.serve(fleet) else {
            return Ok(());
        };
        let mut limits = Vec::new();
        for level in 0..4 {
            let stage = stage(Goal::Cost(level), &limits);
            agrees(&model, &stage, &choice)?;
            let found = minimise(&mut model, &stage, choice);
            limits.push((level, found.value));
            choice = found.choice;
        }
        Ok(())
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn the_bound_is_the_least_of_the_relaxation((fleet, demand) in fleets(1..=20)) {
            each_stage_agrees(&fleet, &demand)?;
        }
    }

    #[test]
    fn the_option_with_the_larger_share_leads() {
        #[track_caller]
        fn check(wanted: u32, lead: usize, split: &[usize]) {
            let mut pool = Pool::default();
            let mut option = |n: u8| pool.push([(0, n)].into_iter(), [n.into(), 0, 0, 0]);
            let (none, four) = (option(0), option(4));
            let model = Model {
                pool,
                groups: vec![vec![none, four]],
                wanted: vec![wanted],
            };
            let stage = Stage {
                goal: Goal::Cost(0),
                limits: Vec::new(),
            };
            let priced = price(&model, &stage, &[four]);
            assert_eq!((priced.lead, &priced.split[..]), (vec![[none, four][lead]], split));
            assert!((priced.bound - f64::from(wanted)).abs() < 1e-9);
        }
        check(0, 0, &[]);
        check(1, 0, &[0]);
        check(3, 1, &[0]);
        check(4, 1, &[]);
    }

    #[test]
    fn a_matrix_is_inverted_unless_it_is_singular() {
        let inverse = invert(&[vec![0.0, 2.0], vec![4.0, 1.0]]).unwrap();
        assert_eq!(inverse, [[-0.125, 0.5], [0.25, 0.0]]);
        assert_eq!(invert(&[vec![1.0, 2.0], vec![2.0, 4.0]]), None);
    }
}
