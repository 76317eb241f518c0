//! The GPUs of a node, as a driver reports them, for the planner; and its plans for the driver.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use gpu_core::{Gpu, GpuInstance, GpuUuid, Inventory, Usage};

use crate::mig::{
    Board, BoardError, BoardSpec, Catalogue, CheckedPlan, Compute, ComputeSpec, Engines, Fleet, FleetError, GpuState,
    Held, Instance, Mode, Part, Placement, Plan, PlanError, Profile, ProfileSpec, StaleError, Step, Wanted,
    compute::sizes, reshape,
};

/// What a GPU offers, by its driver's own word; by the catalogue's where the driver does not say (before 550 it does not
/// while MIG mode is off). `None` where neither knows, or the GPU cannot do MIG.
///
/// The board has the GPU's name. How many instances of a profile there can be is what the driver says, or fewer if that many
/// do not fit: of A30 the driver's numbers are wrong.
///
/// # Errors
/// If what the driver says does not fit together.
pub fn board(gpu: &Gpu) -> Result<Option<Board>, BoardError> {
    let Some(mig) = &gpu.mig else { return Ok(None) };
    let known = catalogued(gpu);
    if mig.profiles.is_empty() {
        return Ok(known.cloned());
    }
    let mut profiles: Vec<_> = mig.profiles.iter().collect();
    profiles.sort_by_key(|profile| (profile.slices, profile.memory_mib));
    let engines = |engines: &gpu_core::Engines| Engines {
        decoders: Some(engines.decoders),
        encoders: Some(engines.encoders),
        jpeg: Some(engines.jpeg_engines),
        ofa: Some(engines.ofa_engines),
    };
    let spec = |live: &&gpu_core::GpuInstanceProfile| {
        let known = known.and_then(|board| {
            let mut specs = board.profiles().iter();
            specs.find(|spec| spec.nvml_constant == live.constant)
        });
        let mut placements: Vec<_> = live.placements.iter().copied().map(place).collect();
        if placements.is_empty() {
            placements = known.map(|spec| spec.placements.clone()).unwrap_or_default();
        }
        let fit = u32::try_from(placements.len()).unwrap_or(u32::MAX);
        let most = known.map_or(u32::MAX, |spec| spec.max_instances);
        Some(ProfileSpec {
            profile: profile(&live.name)?,
            nvml_constant: live.constant,
            gpu_instance_profile_id: Some(live.id),
            placements,
            max_instances: live.max_instances.min(fit).min(most),
            memory_mib: Some(live.memory_mib),
            multiprocessors: Some(live.multiprocessors),
            copy_engines: Some(live.engines.copy_engines),
            engines: engines(&live.engines),
            compute: compute(live.slices),
        })
    };
    let specs: Vec<_> = profiles.iter().filter_map(spec).collect();
    let whole = profiles
        .iter()
        .max_by_key(|profile| (profile.slices, profile.engines.decoders));
    let slots = specs.iter().flat_map(|spec| &spec.placements).map(|at| at.end()).max();
    Board::new(BoardSpec {
        name: gpu.name.clone(),
        memory_slots: u8::try_from(slots.unwrap_or(0)).unwrap_or(u8::MAX),
        compute_slices: u8::try_from(whole.map_or(0, |whole| whole.slices)).unwrap_or(u8::MAX),
        engines: whole.map(|whole| engines(&whole.engines)).unwrap_or_default(),
        profiles: specs,
    })
    .map(Some)
}

/// The board of the catalogue with the GPU's PCI id, and of several the one whose memory is nearest.
fn catalogued(gpu: &Gpu) -> Option<&'static Board> {
    let total = gpu.memory.map_or(0, |memory| memory.total_bytes.div_ceil(1 << 30));
    let memory = |board: &Board| {
        let profiles = board.profiles().iter();
        profiles
            .map(|spec| u64::from(spec.profile.memory_gb()))
            .max()
            .unwrap_or(0)
    };
    let boards = Catalogue::builtin()
        .by_pci_device(gpu.pci.id.device)
        .map(|entry| &*entry.board);
    boards.min_by_key(|board| memory(board).abs_diff(total))
}

