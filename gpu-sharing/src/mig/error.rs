use crate::mig::{Instance, Placement, Profile};

/// Why a board's values do not fit together.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("board `{board}`{}: {reason}", profile.as_ref().map(|p| format!(", profile `{p}`")).unwrap_or_default())]
pub struct BoardError {
    pub(crate) board: String,
    pub(crate) profile: Option<Profile>,
    pub(crate) reason: &'static str,
}

/// Why a set of instances is not a geometry of a board.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum GeometryError {
    /// The board has no such profile; the catalogue or the driver says which it has.
    #[error("`{board}` does not offer `{profile}`")]
    UnknownProfile {
        /// The model of GPU.
        board: String,
        /// What was asked for.
        profile: Profile,
    },
    /// The board has the profile, but not at that place.
    #[error("`{profile}` cannot lie at {placement} on `{board}`")]
    Misplaced {
        /// The model of GPU.
        board: String,
        /// What was asked for.
        profile: Profile,
        /// Where.
        placement: Placement,
    },
    /// Two instances share a memory slot.
    #[error("`{first}` at {first_at} and `{second}` at {second_at} share a memory slot")]
    Overlap {
        /// The instance that starts first.
        first: Profile,
        /// Its place.
        first_at: Placement,
        /// The instance that starts in it.
        second: Profile,
        /// Its place.
        second_at: Placement,
    },
    /// More instances of a profile than the GPU can have.
    #[error("more than {max} of `{profile}` on one `{board}`")]
    TooMany {
        /// The model of GPU.
        board: String,
        /// What there are too many of.
        profile: Profile,
        /// How many there can be.
        max: u32,
    },
    /// The instances take more decoders, encoders, JPEG or optical flow engines than the GPU has.
    #[error("the instances need {used} {engine} of the {total} on one `{board}`")]
    Engines {
        /// The model of GPU.
        board: String,
        /// Which engine.
        engine: &'static str,
        /// How many the instances take.
        used: u32,
        /// How many the GPU has.
        total: u32,
    },
}

/// Why GPUs are no fleet.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FleetError {
    /// Two GPUs have the same name.
    #[error("GPU `{gpu}` is listed twice")]
    Duplicate {
        /// The name.
        gpu: String,
    },
    /// A GPU with MIG mode off has instances.
    #[error("GPU `{gpu}` has instances although its MIG mode is off")]
    InstancesWithoutMig {
        /// The GPU.
        gpu: String,
    },
    /// The instances of a GPU cannot be: the catalogue is wrong about the board, or the state is.
    #[error("the instances of GPU `{gpu}` are not possible")]
    Geometry {
        /// The GPU.
        gpu: String,
        /// What is wrong with them.
        source: GeometryError,
    },
}

impl FleetError {
    /// The GPU that is meant.
    pub fn gpu(&self) -> &str {
        match self {
            Self::Duplicate { gpu } | Self::InstancesWithoutMig { gpu } | Self::Geometry { gpu, .. } => gpu,
        }
    }
}

/// Why there is no plan.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PlanError {
    /// A GPU that is not in the fleet.
    #[error("there is no GPU `{gpu}`")]
    Unknown {
        /// The name.
        gpu: String,
    },
    /// A GPU that may not be changed.
    #[error("GPU `{gpu}` is not available for MIG")]
    Unavailable {
        /// The GPU.
        gpu: String,
    },
    /// No available GPU offers the profile.
    #[error("no GPU offers `{profile}` (there are: {})", boards.join(", "))]
    NotOffered {
        /// The profile.
        profile: Profile,
        /// The models there are.
        boards: Vec<String>,
    },
    /// There is not enough room, whatever is done with idle instances.
    #[error(transparent)]
    Short(Box<Shortage>),
    /// What is declared with its places cannot be.
    #[error("{source}")]
    Geometry {
        /// The GPU.
        gpu: String,
        /// What is wrong with it.
        source: GeometryError,
    },
    /// A pinned instance is not among what is declared for its GPU.
    #[error("`{instance}` on GPU `{gpu}` is in use, and the configuration has no place for it")]
    Pinned {
        /// The GPU.
        gpu: String,
        /// The instance that would have to go.
        instance: Instance,
    },
    /// What is declared fits the GPU, but not around its pinned instances.
    #[error("{shortage}, because of instances in use: {}", list(pinned))]
    Blocked {
        /// The GPU.
        gpu: String,
        /// What is in use there.
        pinned: Vec<Instance>,
        /// What does not fit around them.
        shortage: Box<Shortage>,
    },
    /// Neither a plan nor a proof that there is none was found; it takes a large fleet that is all but full.
    #[error(
        "no plan found: {unserved} instances have no place in the best one, and it is not proven that they cannot have"
    )]
    Undecided {
        /// How many are not served by the best plan found.
        unserved: u32,
    },
}

