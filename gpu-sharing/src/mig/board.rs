use std::{cmp::Reverse, collections::BTreeSet, fmt};

use serde::{Deserialize, Serialize};

use crate::mig::{BoardError, Instance, Placement, Profile};

/// What one model of GPU offers: its memory slots, its profiles and where each may lie.
///
/// Taken from the [`Catalogue`](crate::mig::Catalogue), or made from what a driver reports with [`Board::new`]; the
/// driver's word goes first, since names and memory sizes differ between driver versions.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "BoardSpec", into = "BoardSpec")]
pub struct Board {
    spec: BoardSpec,
    /// For the profile at the same place in `spec.profiles`.
    rules: Vec<Rule>,
}

/// A board as plain values, before [`Board::new`] has checked that they fit together.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BoardSpec {
    /// The model, e.g. `H100-80GB`; messages name it.
    pub name: String,
    /// Memory slots of the GPU, at most 16; placements are counted in these.
    pub memory_slots: u8,
    /// Compute slices of the GPU.
    pub compute_slices: u8,
    /// Engines of the whole GPU; instances may not take more in sum.
    #[serde(default)]
    pub engines: Engines,
    /// The GPU instance profiles, in the order in which they are listed to people.
    pub profiles: Vec<ProfileSpec>,
}

/// One GPU instance profile of a board.
///
/// Fields that are `None` are not known; a live driver fills them in.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ProfileSpec {
    /// The name.
    pub profile: Profile,
    /// `NVML_GPU_INSTANCE_PROFILE_*`: the argument of `nvmlDeviceGetGpuInstanceProfileInfo`. Not the profile's id.
    pub nvml_constant: u32,
    /// `nvmlGpuInstanceProfileInfo_t::id`: the argument of `nvmlDeviceCreateGpuInstance`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gpu_instance_profile_id: Option<u32>,
    /// Every place where an instance may lie.
    pub placements: Vec<Placement>,
    /// How many instances a GPU can have at most, whatever else is on it.
    pub max_instances: u32,
    /// Memory in MiB, with the driver that was looked at.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_mib: Option<u64>,
    /// Streaming multiprocessors.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub multiprocessors: Option<u32>,
    /// Copy engines.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub copy_engines: Option<u32>,
    /// Video engines.
    #[serde(default)]
    pub engines: Engines,
    /// The compute instances into which the GPU instance can be cut.
    #[serde(default)]
    pub compute: Vec<ComputeSpec>,
}

/// One compute instance profile inside a GPU instance.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ComputeSpec {
    /// Slices of the compute instance.
    pub slices: u32,
    /// `NVML_COMPUTE_INSTANCE_PROFILE_*`.
    pub nvml_constant: u32,
    /// How many fit into one GPU instance.
    pub max_instances: u32,
}

/// Counts of engines that are shared out among instances; `None` is not known.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Engines {
    /// Video decoders (NVDEC).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub decoders: Option<u32>,
    /// Video encoders (NVENC).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub encoders: Option<u32>,
    /// JPEG engines.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub jpeg: Option<u32>,
    /// Optical flow engines.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ofa: Option<u32>,
}

/// What a placement rule check needs of a profile, ready for use.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Rule {
    pub(crate) placements: Vec<(Placement, u32)>,
    pub(crate) slots: u8,
    pub(crate) max_instances: u32,
    /// Engines where both the profile's and the GPU's number are known; the sum may not pass `Board::limits`.
    pub(crate) engines: [u32; 4],
}

