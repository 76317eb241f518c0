//! Whole choices: passes over the levels of the cost, each a bound from prices and a search that meets it.

use std::collections::HashMap;

use super::{
    model::{Goal, Model, Stage},
    prices::{Priced, price},
};

/// What one pass found.
#[derive(Debug)]
pub(super) struct Found {
    pub(super) choice: Vec<u32>,
    pub(super) value: u32,
    /// No choice has a smaller value; equal to `value` if that is proven to be the least.
    pub(super) at_least: u32,
}

/// Fleets up to this size are searched whole, so that the answer is exact unless the search is cut short.
const SMALL: usize = 12;
/// Partial choices kept for one GPU of a small fleet, and of a part of a large one.
const BEAM: (usize, usize) = (100_000, 1000);
/// GPUs in the parts of a large fleet that are searched together, one part after the other.
const PARTS: [usize; 3] = [12, 24, 40];
const EPSILON: f64 = 1e-6;

/// Minimises the goal from a choice that keeps the limits (and serves all demand, where that is asked), and drops options that
/// can be in no choice as good as the one found.
pub(super) fn minimise(model: &mut Model, stage: &Stage, start: Vec<u32>) -> Found {
    let value = model.goal(stage, &start);
    let mut found = Found {
        choice: start,
        value,
        at_least: 0,
    };
    if value == 0 {
        drop_above(model, stage, &vec![0.0; model.rows(stage)], 0.0, 0);
        return found;
    }
    let priced = price(model, stage, &found.choice);
    found.at_least = round_up(priced.bound);
    let small = model.groups.len() <= SMALL;
    for size in if small { &[SMALL][..] } else { &PARTS[..] } {
        if found.at_least >= found.value {
            break;
        }
        let (part, covers) = part(model, stage, &priced, *size, found.value);
        let beam = if small { BEAM.0 } else { BEAM.1 };
        let searched = Search::new(model, stage, &priced, &part, found.value).run(beam);
        if let Some((choice, value)) = searched.better {
            (found.choice, found.value) = (choice, value);
        }
        if covers && searched.complete {
            found.at_least = found.value;
        }
    }
    drop_above(model, stage, &priced.prices, priced.bound, found.value);
    if found.value == 0 {
        // Prices can hide the value of an option; callers rely on nothing of value being left.
        drop_above(model, stage, &vec![0.0; model.rows(stage)], 0.0, 0);
    }
    found
}

fn round_up(bound: f64) -> u32 {
    // Not negative and far below 2^32: it is at most the value of a real choice.
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "see above")]
    let bound = (bound - EPSILON).ceil().max(0.0) as u32;
    bound
}

/// Options whose price alone lifts any choice with them above the value.
fn drop_above(model: &mut Model, stage: &Stage, prices: &[f64], bound: f64, value: u32) {
    let mut groups = std::mem::take(&mut model.groups);
    for options in &mut groups {
        let reduced: Vec<_> = options
            .iter()
            .map(|&option| model.reduced(stage, prices, option))
            .collect();
        let least = reduced.iter().copied().fold(f64::INFINITY, f64::min);
        let mut at = reduced.iter();
        options.retain(|_| {
            at.next()
                .is_none_or(|reduced| bound + reduced - least <= f64::from(value) + EPSILON)
        });
    }
    model.groups = groups;
}

/// The GPUs that most need another look: those the relaxation splits, then those that nearly prefer another option.
///
/// Also whether no choice below the value differs from the relaxation's lead on any other GPU: another option there costs
/// more than what lies between the bound and the value.
fn part(model: &Model, stage: &Stage, priced: &Priced, size: usize, value: u32) -> (Vec<usize>, bool) {
    let margin = |gpu: usize| {
        let lead = model.reduced(stage, &priced.prices, priced.lead[gpu]);
        let others = model.groups[gpu].iter().filter(|&&option| option != priced.lead[gpu]);
        others
            .map(|&option| model.reduced(stage, &priced.prices, option) - lead)
            .fold(f64::INFINITY, f64::min)
    };
    let mut by_margin: Vec<_> = (0..model.groups.len())
        .map(|gpu| {
            (
                priced.split.binary_search(&gpu).map_or_else(|_| margin(gpu), |_| -1.0),
                gpu,
            )
        })
        .filter(|(margin, _)| margin.is_finite())
        .collect();
    by_margin.sort_unstable_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
    let gap = f64::from(value) - 1.0 - priced.bound + EPSILON;
    let covers = by_margin.iter().skip(size).all(|(margin, _)| *margin > gap);
    (by_margin.into_iter().take(size).map(|(_, gpu)| gpu).collect(), covers)
}

struct Search<'a> {
    model: &'a Model,
    stage: &'a Stage,
    priced: &'a Priced,
    part: &'a [usize],
    /// Only choices below this are of use.
    below: u32,
    /// What all rows need before the first GPU of the part is decided.
    open: Vec<i32>,
    value: u32,
    /// For each GPU of the part and those after it: the most of each row, and the least at the prices.
    rest: Vec<(Vec<i32>, f64)>,
}

struct Searched {
    better: Option<(Vec<u32>, u32)>,
    complete: bool,
}

