//! The demand as rows, each GPU's options, and a chosen option for each GPU as a plan.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, HashMap},
    sync::Arc,
};

use super::{
    Cost, Plan, greedy,
    model::{Goal, Model, Stage},
    options::{Offers, Pool, Way, options, way},
    search::minimise,
};
use crate::mig::{
    Board, Demand, Fleet, GpuState, Held, Instance, Mode, Placement, PlanError, Profile, Shortage,
    compute::{fewest, packed, sizes},
    loss::Losses,
    placement::occupied,
};

/// The demand as rows and the options of each GPU.
pub(super) struct Table {
    pub(super) profiles: Vec<Profile>,
    wanted: Vec<u32>,
    /// Each board, and the rows that its profiles serve.
    pub(super) boards: Vec<(Arc<Board>, Offers)>,
    pub(super) pool: Pool,
    pub(super) groups: Vec<Vec<u32>>,
}

impl Table {
    pub(super) fn new(fleet: &Fleet, demand: &Demand) -> Result<Self, PlanError> {
        let (profiles, wanted): (Vec<_>, Vec<_>) = demand.iter().map(|(profile, n)| (profile.clone(), n)).unzip();
        let mut table = Self {
            profiles,
            wanted,
            boards: Vec::new(),
            pool: Pool::default(),
            groups: Vec::new(),
        };
        table.check_offers(fleet)?;
        let mut losses: Vec<Losses> = Vec::new();
        let mut known: HashMap<(usize, Mode, Vec<Held>), Vec<u32>> = HashMap::new();
        for gpu in fleet.gpus() {
            let board = table.board(&gpu.board);
            if board == losses.len() {
                losses.push(Losses::new(&gpu.board));
            }
            let (offers, losses) = (&table.boards[board].1, &mut losses[board]);
            let pool = &mut table.pool;
            let mut held = gpu.instances.clone();
            held.sort();
            let same = known.entry((board, gpu.mode, held));
            let group = same.or_insert_with(|| options(gpu, offers, losses, pool)).clone();
            table.groups.push(group);
        }
        Ok(table)
    }

    fn check_offers(&self, fleet: &Fleet) -> Result<(), PlanError> {
        for profile in &self.profiles {
            let offers =
                |gpu: &GpuState| gpu.mode != Mode::Unavailable && gpu.board.index(&profile.gpu_instance()).is_some();
            let exists = sizes(profile.slices()).any(|size| size == profile.compute_slices());
            if !exists || !fleet.gpus().iter().any(offers) {
                let mut boards: Vec<_> = fleet.gpus().iter().map(|gpu| gpu.board.to_string()).collect();
                boards.sort();
                boards.dedup();
                return Err(PlanError::NotOffered {
                    profile: profile.clone(),
                    boards,
                });
            }
        }
        Ok(())
    }

    /// The place of a board in the table; boards are few.
    fn board(&mut self, board: &Arc<Board>) -> usize {
        let same = |(known, _): &(Arc<Board>, _)| known == board;
        self.boards.iter().position(same).unwrap_or_else(|| {
            let of = |spec: &crate::mig::ProfileSpec| {
                let rows = self.profiles.iter().enumerate();
                let rows = rows.filter(|(_, profile)| profile.gpu_instance() == spec.profile);
                rows.filter_map(|(row, profile)| Some((profile.compute_slices(), u16::try_from(row).ok()?)))
                    .collect()
            };
            self.boards
                .push((Arc::clone(board), board.profiles().iter().map(of).collect()));
            self.boards.len() - 1
        })
    }

    /// A choice that serves all demand, or why there is none.
    pub(super) fn serve(&self, fleet: &Fleet) -> Result<(Vec<u32>, Model), PlanError> {
        let (choice, unserved, proven, model) = self.most(fleet, &self.wanted, vec![1; self.wanted.len()]);
        if unserved == 0 {
            return Ok((choice, model));
        }
        if !proven {
            return Err(PlanError::Undecided { unserved });
        }
        Err(self.shortage(fleet))
    }

    /// The first profile, from the largest down, of which there is not room for all beside the larger ones.
    fn shortage(&self, fleet: &Fleet) -> PlanError {
        let order = self.largest_first();
        let mut asked = vec![0; self.wanted.len()];
        for (at, &row) in order.iter().enumerate() {
            asked[row] = self.wanted[row];
            // What came before fits; leaving it out must never pay.
            let mut weights = vec![asked[row].saturating_add(1).min(10_000); asked.len()];
            weights[row] = 1;
            let (_, unserved, proven, _) = self.most(fleet, &asked, weights);
            if unserved > 0 {
                if !proven {
                    return PlanError::Undecided { unserved };
                }
                let beside = order[..at]
                    .iter()
                    .map(|&row| (self.profiles[row].clone(), self.wanted[row]));
                return PlanError::Short(Box::new(Shortage {
                    profile: self.profiles[row].clone(),
                    wanted: self.wanted[row],
                    short: unserved.min(self.wanted[row]),
                    blocks: self.blocks(row, unserved.min(self.wanted[row])),
                    slots: self.slots(row),
                    beside: beside.collect(),
                    gpus: fleet.gpus().iter().map(|gpu| gpu.name.clone()).collect(),
                }));
            }
        }
        PlanError::Undecided { unserved: 0 }
    }