impl Board {
    /// Checks a board that was read from a driver or written by hand.
    ///
    /// # Errors
    ///
    /// If there are no slots or more than 16, no profile or more than 32, a profile twice, one that is a compute instance (`1c.2g…`), one
    /// that cannot be placed, or placements outside the slots or of different sizes.
    pub fn new(spec: BoardSpec) -> Result<Self, BoardError> {
        let fail = |profile: Option<&Profile>, reason: &'static str| BoardError {
            board: spec.name.clone(),
            profile: profile.cloned(),
            reason,
        };
        if !(1..=16).contains(&spec.memory_slots) {
            return Err(fail(None, "it must have 1 to 16 memory slots"));
        }
        if spec.profiles.is_empty() || spec.profiles.len() > 32 {
            return Err(fail(None, "it must have 1 to 32 profiles"));
        }
        let mut names = BTreeSet::new();
        for ProfileSpec {
            profile,
            placements,
            max_instances,
            ..
        } in &spec.profiles
        {
            let fail = |reason| Err(fail(Some(profile), reason));
            let Some(first) = placements.first() else {
                return fail("it has no placement");
            };
            if !names.insert(profile) {
                return fail("it is listed twice");
            }
            if profile.compute_slices() != profile.slices() {
                return fail("it is a compute instance, not a GPU instance");
            }
            if *max_instances == 0 {
                return fail("no instance of it is allowed");
            }
            if placements
                .iter()
                .any(|p| p.size == 0 || p.end() > spec.memory_slots.into())
            {
                return fail("a placement lies outside the memory slots");
            }
            if placements.iter().any(|p| p.size != first.size) {
                return fail("its placements differ in size");
            }
        }
        let rules = spec
            .profiles
            .iter()
            .map(|profile| Rule::new(profile, spec.engines))
            .collect();
        Ok(Self { spec, rules })
    }

    /// The model, e.g. `H100-80GB`.
    pub fn name(&self) -> &str {
        &self.spec.name
    }

    /// How many memory slots the GPU has.
    pub fn memory_slots(&self) -> u8 {
        self.spec.memory_slots
    }

    /// How many compute slices the GPU has.
    pub fn compute_slices(&self) -> u8 {
        self.spec.compute_slices
    }

    /// The profiles that can be made, in catalogue order.
    pub fn profiles(&self) -> &[ProfileSpec] {
        &self.spec.profiles
    }

    /// What is known of one profile; `None` if this board does not offer it.
    pub fn spec(&self, profile: &Profile) -> Option<&ProfileSpec> {
        self.index(profile).and_then(|index| self.spec.profiles.get(index))
    }

    /// The profiles without attributes and, of those with equally many slices, without the one of double memory.
    ///
    /// These are the profiles of the published tables of configurations: `1g 2g 3g 4g 7g` on an eight-slot GPU.
    pub fn base_profiles(&self) -> Vec<Profile> {
        let plain =
            |spec: &&ProfileSpec| spec.profile.attributes().next().is_none() && spec.profile.without().next().is_none();
        let plain: Vec<_> = self
            .spec
            .profiles
            .iter()
            .filter(plain)
            .map(|spec| &spec.profile)
            .collect();
        let smallest = |p: &&&Profile| {
            !plain
                .iter()
                .any(|q| q.slices() == p.slices() && q.memory_gb() < p.memory_gb())
        };
        // Thor's memory is 0 in every name; its slices still differ.
        plain.iter().filter(smallest).map(|&p| p.clone()).collect()
    }

    pub(crate) fn index(&self, profile: &Profile) -> Option<usize> {
        self.spec.profiles.iter().position(|spec| spec.profile == *profile)
    }

    pub(crate) fn rules(&self) -> &[Rule] {
        &self.rules
    }

    /// The share of the GPU that an instance takes, in 1/64; of equal ones that is larger which can lie in fewer places.
    pub(crate) fn size(&self, index: usize) -> (u32, Reverse<usize>) {
        let rule = &self.rules[index];
        let share = u32::from(rule.slots) * 64 / u32::from(self.memory_slots());
        (share, Reverse(rule.placements.len()))
    }

    pub(crate) fn profile(&self, index: usize) -> &Profile {
        &self.spec.profiles[index].profile
    }

    /// An instance of a profile, by its index, at a placement.
    pub(crate) fn instance(&self, (index, placement): (usize, Placement)) -> Instance {
        Instance {
            placement,
            profile: self.profile(index).clone(),
        }
    }

    pub(crate) fn engine_limits(&self) -> [u32; 4] {
        self.spec.engines.known().map(|limit| limit.unwrap_or(u32::MAX))
    }
}