/// A partial choice.
#[derive(Debug, Clone)]
struct Label {
    open: Vec<i32>,
    value: u32,
    /// Place of the label before, and the option that was added.
    from: (usize, u32),
    bound: f64,
}

impl<'a> Search<'a> {
    fn new(model: &'a Model, stage: &'a Stage, priced: &'a Priced, part: &'a [usize], below: u32) -> Self {
        let mut open = model.right_hand_side(stage);
        let mut value = 0;
        for (_, &option) in priced.lead.iter().enumerate().filter(|(gpu, _)| !part.contains(gpu)) {
            value += model.value(stage, option);
            model.each_entry(stage, option, |row, n| open[row] -= n);
        }
        let mut rest = vec![(vec![0; open.len()], 0.0)];
        for &gpu in part.iter().rev() {
            let (mut most, mut least) = rest.last().cloned().unwrap_or_default();
            let mut best = vec![i32::MIN; most.len()];
            for &option in &model.groups[gpu] {
                let mut entries = vec![0; most.len()];
                model.each_entry(stage, option, |row, n| entries[row] = n);
                best.iter_mut().zip(entries).for_each(|(best, n)| *best = n.max(*best));
            }
            most.iter_mut().zip(best).for_each(|(most, n)| *most += n);
            let reduced = model.groups[gpu]
                .iter()
                .map(|&option| model.reduced(stage, &priced.prices, option));
            least += reduced.fold(f64::INFINITY, f64::min);
            rest.push((most, least));
        }
        rest.reverse();
        Self {
            model,
            stage,
            priced,
            part,
            below,
            open,
            value,
            rest,
        }
    }

    fn run(&self, beam: usize) -> Searched {
        let mut complete = true;
        let mut layers: Vec<Vec<Label>> = Vec::new();
        let mut first = Label {
            open: self.open.clone(),
            value: self.value,
            from: (0, 0),
            bound: 0.0,
        };
        self.cap(&mut first.open);
        layers.push(vec![first]);
        for (at, &gpu) in self.part.iter().enumerate() {
            let mut next: Vec<Label> = Vec::new();
            let mut known: HashMap<Vec<i32>, usize> = HashMap::new();
            for (from, label) in layers.last().into_iter().flatten().enumerate() {
                for &option in &self.model.groups[gpu] {
                    let Some(label) = self.extend(label, (from, option), &self.rest[at + 1]) else {
                        continue;
                    };
                    match known.get(&label.open) {
                        Some(&old) if next[old].value <= label.value => {}
                        Some(&old) => next[old] = label,
                        None => {
                            known.insert(label.open.clone(), next.len());
                            next.push(label);
                        }
                    }
                }
            }
            if next.len() > beam {
                complete = false;
                next.sort_by(|a, b| a.bound.total_cmp(&b.bound));
                next.truncate(beam);
            }
            layers.push(next);
        }
        Searched {
            better: self.best(&layers),
            complete,
        }
    }

    /// The label with one more option; `None` if nothing below the value can come of it.
    fn extend(&self, label: &Label, from: (usize, u32), (most, least): &(Vec<i32>, f64)) -> Option<Label> {
        let mut open = label.open.clone();
        self.model.each_entry(self.stage, from.1, |row, n| open[row] -= n);
        self.cap(&mut open);
        let serves_all = matches!(self.stage.goal, Goal::Cost(_));
        let demand = self.model.wanted.len();
        let hopeless = |(row, (&open, &most)): (usize, (&i32, &i32))| open > most && (serves_all || row >= demand);
        if open.iter().zip(most).enumerate().any(hopeless) {
            return None;
        }
        let value = label.value + self.model.value(self.stage, from.1);
        let paid: f64 = open
            .iter()
            .zip(&self.priced.prices)
            .map(|(&n, price)| f64::from(n) * price)
            .sum();
        let bound = f64::from(value) + paid + least;
        (bound <= f64::from(self.below) - 1.0 + EPSILON).then_some(Label {
            open,
            value,
            from,
            bound,
        })
    }

    /// More than is wanted is worth no more than what is wanted.
    fn cap(&self, open: &mut [i32]) {
        open[..self.model.wanted.len()]
            .iter_mut()
            .for_each(|n| *n = (*n).max(0));
    }

    fn best(&self, layers: &[Vec<Label>]) -> Option<(Vec<u32>, u32)> {
        let weigh = |label: &Label| match &self.stage.goal {
            Goal::Unserved(weights) => label
                .open
                .iter()
                .zip(weights)
                .map(|(n, weight)| n.unsigned_abs().saturating_mul(*weight))
                .fold(0, u32::saturating_add),
            Goal::Cost(_) => label.value,
        };
        let last = layers.last()?;
        let (mut at, value) = last.iter().map(weigh).enumerate().min_by_key(|&(_, value)| value)?;
        if value >= self.below {
            return None;
        }
        let mut choice = self.priced.lead.clone();
        for (layer, &gpu) in layers[1..].iter().zip(self.part).rev() {
            let (from, option) = layer[at].from;
            choice[gpu] = option;
            at = from;
        }
        Some((choice, value))
    }
}