    /// The GPU instances that so many of a row take.
    fn blocks(&self, row: usize, n: u32) -> u32 {
        let profile = &self.profiles[row];
        fewest(profile.slices(), &[(profile.compute_slices(), n)]).unwrap_or(n)
    }

    /// Memory slots of the GPU instance; the fewest, where boards differ.
    fn slots(&self, row: usize) -> u8 {
        let profile = self.profiles[row].gpu_instance();
        let offers = self.boards.iter().filter_map(|(board, _)| {
            let index = board.index(&profile)?;
            Some(board.rules()[index].slots)
        });
        offers.min().unwrap_or(0)
    }

    /// The rows by the share of its GPU that an instance takes, and where these are equal by what can lie in fewer places.
    pub(super) fn largest_first(&self) -> Vec<usize> {
        let size = |&row: &usize| {
            let profile = self.profiles[row].gpu_instance();
            let boards = self.boards.iter();
            boards
                .filter_map(|(board, _)| Some(board.size(board.index(&profile)?)))
                .min()
        };
        let mut order: Vec<_> = (0..self.wanted.len()).collect();
        order.sort_by_key(|row| Reverse((size(row), self.profiles[*row].clone())));
        order
    }

    /// A choice that serves the most: what is left by weight, and whether that is proven to be the least.
    fn most(&self, fleet: &Fleet, wanted: &[u32], weights: Vec<u32>) -> (Vec<u32>, u32, bool, Model) {
        let pool = self.pool.clone();
        let mut model = Model {
            pool,
            groups: self.groups.clone(),
            wanted: wanted.to_vec(),
        };
        let stage = Stage {
            goal: Goal::Unserved(weights),
            limits: Vec::new(),
        };
        let start = greedy::fill(self, fleet, &self.largest_first(), wanted);
        let found = minimise(&mut model, &stage, start);
        model.groups.clone_from(&self.groups);
        (found.choice, found.value, found.at_least == found.value, model)
    }

    pub(super) fn plan(
        &self,
        fleet: &Fleet,
        demand: &Demand,
        model: &Model,
        choice: &[u32],
        at_least: Cost,
    ) -> Result<Plan, PlanError> {
        let mut excess: BTreeMap<usize, u32> = BTreeMap::new();
        for &option in choice {
            for &(row, n) in model.pool.supply(option) {
                *excess.entry(row.into()).or_default() += u32::from(n);
            }
        }
        for (&row, n) in &mut excess {
            *n = n.saturating_sub(demand.count(&self.profiles[row]));
        }
        let mut plan = Plan {
            changes: Vec::new(),
            serving: Vec::new(),
            cost: Cost::default(),
            at_least,
        };
        let mut served = Vec::new();
        for (gpu, &option) in fleet.gpus().iter().zip(choice) {
            let Some((_, offers)) = self.boards.iter().find(|(board, _)| *board == gpu.board) else {
                continue;
            };
            let mut losses = Losses::new(&gpu.board);
            let (supply, cost) = (model.pool.supply(option), *model.pool.cost(option));
            let way = way(gpu, offers, &mut losses, supply, cost);
            let mut way = way.ok_or(PlanError::Undecided { unserved: 0 })?;
            way.limit(&gpu.board, offers, &mut excess);
            served.extend(self.served(gpu, offers, &way));
            plan.add(gpu, &way, &mut losses);
        }
        plan.serving = limited(served, demand);
        Ok(plan)
    }

    /// What of a way serves demand. Where anything is divided, all that can serve is among the cuts.
    fn served(&self, gpu: &GpuState, offers: &Offers, way: &Way) -> Vec<(String, Instance)> {
        let row = |index: usize, slices: u32| {
            let found = offers[index].iter().find(|(size, _)| *size == slices);
            found.map(|&(_, row)| &self.profiles[usize::from(row)])
        };
        let mut served = Vec::new();
        let mut add = |(index, placement): (usize, Placement), slices: u32| {
            let Some(profile) = row(index, slices) else { return };
            let profile = profile.clone();
            served.push((gpu.name.clone(), Instance { placement, profile }));
        };
        for cut in &way.cuts {
            let parts = cut.kept.iter().chain(&cut.created);
            parts.for_each(|part| add(cut.at, part.slices));
        }
        if way.cuts.is_empty() {
            let all = way.kept.iter().chain(&way.created);
            all.for_each(|&at| add(at, gpu.board.profile(at.0).slices()));
        }
        served
    }
}