impl TryFrom<BoardSpec> for Board {
    type Error = BoardError;

    fn try_from(spec: BoardSpec) -> Result<Self, Self::Error> {
        Self::new(spec)
    }
}

impl From<Board> for BoardSpec {
    fn from(board: Board) -> Self {
        board.spec
    }
}

impl fmt::Display for Board {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.spec.name)
    }
}

impl Rule {
    fn new(spec: &ProfileSpec, totals: Engines) -> Self {
        let mut placements: Vec<_> = spec.placements.iter().map(|&p| (p, p.mask())).collect();
        placements.sort_unstable();
        placements.dedup();
        let used = spec.engines.known();
        let mut engines = [0; 4];
        for (sum, (used, total)) in engines.iter_mut().zip(used.into_iter().zip(totals.known())) {
            *sum = if total.is_some() { used.unwrap_or(0) } else { 0 };
        }
        let slots = placements.first().map_or(0, |(p, _)| p.size);
        Self {
            placements,
            slots,
            max_instances: spec.max_instances,
            engines,
        }
    }
}

impl Engines {
    fn known(self) -> [Option<u32>; 4] {
        [self.decoders, self.encoders, self.jpeg, self.ofa]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mig::Catalogue;

    fn spec() -> BoardSpec {
        BoardSpec::from(Board::clone(Catalogue::builtin().board("A30-24GB").unwrap()))
    }

    #[test]
    fn a_board_that_does_not_fit_together_is_refused_with_the_profile() {
        #[track_caller]
        fn check(change: impl FnOnce(&mut BoardSpec), message: &str) {
            let mut spec = spec();
            change(&mut spec);
            assert_eq!(Board::new(spec).unwrap_err().to_string(), message);
        }
        check(
            |spec| spec.memory_slots = 17,
            "board `A30-24GB`: it must have 1 to 16 memory slots",
        );
        check(
            |spec| spec.profiles.clear(),
            "board `A30-24GB`: it must have 1 to 32 profiles",
        );
        check(
            |spec| spec.memory_slots = 3,
            "board `A30-24GB`, profile `1g.6gb`: a placement lies outside the memory slots",
        );
        check(
            |spec| spec.profiles[1].profile = "1g.6gb".parse().unwrap(),
            "board `A30-24GB`, profile `1g.6gb`: it is listed twice",
        );
        check(
            |spec| spec.profiles[2].placements.clear(),
            "board `A30-24GB`, profile `2g.12gb`: it has no placement",
        );
        check(
            |spec| spec.profiles[2].placements[0].size = 1,
            "board `A30-24GB`, profile `2g.12gb`: its placements differ in size",
        );
        check(
            |spec| spec.profiles[0].profile = "1c.2g.12gb".parse().unwrap(),
            "board `A30-24GB`, profile `1c.2g.12gb`: it is a compute instance, not a GPU instance",
        );
        check(
            |spec| spec.profiles[0].max_instances = 0,
            "board `A30-24GB`, profile `1g.6gb`: no instance of it is allowed",
        );
    }

    #[test]
    fn boards_survive_json_and_are_checked_when_read() {
        for entry in Catalogue::builtin().entries() {
            let json = serde_json::to_string(&*entry.board).unwrap();
            assert_eq!(serde_json::from_str::<Board>(&json).unwrap(), *entry.board);
        }
        let json = serde_json::to_string(&spec())
            .unwrap()
            .replace("\"memory_slots\":4", "\"memory_slots\":2");
        assert!(serde_json::from_str::<Board>(&json).is_err());
    }
}
