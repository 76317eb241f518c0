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

#[cfg(test)]
mod tests {
    use proptest::{prelude::*, strategy::ValueTree, test_runner::TestRunner};

    use super::*;
    use crate::mig::plan::options::Pool;

    /// Supplies of one row and two levels of cost.
    type Offer = (u8, u32, u32);

    fn model(groups: &[Vec<Offer>], wanted: u32) -> Model {
        let mut pool = Pool::default();
        let mut option = |&(n, cost, limited): &Offer| pool.push([(0, n)].into_iter(), [cost, limited, 0, 0]);
        let groups = groups.iter().map(|options| options.iter().map(&mut option).collect());
        Model {
            groups: groups.collect(),
            pool,
            wanted: vec![wanted],
        }
    }

    fn stage(limit: u32) -> Stage {
        Stage {
            goal: Goal::Cost(0),
            limits: vec![(1, limit)],
        }
    }

    /// The least cost of choices that supply what is wanted within the limit, by all sums that there are.
    fn least(model: &Model, limit: u32) -> Option<u32> {
        let (wanted, limit) = (model.wanted[0] as usize, limit as usize);
        let mut sums = vec![vec![None; limit + 1]; wanted + 1];
        sums[0][0] = Some(0_u32);
        for options in &model.groups {
            let mut next = vec![vec![None; limit + 1]; wanted + 1];
            for &option in options {
                let n = model.pool.supply(option).first().map_or(0, |&(_, n)| n.into());
                let [cost, limited, ..] = *model.pool.cost(option);
                for (served, by_limit) in sums.iter().enumerate() {
                    for (used, sum) in by_limit
                        .iter()
                        .enumerate()
                        .filter(|(used, _)| used + limited as usize <= limit)
                    {
                        let Some(sum) = sum.map(|sum| sum + cost) else { continue };
                        let end: &mut Option<u32> = &mut next[(served + n).min(wanted)][used + limited as usize];
                        *end = Some(end.map_or(sum, |known| known.min(sum)));
                    }
                }
            }
            sums = next;
        }
        sums[wanted].iter().flatten().min().copied()
    }

    /// Models for which the first option of each group is a choice: groups, what is wanted, and the limit.
    fn models(groups: std::ops::RangeInclusive<usize>) -> impl Strategy<Value = (Vec<Vec<Offer>>, u32, u32)> {
        let option = (0_u8..4, 0_u32..5, 0_u32..2);
        let options = prop::collection::vec(option, 1..=3);
        let all = (prop::collection::vec(options, groups), 0_u32..8, 0_u32..6);
        all.prop_map(|(groups, less, more)| {
            let wanted: u32 = groups.iter().map(|options| u32::from(options[0].0)).sum();
            let limit: u32 = groups.iter().map(|options| options[0].2).sum();
            (groups, wanted.saturating_sub(less), limit + more)
        })
    }

    fn first(model: &Model) -> Vec<u32> {
        model.groups.iter().map(|options| options[0]).collect()
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 128, failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn what_is_found_and_proven_is_so((groups, wanted, limit) in models(1..=50)) {
            let before = model(&groups, wanted);
            let least_of_all = least(&before, limit).expect("there is a choice");
            let mut after = model(&groups, wanted);
            let found = minimise(&mut after, &stage(limit), first(&before));
            prop_assert!(found.at_least <= least_of_all && least_of_all <= found.value, "{:?} for {}", found, least_of_all);
            prop_assert!(groups.len() > SMALL || found.at_least == found.value, "{:?}", found);
            prop_assert_eq!(before.goal(&stage(limit), &found.choice), found.value);
            let served = |option: &u32| before.pool.supply(*option).first().map_or(0, |&(_, n)| n.into());
            prop_assert!(found.choice.iter().map(served).sum::<u32>() >= wanted);
            let used = |option: &u32| before.pool.cost(*option)[1];
            prop_assert!(found.choice.iter().map(used).sum::<u32>() <= limit);
            // What is left out is in no choice that is as good.
            let left_out = before.groups.iter().zip(&after.groups).enumerate().flat_map(|(gpu, (all, left))| {
                all.iter().filter(|option| !left.contains(option)).map(move |&option| (gpu, option))
            });
            for (gpu, option) in left_out.take(6) {
                let mut with = model(&groups, wanted);
                with.groups[gpu] = vec![option];
                prop_assert!(least(&with, limit).is_none_or(|least| least > found.value));
            }
        }
    }