/// The proof that a demand cannot be served: the largest profile that does not fit beside all larger ones.
///
/// `wanted - short` of the profile can be placed together with all of `beside`, and no more.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{short} of {wanted} × `{profile}` do not fit{} on {}: {blocks} free block{} of {slots} slot{} {} short",
    beside_text(beside), gpus_text(gpus), plural(*blocks), plural((*slots).into()), if *blocks == 1 { "is" } else { "are" }
)]
pub struct Shortage {
    /// The profile that there is not room for.
    pub profile: Profile,
    /// How many of it are wanted.
    pub wanted: u32,
    /// How many of them have no place, at least.
    pub short: u32,
    /// The blocks that these need: as many, or fewer where compute instances share one.
    pub blocks: u32,
    /// Memory slots of such a block; the smallest, where boards differ.
    pub slots: u8,
    /// Larger profiles and how many of each are wanted too.
    pub beside: Vec<(Profile, u32)>,
    /// The GPUs that were looked at.
    pub gpus: Vec<String>,
}

fn list(instances: &[Instance]) -> String {
    instances.iter().map(Instance::to_string).collect::<Vec<_>>().join(", ")
}

fn beside_text(beside: &[(Profile, u32)]) -> String {
    let mut beside: Vec<_> = beside.iter().collect();
    beside.sort();
    let names: Vec<_> = beside.iter().map(|(profile, n)| format!("{n} × {profile}")).collect();
    if names.is_empty() {
        String::new()
    } else {
        format!(" beside {}", names.join(", "))
    }
}

fn gpus_text(gpus: &[String]) -> String {
    match gpus {
        [one] => format!("`{one}`"),
        many => format!("{} GPUs", many.len()),
    }
}

fn plural(n: u32) -> &'static str {
    if n == 1 { "" } else { "s" }
}

/// Why a plan does not fit the fleet any more: make a new one.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the plan is out of date for GPU `{gpu}`: {reason}")]
pub struct StaleError {
    /// The GPU.
    pub gpu: String,
    /// What has changed.
    pub reason: StaleReason,
}

/// What has changed on a GPU since a plan was made.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum StaleReason {
    /// The GPU is not there.
    #[error("it is gone")]
    Gone,
    /// Another model has that name now.
    #[error("it is a `{now}` now")]
    Board {
        /// The model.
        now: String,
    },
    /// The GPU may not be changed any more.
    #[error("it is not available any more")]
    Unavailable,
    /// MIG mode was switched off.
    #[error("its MIG mode is off")]
    MigDisabled,
    /// An instance that the plan destroys is not there.
    #[error("`{instance}` is gone")]
    NoInstance {
        /// The instance.
        instance: Instance,
    },
    /// An instance that the plan destroys is in use.
    #[error("`{instance}` is in use")]
    InUse {
        /// The instance.
        instance: Instance,
    },
    /// MIG mode is to be switched off, and there are instances that the plan does not know.
    #[error("it has instances that the plan does not destroy")]
    NotEmpty,
    /// What the plan makes has no place.
    #[error("{0}")]
    Geometry(GeometryError),
}

/// Why an online fleet cannot be made or changed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum OnlineError {
    /// A board offers none of the profiles.
    #[error("`{board}` offers none of the profiles")]
    NoProfile {
        /// The board.
        board: String,
    },
    /// A board whose rules allow far more geometries than any board that exists.
    #[error("`{board}` has too many geometries for tables")]
    TooManyStates {
        /// The board.
        board: String,
    },
    /// No such GPU in the fleet.
    #[error("there is no GPU {gpu}")]
    NoGpu {
        /// Its number.
        gpu: usize,
    },
    /// The instance does not fit beside what is on the GPU.
    #[error("GPU {gpu} has no room for `{instance}`")]
    NoRoom {
        /// The GPU's number.
        gpu: usize,
        /// The instance.
        instance: Instance,
    },
    /// The GPU has no such instance.
    #[error("GPU {gpu} has no `{instance}`")]
    NoInstance {
        /// The GPU's number.
        gpu: usize,
        /// The instance.
        instance: Instance,
    },
}
