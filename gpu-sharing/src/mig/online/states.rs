use std::{collections::HashMap, sync::Arc};

use crate::mig::{
    Board, Instance, OnlineError, Placement, Profile,
    geometry::{Load, each_set},
};

/// Every state that a GPU of one board can be in with a set of profiles, and what leads from one to another.
///
/// Geometries with instances in the same slots that leave the same choices are one state, whatever the profiles are: an
/// eight-slot GPU has 287 with the base profiles and 417 with the one of double memory. State 0 is the empty GPU.
#[derive(Debug, Clone)]
pub struct States {
    board: Arc<Board>,
    profiles: Vec<Profile>,
    indices: Vec<usize>,
    placements: Vec<Vec<(Placement, u32)>>,
    occupied: Vec<u32>,
    /// The first slots of the instances; with the occupied slots these say where each one lies.
    starts: Vec<u32>,
    /// By state, profile and placement: where adding leads.
    after: Vec<Vec<Vec<Option<u16>>>>,
    /// By state, profile and placement: where removing leads.
    before: Vec<Vec<Vec<Option<u16>>>>,
}

/// Occupied slots and first slots of instances.
type Slots = (u32, u32);

fn with((occupied, starts): Slots, placement: Placement) -> Slots {
    (occupied | placement.mask(), starts | 1 << placement.start)
}

/// Geometries beyond this number are too many for tables; boards that exist have at most 2319.
const MOST_GEOMETRIES: usize = 60_000;

impl States {
    /// The states of a board with these profiles; those that the board does not offer are left out.
    ///
    /// # Errors
    ///
    /// [`OnlineError::NoProfile`] if none is left, [`OnlineError::TooManyStates`] for a board that is far from those that exist.
    pub fn new(board: &Arc<Board>, profiles: &[Profile]) -> Result<Self, OnlineError> {
        let mut indices: Vec<_> = profiles.iter().filter_map(|profile| board.index(profile)).collect();
        indices.sort_unstable();
        indices.dedup();
        if indices.is_empty() {
            return Err(OnlineError::NoProfile {
                board: board.to_string(),
            });
        }
        let mut geometries: Vec<(Slots, Load)> = Vec::new();
        let mut count = 0_usize;
        each_set(board, &indices, &mut |placed| {
            count += 1;
            if count <= MOST_GEOMETRIES {
                let mut load = Load::new(board);
                for &(index, _) in placed {
                    load.add(index);
                }
                let slots = placed.iter().fold((0, 0), |slots, (_, at)| with(slots, *at));
                geometries.push((slots, load));
            }
        });
        if count > MOST_GEOMETRIES {
            return Err(OnlineError::TooManyStates {
                board: board.to_string(),
            });
        }
        let placements: Vec<_> = indices
            .iter()
            .map(|&index| board.rules()[index].placements.clone())
            .collect();
        let profiles = indices.iter().map(|&index| board.profile(index).clone()).collect();
        let mut states = Self {
            board: Arc::clone(board),
            profiles,
            indices,
            placements,
            occupied: Vec::new(),
            starts: Vec::new(),
            after: Vec::new(),
            before: Vec::new(),
        };
        states.connect(&geometries);
        Ok(states)
    }

    fn connect(&mut self, geometries: &[(Slots, Load)]) {
        let binding = self.binding(geometries);
        let key = |(slots, load): &(Slots, Load)| (*slots, load.only(&binding));
        let mut known: HashMap<(Slots, Load), u16> = HashMap::new();
        let mut members: Vec<&(Slots, Load)> = Vec::new();
        for geometry in geometries {
            known.entry(key(geometry)).or_insert_with(|| {
                members.push(geometry);
                u16::try_from(members.len() - 1).unwrap_or(u16::MAX)
            });
        }
        let nowhere: Vec<Vec<Option<u16>>> = self.placements.iter().map(|all| vec![None; all.len()]).collect();
        self.occupied = members.iter().map(|((mask, _), _)| *mask).collect();
        self.starts = members.iter().map(|((_, starts), _)| *starts).collect();
        self.after = vec![nowhere.clone(); members.len()];
        self.before = vec![nowhere; members.len()];
        for (state, (slots, load)) in members.iter().enumerate() {
            for (profile, &index) in self.indices.iter().enumerate() {
                if !load.admits(&self.board, index) {
                    continue;
                }
                for (at, (placement, _)) in self.placements[profile]
                    .iter()
                    .enumerate()
                    .filter(|(_, (_, run))| slots.0 & run == 0)
                {
                    let mut more = load.clone();
                    more.add(index);
                    if let Some(&next) = known.get(&key(&(with(*slots, *placement), more))) {
                        self.after[state][profile][at] = Some(next);
                        self.before[usize::from(next)][profile][at] = u16::try_from(state).ok();
                    }
                }
            }
        }
    }

