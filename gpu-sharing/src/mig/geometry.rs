use std::fmt;

use serde::Serialize;

use crate::mig::{Board, GeometryError, Placement, Profile};

/// A GPU instance that has, or is to have, a place on a GPU.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Instance {
    /// Where it lies.
    pub placement: Placement,
    /// What it is.
    pub profile: Profile,
}

impl fmt::Display for Instance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&format!("{}@{}", self.profile, self.placement.start))
    }
}

/// Placed instances that one GPU can have at the same time.
///
/// The instances are in order of their start. What holds for every value: each profile is one of the board's at one of its
/// placements, no two share a slot, and neither the number of instances of a profile nor the sum of their engines passes
/// the board's limits.
///
/// ```
/// use gpu_sharing::mig::{Catalogue, Geometry};
///
/// let board = Catalogue::builtin().board("H100-80GB").unwrap();
/// let geometry = Geometry::new(board, [("3g.40gb".parse()?, 4), ("1g.10gb".parse()?, 0)])?;
/// assert_eq!(geometry.to_string(), "1g.10gb@0 3g.40gb@4");
/// assert!(Geometry::new(board, [("3g.40gb".parse()?, 2)]).is_err());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(transparent)]
pub struct Geometry {
    instances: Vec<Instance>,
}

impl Geometry {
    /// A geometry of profiles and the slots at which they start.
    ///
    /// # Errors
    ///
    /// [`GeometryError`] names the profile that the board does not offer or that cannot lie there with the others.
    pub fn new(board: &Board, instances: impl IntoIterator<Item = (Profile, u8)>) -> Result<Self, GeometryError> {
        let place = |(profile, start)| {
            let slots = board.index(&profile).map_or(0, |index| board.rules()[index].slots);
            Instance {
                profile,
                placement: Placement { start, size: slots },
            }
        };
        Self::from_instances(board, instances.into_iter().map(place))
    }

    /// A geometry of instances as a driver lists them.
    ///
    /// # Errors
    ///
    /// As [`Geometry::new`].
    pub fn from_instances(board: &Board, instances: impl IntoIterator<Item = Instance>) -> Result<Self, GeometryError> {
        let mut instances: Vec<_> = instances.into_iter().collect();
        instances.sort();
        let mut load = Load::new(board);
        for (at, Instance { profile, placement }) in instances.iter().enumerate() {
            let Some(index) = board.index(profile) else {
                return Err(GeometryError::UnknownProfile {
                    board: board.to_string(),
                    profile: profile.clone(),
                });
            };
            let rule = &board.rules()[index];
            if !rule.placements.iter().any(|(allowed, _)| allowed == placement) {
                let (profile, placement) = (profile.clone(), *placement);
                return Err(GeometryError::Misplaced {
                    board: board.to_string(),
                    profile,
                    placement,
                });
            }
            if let Some(first) = instances[..at]
                .iter()
                .find(|first| first.placement.overlaps(*placement))
            {
                return Err(GeometryError::Overlap {
                    first: first.profile.clone(),
                    first_at: first.placement,
                    second: profile.clone(),
                    second_at: *placement,
                });
            }
            load.add(index);
            load.check(board, index)?;
        }
        Ok(Self { instances })
    }

    /// The instances in order of their start.
    pub fn instances(&self) -> &[Instance] {
        &self.instances
    }

    /// Every geometry of a board with these profiles, the empty one included, in order of the starts.
    ///
    /// Profiles that the board does not offer add nothing. There are 298 with the five base profiles of an eight-slot GPU,
    /// 2319 with all seven.
    pub fn enumerate(board: &Board, profiles: &[Profile]) -> Vec<Self> {
        let indices: Vec<_> = profiles.iter().filter_map(|profile| board.index(profile)).collect();
        let mut found = Vec::new();
        each_set(board, &indices, &mut |placed| {
            let instances = placed.iter().map(|&at| board.instance(at)).collect();
            found.push(Self { instances });
        });
        found
    }
}

impl fmt::Display for Geometry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<_> = self.instances.iter().map(Instance::to_string).collect();
        f.pad(&if names.is_empty() {
            "empty".to_owned()
        } else {
            names.join(" ")
        })
    }
}

/// Calls `visit` with each set of instances that a GPU can have, in order of the starts; none is the first.
pub(crate) fn each_set(board: &Board, profiles: &[usize], visit: &mut impl FnMut(&[(usize, Placement)])) {
    let mut candidates: Vec<_> = profiles
        .iter()
        .flat_map(|&index| {
            board.rules()[index]
                .placements
                .iter()
                .map(move |&(placement, mask)| (placement, mask, index))
        })
        .collect();
    candidates.sort_unstable();
    candidates.dedup();
    Extend {
        board,
        candidates,
        load: Load::new(board),
        occupied: 0,
        placed: Vec::new(),
        visit,
    }
    .from(0);
}

struct Extend<'a, F> {
    board: &'a Board,
    /// In order of the start: instances do not overlap, so a set is found once if it is built in this order.
    candidates: Vec<(Placement, u32, usize)>,
    load: Load,
    occupied: u32,
    placed: Vec<(usize, Placement)>,
    visit: &'a mut F,
}