    #[test]
    fn what_is_found_in_large_fleets_is_proven() {
        let mut runner = TestRunner::deterministic();
        let proven = |_: &u32| {
            let (groups, wanted, limit) = models(45..=60).new_tree(&mut runner).expect("a model").current();
            let mut model = model(&groups, wanted);
            let start = first(&model);
            let found = minimise(&mut model, &stage(limit), start);
            found.at_least == found.value
        };
        let proven = (0..100).filter(proven).count();
        assert_eq!(proven, 100);
    }

    #[test]
    fn a_bound_between_two_numbers_is_the_greater() {
        let rounded = [-0.5, 0.0, 1.999_999_9, 2.000_000_1, 2.1, 3.0].map(round_up);
        assert_eq!(rounded, [0, 0, 2, 2, 3, 3]);
    }

    #[test]
    fn options_that_lift_every_choice_above_the_value_go() {
        #[track_caller]
        fn check(bound: f64, value: u32, expected: &[u32]) {
            let mut model = model(&[vec![(0, 1, 0), (0, 2, 0), (0, 3, 0), (0, 4, 0)]], 0);
            drop_above(&mut model, &stage(0), &[0.0, 0.0], bound, value);
            let costs: Vec<_> = model.groups[0]
                .iter()
                .map(|&option| model.pool.cost(option)[0])
                .collect();
            assert_eq!(costs, expected);
        }
        check(1.0, 1, &[1]);
        check(1.0, 3, &[1, 2, 3]);
        check(1.5, 3, &[1, 2]);
        check(0.0, 3, &[1, 2, 3, 4]);
    }

    #[test]
    fn the_part_is_what_is_split_and_what_nearly_prefers_another_option() {
        // What another option costs more: 5, 3, 1, and nothing to choose.
        let groups = [
            vec![(0, 0, 0), (0, 5, 0)],
            vec![(0, 3, 0), (0, 0, 0)],
            vec![(0, 0, 0), (0, 1, 0)],
            vec![(0, 7, 0)],
        ];
        let model = model(&groups, 0);
        let check = |size, bound, value, split: &[usize], expected: (&[usize], bool)| {
            let lead = [0, 1, 0, 0].iter().zip(&model.groups).map(|(&at, options)| options[at]);
            let priced = Priced {
                prices: vec![0.0, 0.0],
                bound,
                lead: lead.collect(),
                split: split.to_vec(),
            };
            let (part, covers) = part(&model, &stage(0), &priced, size, value);
            assert_eq!((&part[..], covers), expected);
        };
        check(2, 0.0, 4, &[], (&[2, 1], true));
        check(1, 0.0, 4, &[], (&[2], false)); // the second costs 3 more, and 3 is below 4
        check(1, 0.0, 3, &[], (&[2], true));
        check(1, 1.5, 5, &[], (&[2], true));
        check(1, 0.5, 5, &[], (&[2], false));
        check(2, 0.0, 4, &[0], (&[0, 2], false));
        check(9, 0.0, 9, &[3], (&[3, 2, 1, 0], true));
    }

    #[test]
    fn a_search_is_complete_if_no_partial_choice_was_left_out() {
        let model = model(&[vec![(0, 1, 0), (1, 1, 0)], vec![(2, 1, 0)]], 2);
        let priced = Priced {
            prices: vec![0.0, 0.0],
            bound: 0.0,
            lead: first(&model),
            split: Vec::new(),
        };
        let stage = stage(0);
        let complete = |beam| Search::new(&model, &stage, &priced, &[0, 1], 9).run(beam).complete;
        assert_eq!([1, 2, 3].map(complete), [false, true, true]);
    }

    #[test]
    fn what_cannot_come_below_the_value_is_left_out_at_once() {
        let model = model(&[vec![(0, 1, 0), (1, 2, 0)], vec![(2, 1, 0)]], 2);
        let priced = Priced {
            prices: vec![0.0, 0.0],
            bound: 0.0,
            lead: first(&model),
            split: Vec::new(),
        };
        let stage = stage(0);
        // The choices come to 2 and 3.
        let complete = |below| Search::new(&model, &stage, &priced, &[0, 1], below).run(1).complete;
        assert_eq!([2, 3, 4].map(complete), [true, true, false]);
    }

    #[test]
    fn a_part_that_leaves_out_what_is_needed_proves_nothing() {
        // Thirteen are as good as each other, and what makes the sum right is beyond the first part.
        let mut groups = vec![vec![(0, 0, 0), (4, 4, 0)]; 13];
        groups[..2].iter_mut().for_each(|options| options.reverse());
        groups.push(vec![(0, 0, 0), (1, 2, 0)]);
        let mut model = model(&groups, 5);
        let start = first(&model);
        assert_eq!((model.goal(&stage(0), &start), least(&model, 0)), (8, Some(6)));
        let found = minimise(&mut model, &stage(0), start);
        assert_eq!((found.value, found.at_least), (6, 6));
    }
}