    /// Which counts of instances and sums of engines ever stand in the way of an instance that has a free place.
    fn binding(&self, geometries: &[(Slots, Load)]) -> (Vec<bool>, [bool; 4]) {
        let mut counts = vec![false; self.board.rules().len()];
        let mut engines = [false; 4];
        for ((occupied, _), load) in geometries {
            for (profile, &index) in self.indices.iter().enumerate() {
                if self.placements[profile].iter().any(|(_, run)| occupied & run == 0) {
                    counts[index] |= load.is_full(&self.board, index);
                    for (engine, binds) in engines.iter_mut().enumerate() {
                        *binds |= load.lacks(&self.board, index, engine);
                    }
                }
            }
        }
        (counts, engines)
    }

    /// How many states there are.
    #[expect(clippy::len_without_is_empty, reason = "the empty GPU is always a state")]
    pub fn len(&self) -> usize {
        self.occupied.len()
    }

    /// The board.
    pub fn board(&self) -> &Arc<Board> {
        &self.board
    }

    /// The profiles, in the board's order; policies name them by their place here.
    pub fn profiles(&self) -> &[Profile] {
        &self.profiles
    }

    /// Where an instance of a profile may lie on an empty GPU.
    pub fn placements(&self, profile: usize) -> impl Iterator<Item = Placement> {
        self.placements
            .get(profile)
            .into_iter()
            .flatten()
            .map(|&(placement, _)| placement)
    }

    /// The occupied memory slots of a state, one bit each.
    pub fn occupied(&self, state: u16) -> u32 {
        self.occupied.get(usize::from(state)).copied().unwrap_or(u32::MAX)
    }

    /// Where the instances of a state lie, in order.
    pub fn instances(&self, state: u16) -> Vec<Placement> {
        let starts = self.starts.get(usize::from(state)).copied().unwrap_or(0);
        let slots = self.board.memory_slots();
        let is_set = |mask: u32, slot: u8| mask & (1 << slot) != 0;
        let starts: Vec<u8> = (0..slots).filter(|&slot| is_set(starts, slot)).collect();
        let end = |start: u8| {
            let ends = |&slot: &u8| !is_set(self.occupied(state), slot) || starts.contains(&slot);
            (start + 1..slots).find(ends).unwrap_or(slots)
        };
        starts
            .iter()
            .map(|&start| Placement {
                start,
                size: end(start) - start,
            })
            .collect()
    }

    /// The free memory slots of a state.
    pub fn free(&self, state: u16) -> u32 {
        u32::from(self.board.memory_slots()).saturating_sub(self.occupied(state).count_ones())
    }

    /// The state after an instance is added at a placement (by its place in [`States::placements`]); `None` if it cannot be.
    pub fn add(&self, state: u16, profile: usize, placement: usize) -> Option<u16> {
        *self.after.get(usize::from(state))?.get(profile)?.get(placement)?
    }

    /// The state after an instance is gone; `None` if there can be none at that placement.
    pub fn remove(&self, state: u16, profile: usize, placement: usize) -> Option<u16> {
        *self.before.get(usize::from(state))?.get(profile)?.get(placement)?
    }

    pub(crate) fn runs(&self, profile: usize) -> &[(Placement, u32)] {
        &self.placements[profile]
    }

    /// The numbers of an instance's profile and placement.
    pub(crate) fn find(&self, instance: &Instance) -> Option<(usize, usize)> {
        let profile = self.profiles.iter().position(|profile| *profile == instance.profile)?;
        let placement = self.placements[profile]
            .iter()
            .position(|(placement, _)| *placement == instance.placement)?;
        Some((profile, placement))
    }
}
