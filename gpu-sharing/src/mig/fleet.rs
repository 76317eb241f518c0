use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    sync::Arc,
};

use serde::{Deserialize, Serialize};

use crate::mig::{Board, Compute, FleetError, Geometry, Instance, Placement, Profile};

/// One GPU as the planner sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GpuState {
    /// What plans and messages call it: a UUID, or node and index. Unique in a fleet.
    pub name: String,
    /// What it offers.
    pub board: Arc<Board>,
    /// Whether it can hold instances now.
    pub mode: Mode,
    /// The instances on it, in any order.
    pub instances: Vec<Held>,
}

/// An instance on a GPU and whether somebody uses it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Held {
    /// The instance.
    pub instance: Instance,
    /// In use: no plan destroys it, and it serves no new demand.
    pub pinned: bool,
    /// The compute instances in it.
    #[serde(default, skip_serializing_if = "Compute::is_whole")]
    pub compute: Compute,
}

impl Held {
    /// An instance with one compute instance of its whole size.
    pub fn whole(instance: Instance, pinned: bool) -> Self {
        Self {
            instance,
            pinned,
            compute: Compute::Whole,
        }
    }
}

/// Whether a GPU can hold instances.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Mode {
    /// MIG mode is on.
    Enabled,
    /// MIG mode is off, and a plan may switch it on. On Ampere that resets the GPU.
    Disabled,
    /// A plan leaves the GPU alone: it is used as a whole, broken, or not ours. Its instances are not looked at.
    Unavailable,
}

/// GPUs that are planned together.
///
/// What holds for every value: names are unique, the instances of each available GPU form a [`Geometry`] of its board, and
/// a GPU with MIG mode off has none.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Fleet {
    gpus: Vec<GpuState>,
}

impl Fleet {
    /// Checks the state of each GPU.
    ///
    /// # Errors
    ///
    /// [`FleetError`] names the first GPU whose state is impossible. To plan without it, make it [`Mode::Unavailable`].
    pub fn new(gpus: impl IntoIterator<Item = GpuState>) -> Result<Self, FleetError> {
        let gpus: Vec<_> = gpus.into_iter().collect();
        let mut names = BTreeSet::new();
        for gpu in &gpus {
            if !names.insert(&gpu.name) {
                return Err(FleetError::Duplicate { gpu: gpu.name.clone() });
            }
            gpu.check()?;
        }
        Ok(Self { gpus })
    }

    /// The GPUs in the order given.
    pub fn gpus(&self) -> &[GpuState] {
        &self.gpus
    }

    /// The GPU of a name.
    pub fn gpu(&self, name: &str) -> Option<&GpuState> {
        self.gpus.iter().find(|gpu| gpu.name == name)
    }
}

impl GpuState {
    fn check(&self) -> Result<(), FleetError> {
        match self.mode {
            Mode::Unavailable => Ok(()),
            Mode::Disabled if !self.instances.is_empty() => {
                Err(FleetError::InstancesWithoutMig { gpu: self.name.clone() })
            }
            Mode::Enabled | Mode::Disabled => self.geometry().map(drop).map_err(|source| FleetError::Geometry {
                gpu: self.name.clone(),
                source,
            }),
        }
    }

    pub(crate) fn geometry(&self) -> Result<Geometry, crate::mig::GeometryError> {
        Geometry::from_instances(&self.board, self.instances.iter().map(|held| held.instance.clone()))
    }

    /// The instance of a profile, as its board index, at a placement.
    pub(crate) fn held(&self, (index, placement): (usize, Placement)) -> Option<&Held> {
        let profile = self.board.profile(index);
        let is = |held: &&Held| held.instance.placement == placement && held.instance.profile == *profile;
        self.instances.iter().find(is)
    }

    /// The places of the instances that are pinned, or are not, as board indices.
    pub(crate) fn placed(&self, pinned: bool) -> Vec<(usize, Placement)> {
        let chosen = self.instances.iter().filter(|held| held.pinned == pinned);
        let mut placed: Vec<_> = chosen
            .filter_map(|held| Some((self.board.index(&held.instance.profile)?, held.instance.placement)))
            .collect();
        placed.sort_unstable_by_key(|&(index, placement)| (placement, index));
        placed
    }
}

/// How many instances of each profile are wanted; a count of 0 is no demand.
///
/// ```
/// use gpu_sharing::mig::Demand;
///
/// let demand: Demand = [("1g.10gb".parse()?, 2), ("3g.40gb".parse()?, 1)].into_iter().collect();
/// assert_eq!(demand.to_string(), "2 × 1g.10gb, 1 × 3g.40gb");
/// # Ok::<(), gpu_sharing::mig::ParseProfileError>(())
/// ```
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Demand {
    counts: BTreeMap<Profile, u32>,
}

impl Demand {
    /// The profiles that are wanted and how often, by size.
    pub fn iter(&self) -> impl Iterator<Item = (&Profile, u32)> {
        self.counts
            .iter()
            .map(|(profile, &count)| (profile, count))
            .filter(|&(_, count)| count > 0)
    }

    /// How many of one profile.
    pub fn count(&self, profile: &Profile) -> u32 {
        self.counts.get(profile).copied().unwrap_or(0)
    }

    /// Wants more of one profile.
    pub fn add(&mut self, profile: Profile, count: u32) {
        let sum = self.counts.entry(profile).or_default();
        *sum = sum.saturating_add(count);
    }
}

impl FromIterator<(Profile, u32)> for Demand {
    fn from_iter<T: IntoIterator<Item = (Profile, u32)>>(counts: T) -> Self {
        counts
            .into_iter()
            .fold(Self::default(), |mut demand, (profile, count)| {
                demand.add(profile, count);
                demand
            })
    }
}

impl fmt::Display for Demand {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<_> = self
            .iter()
            .map(|(profile, count)| format!("{count} × {profile}"))
            .collect();
        f.pad(&if names.is_empty() {
            "nothing".to_owned()
        } else {
            names.join(", ")
        })
    }
}
