//! What can become of a GPU where compute instances are wanted, or idle GPU instances are divided already.
//!
//! Each way to place GPU instances is combined with each way to divide those that can serve demand.

use std::collections::HashMap;

use super::options::{Costs, Offers, Way, each_way};
use crate::mig::{
    ComputeChange, GpuState, Held, Part, Placement,
    compute::{Choice, supplies},
    loss::Losses,
};

/// How many of each row a GPU serves; the rows in the order of the board's offers.
pub(super) type Supply = Vec<u8>;

/// What becomes of one GPU instance that can serve demand.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Cut {
    /// The profile in the board, and where it lies.
    pub(super) at: (usize, Placement),
    /// Compute instances that stay and serve demand, if they are of a size that is wanted.
    pub(super) kept: Vec<Part>,
    /// Those that go.
    pub(super) destroyed: Vec<Part>,
    /// Those to make.
    pub(super) created: Vec<Part>,
}

impl Cut {
    /// What that is for the plan, if it is anything but a new GPU instance with one compute instance of its whole size.
    pub(super) fn change(&self, gpu: &GpuState, way: &Way) -> Option<ComputeChange> {
        let profile = gpu.board.profile(self.at.0);
        let usual = way.created.contains(&self.at) && self.created == [Part::whole(profile)];
        let nothing = self.destroyed.is_empty() && self.created.is_empty();
        (!usual && !nothing).then(|| ComputeChange {
            instance: gpu.board.instance(self.at),
            destroyed: self.destroyed.clone(),
            created: self.created.clone(),
        })
    }
}

/// Whether compute instances have to be looked at: some are wanted, or an idle GPU instance is divided.
pub(super) fn is_divided(gpu: &GpuState, offers: &Offers) -> bool {
    let board = &gpu.board;
    let parts = |(index, sizes): (usize, &Vec<(u32, u16)>)| {
        sizes.iter().any(|&(size, _)| size != board.profile(index).slices())
    };
    let idle = |held: &Held| !held.pinned && !held.compute.is_whole();
    offers.iter().enumerate().any(parts) || gpu.instances.iter().any(idle)
}

/// The least cost of each supply.
pub(super) fn cheapest(gpu: &GpuState, offers: &Offers, losses: &mut Losses) -> HashMap<Supply, Costs> {
    let mut knife = Knife::new(gpu, offers);
    let mut cheapest = HashMap::new();
    each_way(gpu, &wanted(offers), losses, &mut |_, kept, created, cost| {
        for (supply, divided) in knife.supplies(kept, created) {
            let cost = divided.on_top_of(cost);
            cheapest
                .entry(supply)
                .and_modify(|known| *known = cost.min(*known))
                .or_insert(cost);
        }
    });
    cheapest
}

/// The first way that has this supply at this cost.
pub(super) fn way(
    gpu: &GpuState,
    offers: &Offers,
    losses: &mut Losses,
    target: &[(u16, u8)],
    cost: Costs,
) -> Option<Way> {
    let mut knife = Knife::new(gpu, offers);
    let rows = offers.iter().flatten().map(|(_, row)| row);
    let target: Supply = rows
        .map(|row| target.iter().find(|(r, _)| r == row).map_or(0, |&(_, n)| n))
        .collect();
    let mut found = None;
    each_way(gpu, &wanted(offers), losses, &mut |_, kept, created, at| {
        if found.is_some() {
            return;
        }
        let divided = knife.supplies(kept, created).remove(&target);
        if divided.is_some_and(|divided| divided.on_top_of(at) == cost) {
            let cuts = knife.cuts(kept, created, &target, cost[0] - at[0]);
            found = cuts.map(|cuts| Way {
                kept: kept.to_vec(),
                created: created.to_vec(),
                cuts,
                cost,
            });
        }
    });
    found
}

fn wanted(offers: &Offers) -> Vec<bool> {
    offers.iter().map(|sizes| !sizes.is_empty()).collect()
}

/// What dividing GPU instances that are there costs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Divided {
    destroyed: u32,
    changed: bool,
}

impl Divided {
    fn on_top_of(self, [destroyed, touched, mode_changes, loss]: Costs) -> Costs {
        let touched = touched.max(self.changed.into());
        [destroyed + self.destroyed, touched, mode_changes, loss]
    }
}

struct Knife<'a> {
    gpu: &'a GpuState,
    offers: &'a Offers,
    /// The place of each profile's first row in a supply.
    first: Vec<usize>,
    rows: usize,
    /// By profile and compute instances.
    known: HashMap<(usize, Vec<Part>), Vec<Choice>>,
}