fn compute(whole: u32) -> Vec<ComputeSpec> {
    let constant = |slices| match slices {
        1..=4 => slices - 1,
        7 => 4,
        8 => 5,
        other => other, // 6
    };
    sizes(whole)
        .map(|slices| ComputeSpec {
            slices,
            nvml_constant: constant(slices),
            max_instances: whole / slices,
        })
        .collect()
}

fn place(at: gpu_core::Placement) -> Placement {
    Placement {
        start: u8::try_from(at.start).unwrap_or(u8::MAX),
        size: u8::try_from(at.size).unwrap_or(u8::MAX),
    }
}

/// The two crates have the same grammar.
pub(crate) fn profile(name: &gpu_core::MigProfile) -> Option<Profile> {
    name.to_string().parse().ok()
}

/// The GPU instances of a GPU, each with what of it is in use.
///
/// A process whose instance the driver does not tell is on all of them.
pub(crate) fn held(gpu: &Gpu, usage: &Usage) -> Vec<Held> {
    let Some(mig) = &gpu.mig else { return Vec::new() };
    let used = usage
        .gpus
        .iter()
        .filter(|used| used.gpu == gpu.uuid)
        .flat_map(|used| &used.processes);
    let used: BTreeSet<_> = used
        .map(|process| (process.gpu_instance, process.compute_instance))
        .collect();
    let uses = |instance: &GpuInstance, compute: u32| {
        used.iter().any(|&(on, at)| {
            on.is_none_or(|on| on == instance.id) && (on.is_none() || at.is_none_or(|at| at == compute))
        })
    };
    let instances = mig.gpu_instances.iter().filter_map(|instance| {
        let profile = profile(instance.profile.as_ref()?)?;
        let mut parts: Vec<_> = instance
            .compute_instances
            .iter()
            .map(|compute| Part {
                start: compute.placement.start,
                slices: compute.placement.size,
                pinned: uses(instance, compute.id),
            })
            .collect();
        parts.sort_unstable();
        Some(Held {
            pinned: parts.iter().any(|part| part.pinned) || uses(instance, u32::MAX),
            compute: Compute::of(&profile, parts),
            instance: Instance {
                placement: place(instance.placement),
                profile,
            },
        })
    });
    instances.collect()
}

/// A plan for some GPUs of a node, and the state that it was made for.
#[derive(Debug, Clone)]
pub struct NodePlan {
    /// The GPUs that were planned, by UUID.
    pub fleet: Fleet,
    /// What to change on them.
    pub plan: Plan,
    /// GPUs whose profiles the driver does not tell while MIG mode is off: their part is by the catalogue. Turn the mode on,
    /// read anew and plan anew.
    pub by_catalogue: BTreeSet<GpuUuid>,
}

/// Why a GPU cannot be what is wanted.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("GPU {index} ({gpu}): {reason}")]
pub struct Refused {
    /// Its index.
    pub index: u32,
    /// Its UUID.
    pub gpu: GpuUuid,
    /// Why.
    pub reason: Reason,
}