impl Way {
    /// Leaves out what is made beyond the demand: a plan that is not the least may do so, and one GPU instance can hold more
    /// compute instances than are wanted.
    fn limit(&mut self, board: &Board, offers: &Offers, excess: &mut BTreeMap<usize, u32>) {
        let mut is_spare = |index: usize, slices: u32| {
            let row = offers[index].iter().find(|(size, _)| *size == slices);
            let spare = row.and_then(|&(_, row)| excess.get_mut(&row.into()));
            spare.is_some_and(|spare| std::mem::replace(spare, spare.saturating_sub(1)) > 0)
        };
        let mut unused = Vec::new();
        for cut in &mut self.cuts {
            cut.created.retain(|part| !is_spare(cut.at.0, part.slices));
            if !self.created.contains(&cut.at) {
                continue;
            }
            if cut.created.is_empty() {
                unused.push(cut.at);
            }
            let whole = board.profile(cut.at.0).slices();
            cut.created = packed(whole, &cut.created).unwrap_or_else(|| std::mem::take(&mut cut.created));
        }
        let divided = !self.cuts.is_empty();
        self.created.retain(|at| {
            let spare = !divided && is_spare(at.0, board.profile(at.0).slices());
            !spare && !unused.contains(at)
        });
        self.cuts.retain(|cut| !unused.contains(&cut.at));
    }
}

impl Plan {
    fn add(&mut self, gpu: &GpuState, way: &Way, losses: &mut Losses) {
        if gpu.mode == Mode::Unavailable {
            return;
        }
        let after = way.after(gpu).into_iter().map(|(_, placement)| placement);
        self.cost.loss += losses.of(occupied(after));
        let compute = way.cuts.iter().filter_map(|cut| cut.change(gpu, way)).collect();
        let change = way.change(gpu, compute);
        if change.leaves_instances() {
            return;
        }
        self.cost.destroyed += way.cost[0];
        self.cost.touched += 1;
        self.cost.mode_changes += u32::from(change.mode.is_some());
        self.changes.push(change);
    }
}

/// Idle instances may serve more than is wanted: as many as are, in the order of the fleet.
fn limited(mut served: Vec<(String, Instance)>, demand: &Demand) -> Vec<(String, Instance)> {
    let mut open: BTreeMap<Profile, u32> = demand.iter().map(|(profile, n)| (profile.clone(), n)).collect();
    served.retain(|(_, instance)| match open.get_mut(&instance.profile) {
        Some(n) if *n > 0 => {
            *n -= 1;
            true
        }
        _ => false,
    });
    served
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mig::{Catalogue, Part, plan::divided::Cut};

    #[test]
    fn what_is_made_beyond_the_demand_is_left_out_and_the_rest_lies_as_the_driver_puts_it() {
        let board = Catalogue::builtin().board("H100-80GB").unwrap();
        let index = board.index(&"3g.40gb".parse().unwrap()).unwrap();
        let at = |start| (index, Placement { start, size: 4 });
        let part = |(start, slices)| Part {
            start,
            slices,
            pinned: false,
        };
        let cut = |start, created: &[(u32, u32)]| Cut {
            at: at(start),
            kept: Vec::new(),
            destroyed: Vec::new(),
            created: created.iter().copied().map(part).collect(),
        };
        let mut offers = vec![Vec::new(); board.rules().len()];
        offers[index] = vec![(1, 0), (2, 1), (3, 2)];
        let check = |created: &[u8], cuts: &[Cut], excess: &[(usize, u32)], left: (&[u8], &[Cut])| {
            let mut way = Way {
                kept: Vec::new(),
                created: created.iter().copied().map(at).collect(),
                cuts: cuts.to_vec(),
                cost: [0; 4],
            };
            way.limit(board, &offers, &mut excess.iter().copied().collect());
            let created: Vec<_> = way.created.iter().map(|(_, placement)| placement.start).collect();
            assert_eq!((&created[..], &way.cuts[..]), left);
        };
        let (two, one) = ([(0, 2), (2, 1)], [(0, 1), (1, 1), (2, 1)]);
        let both = [cut(0, &two), cut(4, &one)];
        check(&[0, 4], &both, &[(0, 0)], (&[0, 4], &both));
        check(&[0, 4], &both, &[(1, 1)], (&[0, 4], &[cut(0, &[(0, 1)]), cut(4, &one)]));
        check(
            &[0, 4],
            &both,
            &[(0, 2)],
            (&[0, 4], &[cut(0, &[(0, 2)]), cut(4, &[(0, 1), (1, 1)])]),
        );
        check(&[0, 4], &both, &[(0, 4)], (&[0], &[cut(0, &[(0, 2)])]));
        // One that is there already has its parts where they are free.
        check(
            &[],
            &[cut(0, &[(1, 1), (2, 1)])],
            &[(0, 1)],
            (&[], &[cut(0, &[(2, 1)])]),
        );
        check(&[0, 4], &[], &[(2, 1)], (&[4], &[]));
        check(&[0, 4], &[], &[(2, 2)], (&[], &[]));
    }
}