impl<F: FnMut(&[(usize, Placement)])> Extend<'_, F> {
    fn from(&mut self, first: usize) {
        (self.visit)(&self.placed);
        for at in first..self.candidates.len() {
            let (placement, mask, index) = self.candidates[at];
            if self.occupied & mask != 0 || !self.load.admits(self.board, index) {
                continue;
            }
            self.occupied |= mask;
            self.load.add(index);
            self.placed.push((index, placement));
            self.from(at + 1);
            self.placed.pop();
            self.load.remove(index);
            self.occupied &= !mask;
        }
    }
}

/// How many instances of each profile and how many engines are taken on one GPU.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Load {
    counts: Vec<u32>,
    engines: [u32; 4],
    per_profile: Vec<[u32; 4]>,
}

impl Load {
    pub(crate) fn new(board: &Board) -> Self {
        let per_profile = board.rules().iter().map(|rule| rule.engines).collect();
        Self {
            counts: vec![0; board.rules().len()],
            engines: [0; 4],
            per_profile,
        }
    }

    pub(crate) fn admits(&self, board: &Board, index: usize) -> bool {
        let rule = &board.rules()[index];
        let engines = || (0..4).all(|e| self.engines[e].saturating_add(rule.engines[e]) <= board.engine_limits()[e]);
        self.counts[index] < rule.max_instances && engines()
    }

    pub(crate) fn add(&mut self, index: usize) {
        self.counts[index] += 1;
        for e in 0..4 {
            self.engines[e] = self.engines[e].saturating_add(self.per_profile[index][e]);
        }
    }

    pub(crate) fn remove(&mut self, index: usize) {
        self.counts[index] -= 1;
        for e in 0..4 {
            self.engines[e] = self.engines[e].saturating_sub(self.per_profile[index][e]);
        }
    }

    /// Whether there are as many of a profile as there can be.
    pub(crate) fn is_full(&self, board: &Board, index: usize) -> bool {
        self.counts[index] >= board.rules()[index].max_instances
    }

    /// Whether an engine is short for one more of a profile.
    pub(crate) fn lacks(&self, board: &Board, index: usize, engine: usize) -> bool {
        self.engines[engine].saturating_add(board.rules()[index].engines[engine]) > board.engine_limits()[engine]
    }

    /// The load with all counts and engines that do not matter at zero.
    pub(crate) fn only(&self, (counts, engines): &(Vec<bool>, [bool; 4])) -> Self {
        let mut only = self.clone();
        only.counts
            .iter_mut()
            .zip(counts)
            .for_each(|(n, matters)| *n *= u32::from(*matters));
        only.engines
            .iter_mut()
            .zip(engines)
            .for_each(|(n, matters)| *n *= u32::from(*matters));
        only
    }

    fn check(&self, board: &Board, index: usize) -> Result<(), GeometryError> {
        let max = board.rules()[index].max_instances;
        if self.counts[index] > max {
            let profile = board.profile(index).clone();
            return Err(GeometryError::TooMany {
                board: board.to_string(),
                profile,
                max,
            });
        }
        let names = ["decoders", "encoders", "JPEG engines", "optical flow engines"];
        let limits = board.engine_limits();
        match (0..4).find(|&e| self.engines[e] > limits[e]) {
            Some(e) => Err(GeometryError::Engines {
                board: board.to_string(),
                engine: names[e],
                used: self.engines[e],
                total: limits[e],
            }),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mig::Catalogue;

    #[test]
    fn what_cannot_be_on_a_gpu_is_refused_by_name() {
        #[track_caller]
        fn check(board: &str, instances: &[(&str, u8)], message: &str) {
            let board = Catalogue::builtin().board(board).unwrap();
            let instances = instances
                .iter()
                .map(|(profile, start)| (profile.parse().unwrap(), *start));
            assert_eq!(Geometry::new(board, instances).unwrap_err().to_string(), message);
        }
        check("H100-80GB", &[("1g.5gb", 0)], "`H100-80GB` does not offer `1g.5gb`");
        check(
            "H100-80GB",
            &[("3g.40gb", 2)],
            "`3g.40gb` cannot lie at 2:4 on `H100-80GB`",
        );
        check(
            "H100-80GB",
            &[("1g.10gb", 7)],
            "`1g.10gb` cannot lie at 7:1 on `H100-80GB`",
        );
        check(
            "H100-80GB",
            &[("2g.20gb", 4), ("3g.40gb", 4)],
            "`2g.20gb` at 4:2 and `3g.40gb` at 4:4 share a memory slot",
        );
        check(
            "H100-80GB",
            &[("1g.10gb+me", 0), ("1g.10gb+me", 1)],
            "more than 1 of `1g.10gb+me` on one `H100-80GB`",
        );
        check(
            "RTX-PRO-6000-Blackwell-96GB",
            &[("1g.24gb+me.all", 0), ("1g.24gb", 3)],
            "the instances need 5 decoders of the 4 on one `RTX-PRO-6000-Blackwell-96GB`",
        );
    }
}