/// Why a GPU cannot be what is wanted.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Reason {
    /// There is no plan.
    #[error(transparent)]
    Plan(#[from] PlanError),
    /// What the driver says of the GPU does not fit together.
    #[error(transparent)]
    Board(#[from] BoardError),
    /// Nor do its instances.
    #[error("{}", chained(.0))]
    State(#[from] FleetError),
    /// MIG mode cannot change while processes use the GPU.
    #[error("its MIG mode cannot change while it is in use by {}", .processes.join(", "))]
    InUse {
        /// The processes, by number and name.
        processes: Vec<String>,
    },
    /// The driver does not say what the GPU offers while MIG mode is off, and the catalogue has no GPU of its PCI id.
    #[error("what it can be divided into is not known while MIG mode is off; turn it on first (`--mode-only`)")]
    Unknown,
}

fn chained(error: &FleetError) -> String {
    match error {
        FleetError::Geometry { source, .. } => format!("{error}: {source}"),
        error => error.to_string(),
    }
}

/// The plan that makes each of these GPUs what is wanted of it, at the least cost; or every reason why there is none.
///
/// What `usage` says is in use stays as it is. Nothing depends on another GPU, so one that is refused hides no other.
///
/// # Errors
/// One [`Refused`] for each GPU that cannot be what is wanted, in their order.
pub fn plan_node(
    inventory: &Inventory,
    usage: &Usage,
    wanted: &BTreeMap<GpuUuid, Wanted>,
) -> Result<NodePlan, Vec<Refused>> {
    let mut refused = Vec::new();
    let mut states = Vec::new();
    let mut by_catalogue = BTreeSet::new();
    for gpu in &inventory.gpus {
        let Some(wanted) = wanted.get(&gpu.uuid) else { continue };
        match state(gpu, usage, wanted) {
            Ok((state, live)) => {
                if !live {
                    by_catalogue.insert(gpu.uuid.clone());
                }
                states.extend(state);
            }
            Err(reason) => refused.push(Refused {
                index: gpu.index,
                gpu: gpu.uuid.clone(),
                reason,
            }),
        }
    }
    if !refused.is_empty() {
        return Err(refused);
    }
    let names = wanted.iter().map(|(gpu, wanted)| (gpu.to_string(), wanted.clone()));
    // Each was planned alone, and the GPUs do not depend on each other.
    let whole = |reason: Reason| {
        let gpu = inventory.gpus.iter().find(|gpu| wanted.contains_key(&gpu.uuid));
        gpu.map_or_else(Vec::new, |gpu| {
            vec![Refused {
                index: gpu.index,
                gpu: gpu.uuid.clone(),
                reason,
            }]
        })
    };
    let fleet = Fleet::new(states).map_err(|error| whole(error.into()))?;
    let wanted: BTreeMap<_, _> = names.filter(|(name, _)| fleet.gpu(name).is_some()).collect();
    let plan = reshape(&fleet, &wanted).map_err(|error| whole(error.into()))?;
    Ok(NodePlan {
        fleet,
        plan,
        by_catalogue,
    })
}

/// The state of a GPU that can be planned, `None` for one that has to be left as it is, and whether the driver told all.
fn state(gpu: &Gpu, usage: &Usage, wanted: &Wanted) -> Result<(Option<GpuState>, bool), Reason> {
    let Some(mig) = &gpu.mig else { return Ok((None, true)) };
    let on = *wanted != Wanted::Disabled;
    if mig.enabled != on {
        let used = usage
            .gpus
            .iter()
            .filter(|used| used.gpu == gpu.uuid)
            .flat_map(|used| &used.processes);
        let processes: Vec<_> = used
            .map(|process| match &process.command {
                Some(command) => format!("process {} ({command})", process.pid),
                None => format!("process {}", process.pid),
            })
            .collect();
        if !processes.is_empty() {
            return Err(Reason::InUse { processes });
        }
    }
    let board = match board(gpu)? {
        Some(board) => board,
        None if !on && !mig.enabled => return Ok((None, true)),
        None => return Err(Reason::Unknown),
    };
    let state = GpuState {
        name: gpu.uuid.to_string(),
        board: Arc::new(board),
        mode: if mig.enabled { Mode::Enabled } else { Mode::Disabled },
        instances: held(gpu, usage),
    };
    let alone = Fleet::new([state.clone()])?;
    reshape(&alone, &BTreeMap::from([(state.name.clone(), wanted.clone())]))?;
    Ok((Some(state), !mig.profiles.is_empty()))
}

/// The fleet of all GPUs of a node that can do MIG and whose driver tells how, by UUID; the others are left out.
///
/// # Errors
/// If what the driver says of a GPU does not fit together.
pub fn fleet(inventory: &Inventory, usage: &Usage) -> Result<Fleet, Reason> {
    let mut states = Vec::new();
    for gpu in &inventory.gpus {
        let (Some(mig), Some(board)) = (&gpu.mig, board(gpu)?) else {
            continue;
        };
        states.push(GpuState {
            name: gpu.uuid.to_string(),
            board: Arc::new(board),
            mode: if mig.enabled { Mode::Enabled } else { Mode::Disabled },
            instances: held(gpu, usage),
        });
    }
    Ok(Fleet::new(states)?)
}

impl NodePlan {
    /// The steps for the driver, as of this inventory: each instance at its place.
    ///
    /// # Errors
    /// If the inventory is not the one that was planned with.
    pub fn steps(&self, inventory: &Inventory) -> Result<gpu_core::Plan, StaleError> {
        let checked = self.plan.check(&self.fleet)?;
        Ok(steps(&checked, inventory))
    }
}

/// The steps of a plan, in the driver's terms. What is not there any more is left out: `gpu_core::Plan::check` then
/// refuses what depends on it.
fn steps(plan: &CheckedPlan, inventory: &Inventory) -> gpu_core::Plan {
    let mut steps = Vec::new();
    for step in plan.steps() {
        let name = match step {
            Step::SetMode { gpu, .. }
            | Step::Destroy { gpu, .. }
            | Step::Create { gpu, .. }
            | Step::DestroyCompute { gpu, .. }
            | Step::CreateCompute { gpu, .. } => gpu,
        };
        let found = inventory.gpus.iter().find(|gpu| gpu.uuid.as_str() == name);
        let Some(gpu) = found else { continue };
        let uuid = || gpu.uuid.clone();
        let live = |instance: &Instance| {
            let instances = gpu.mig.iter().flat_map(|mig| &mig.gpu_instances);
            let mut at = instances.filter(|live| place(live.placement) == instance.placement);
            at.next()
        };
        match step {
            Step::SetMode { enabled, .. } => steps.push(gpu_core::Step::SetMode {
                gpu: uuid(),
                enabled: *enabled,
            }),
            Step::Destroy { instance, .. } => {
                let Some(live) = live(instance) else { continue };
                steps.extend(
                    live.compute_instances
                        .iter()
                        .map(|compute| gpu_core::Step::DestroyComputeInstance {
                            gpu: uuid(),
                            gpu_instance: live.id,
                            compute_instance: compute.id,
                        }),
                );
                steps.push(gpu_core::Step::DestroyGpuInstance {
                    gpu: uuid(),
                    gpu_instance: live.id,
                });
            }
            Step::Create { instance, compute, .. } => {
                let Ok(profile) = instance.profile.as_str().parse() else {
                    continue;
                };
                let placement = driver_place(instance.placement);
                steps.push(gpu_core::Step::CreateGpuInstance {
                    gpu: uuid(),
                    profile,
                    placement,
                });
                // In an empty instance the driver puts them where they are planned.
                steps.extend(compute.iter().map(|part| gpu_core::Step::CreateComputeInstance {
                    gpu: uuid(),
                    gpu_instance_at: placement,
                    slices: part.slices,
                    start: None,
                }));
            }
            Step::DestroyCompute { instance, part, .. } => {
                let Some(live) = live(instance) else { continue };
                let same = |compute: &&gpu_core::ComputeInstance| {
                    (compute.placement.start, compute.placement.size) == (part.start, part.slices)
                };
                let compute = live.compute_instances.iter().find(same);
                steps.extend(compute.map(|compute| gpu_core::Step::DestroyComputeInstance {
                    gpu: uuid(),
                    gpu_instance: live.id,
                    compute_instance: compute.id,
                }));
            }
            Step::CreateCompute { instance, part, .. } => steps.push(gpu_core::Step::CreateComputeInstance {
                gpu: uuid(),
                gpu_instance_at: driver_place(instance.placement),
                slices: part.slices,
                start: Some(part.start),
            }),
        }
    }
    gpu_core::Plan { steps }
}

fn driver_place(at: Placement) -> gpu_core::Placement {
    gpu_core::Placement {
        start: at.start.into(),
        size: at.size.into(),
    }
}