impl<'a> Knife<'a> {
    fn new(gpu: &'a GpuState, offers: &'a Offers) -> Self {
        let mut rows = 0;
        let mut first = Vec::new();
        for sizes in offers {
            first.push(rows);
            rows += sizes.len();
        }
        Self {
            gpu,
            offers,
            first,
            rows,
            known: HashMap::new(),
        }
    }

    fn parts(&self, at: (usize, Placement)) -> Vec<Part> {
        self.gpu.held(at).map(Held::parts).unwrap_or_default()
    }

    /// The GPU instances that can serve demand, each with the ways to divide it.
    fn choices(
        &mut self,
        kept: &[(usize, Placement)],
        created: &[(usize, Placement)],
    ) -> Vec<((usize, Placement), Vec<Choice>)> {
        let there = self.gpu.placed(true).into_iter().chain(kept.iter().copied());
        let there: Vec<_> = there.map(|at| (at, self.parts(at))).collect();
        let all = there.into_iter().chain(created.iter().map(|&at| (at, Vec::new())));
        let mut choices = Vec::new();
        for (at, parts) in all.filter(|(at, _)| !self.offers[at.0].is_empty()) {
            let whole = self.gpu.board.profile(at.0).slices();
            let sizes = &self.offers[at.0];
            let known = self.known.entry((at.0, parts));
            let known = known.or_insert_with_key(|(_, parts)| {
                let sizes: Vec<_> = sizes.iter().map(|&(size, _)| size).collect();
                supplies(whole, parts, &sizes)
            });
            choices.push((at, known.clone()));
        }
        choices
    }

    fn add(&self, supply: &mut Supply, index: usize, choice: &Choice) {
        for (more, sum) in choice.counts.iter().zip(&mut supply[self.first[index]..]) {
            *sum = sum.saturating_add(u8::try_from(*more).unwrap_or(u8::MAX));
        }
    }

    fn supplies(&mut self, kept: &[(usize, Placement)], created: &[(usize, Placement)]) -> HashMap<Supply, Divided> {
        let none = Divided {
            destroyed: 0,
            changed: false,
        };
        let mut all = HashMap::from([(vec![0; self.rows], none)]);
        for (at, choices) in self.choices(kept, created) {
            let is_new = created.contains(&at);
            let mut next = HashMap::new();
            for (supply, divided) in &all {
                for choice in &choices {
                    let mut supply: Supply = supply.clone();
                    self.add(&mut supply, at.0, choice);
                    let more = Divided {
                        destroyed: divided.destroyed + u32::try_from(choice.destroyed.len()).unwrap_or(u32::MAX),
                        changed: divided.changed || !is_new && !choice.is_nothing(),
                    };
                    next.entry(supply)
                        .and_modify(|known: &mut Divided| *known = more.min(*known))
                        .or_insert(more);
                }
            }
            all = next;
        }
        all
    }

    /// The ways to divide that together have this supply and destroy so many; all that is left as it is, is.
    fn cuts(
        &mut self,
        kept: &[(usize, Placement)],
        created: &[(usize, Placement)],
        target: &Supply,
        destroyed: u32,
    ) -> Option<Vec<Cut>> {
        let choices = self.choices(kept, created);
        let mut picked = Vec::new();
        self.pick(&choices, &vec![0; self.rows], target, destroyed, &mut picked)
            .then(|| {
                let cut = |(&(at, _), choice): (&((usize, Placement), Vec<Choice>), Choice)| Cut {
                    at,
                    kept: self
                        .parts(at)
                        .into_iter()
                        .filter(|part| !part.pinned && !choice.destroyed.contains(part))
                        .collect(),
                    destroyed: choice.destroyed,
                    created: choice.created,
                };
                choices.iter().zip(picked).map(cut).collect()
            })
    }

    fn pick(
        &self,
        rest: &[((usize, Placement), Vec<Choice>)],
        supply: &Supply,
        target: &Supply,
        destroyed: u32,
        picked: &mut Vec<Choice>,
    ) -> bool {
        let Some((((index, _), choices), rest)) = rest.split_first() else {
            return supply == target && destroyed == 0;
        };
        for choice in choices {
            let mut supply = supply.clone();
            self.add(&mut supply, *index, choice);
            let gone = u32::try_from(choice.destroyed.len()).unwrap_or(u32::MAX);
            let Some(left) = destroyed.checked_sub(gone) else {
                continue;
            };
            if supply.iter().zip(target).any(|(n, most)| n > most) {
                continue;
            }
            picked.push(choice.clone());
            if self.pick(rest, &supply, target, left, picked) {
                return true;
            }
            picked.pop();
        }
        false
    }
}
