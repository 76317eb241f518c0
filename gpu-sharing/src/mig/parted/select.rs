use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
};

use gpu_core::{Gpu, GpuUuid, Inventory, Problem, ProblemKind, Usage};

use super::{Config, Devices, Note};
use crate::mig::{Compute, Demand, Held, Wanted, live};

/// What a configuration asks of the GPUs of one node.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Selection {
    /// By GPU; those that are not here are left as they are.
    pub wanted: BTreeMap<GpuUuid, Wanted>,
    /// What the configuration names and this node lacks, in the order of the file.
    pub notes: Vec<Note>,
}

/// Why a configuration cannot be for this node.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SelectError {
    /// An entry may be about GPUs that cannot be read: what they are like, and whether that is as wanted, is not known.
    #[error("configuration `{config}`: {}", .problems.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "))]
    Unreadable {
        /// The configuration.
        config: String,
        /// What the driver says of the GPUs.
        problems: Vec<Problem>,
    },
    /// MIG mode is asked for, and no GPU has it.
    #[error("configuration `{config}`: this node has no GPU that can do MIG")]
    NoMig {
        /// The configuration.
        config: String,
    },
    /// MIG mode is asked for of a GPU that does not have it.
    #[error("configuration `{config}`: GPU {index} ({name}) cannot do MIG")]
    NotCapable {
        /// The configuration.
        config: String,
        /// The GPU's index.
        index: u32,
        /// Its model.
        name: String,
    },
    /// No entry is about any GPU of the node.
    #[error("configuration `{config}` is for none of the GPUs of this node ({})", gpus.join(", "))]
    NoMatch {
        /// The configuration.
        config: String,
        /// The GPUs.
        gpus: Vec<String>,
    },
}

/// A GPU that is not what is wanted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Difference {
    /// Its index.
    pub index: u32,
    /// Whether its MIG mode is another.
    pub mode: bool,
    /// What is wanted, and what there is.
    text: String,
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "GPU {}: {}", self.index, self.text)
    }
}

impl Config<'_> {
    /// What the configuration asks of each GPU of a node.
    ///
    /// # Errors
    /// If MIG is asked of GPUs that cannot do it, no entry is about any GPU, or one may be about a GPU that cannot be read.
    pub fn select(&self, inventory: &Inventory) -> Result<Selection, SelectError> {
        let config = || self.name.to_owned();
        let mut selection = Selection::default();
        let problems = inventory.problems.iter().filter(|problem| hides_mig(problem));
        let problems = problems.filter(|problem| self.specs.iter().any(|spec| spec.devices.contains(problem.index)));
        let problems: Vec<_> = problems.cloned().collect();
        if !problems.is_empty() {
            return Err(SelectError::Unreadable {
                config: config(),
                problems,
            });
        }
        let capable = inventory.gpus.iter().any(|gpu| gpu.mig.is_some());
        if !capable && self.specs.iter().any(|spec| spec.mig_enabled) {
            return Err(SelectError::NoMig { config: config() });
        }
        let (mut about, mut left_out) = (BTreeSet::new(), BTreeSet::new());
        for spec in self.specs {
            if let Devices::Indices(indices) = &spec.devices {
                let missing = indices.iter().filter(|index| find(inventory, **index).is_none());
                let indices: Vec<_> = missing.copied().collect();
                if !indices.is_empty() {
                    selection.notes.push(Note::NoSuchIndex { indices });
                }
            }
            for gpu in inventory.gpus.iter().filter(|gpu| spec.devices.contains(gpu.index)) {
                let (index, name) = (gpu.index, gpu.name.clone());
                let named = spec.devices != Devices::All;
                if !spec.lets_through(gpu) {
                    if named {
                        selection.notes.push(Note::Filtered { index, name });
                    } else {
                        left_out.insert(index);
                    }
                    continue;
                }
                about.insert(index);
                if gpu.mig.is_none() {
                    match (spec.mig_enabled, named) {
                        (true, true) => {
                            return Err(SelectError::NotCapable {
                                config: config(),
                                index,
                                name,
                            });
                        }
                        (true, false) => selection.notes.push(Note::NotCapable { index, name }),
                        (false, _) => {} // it has no MIG mode that could be on
                    }
                    continue;
                }
                let before = selection.wanted.insert(gpu.uuid.clone(), spec.wanted());
                if before.is_some_and(|before| before != spec.wanted()) {
                    selection.notes.push(Note::Overruled { index });
                }
            }
        }
        if about.is_empty() {
            return Err(SelectError::NoMatch {
                config: config(),
                gpus: inventory.gpus.iter().map(|gpu| gpu.name.clone()).collect(),
            });
        }
        let indices: Vec<_> = left_out.difference(&about).copied().collect();
        if !indices.is_empty() {
            selection.notes.push(Note::LeftOut { indices });
        }
        Ok(selection)
    }
}

/// Whether it is not known for this problem how a GPU is divided: it is not in the list, or its mode or instances are missing.
fn hides_mig(problem: &Problem) -> bool {
    const CALLS: [&str; 5] = [
        "nvmlDeviceGetMigMode",
        "nvmlDeviceGetGpuInstances",
        "nvmlGpuInstanceGetInfo",
        "nvmlGpuInstanceGetComputeInstances",
        "nvmlComputeInstanceGetInfo_v2",
    ];
    problem.kind != ProblemKind::Incomplete || CALLS.contains(&problem.call.as_str())
}

fn find(inventory: &Inventory, index: u32) -> Option<&Gpu> {
    inventory.gpus.iter().find(|gpu| gpu.index == index)
}

impl Selection {
    /// These GPUs as they are, every place included: what takes a change of them back.
    pub fn as_is<'a>(gpus: impl IntoIterator<Item = &'a Gpu>) -> Self {
        let wanted = gpus.into_iter().filter_map(|gpu| {
            let wanted = if gpu.mig.as_ref()?.enabled {
                Wanted::Exactly(live::held(gpu, &Usage::default()))
            } else {
                Wanted::Disabled
            };
            Some((gpu.uuid.clone(), wanted))
        });
        Self {
            wanted: wanted.collect(),
            notes: Vec::new(),
        }
    }

    /// The GPUs that are not what is wanted; none if the configuration is applied.
    pub fn differs(&self, inventory: &Inventory) -> Vec<Difference> {
        let gpus = inventory.gpus.iter();
        gpus.filter_map(|gpu| difference(gpu, self.wanted.get(&gpu.uuid)?))
            .collect()
    }

    /// The same for MIG mode alone.
    pub fn mode_differs(&self, inventory: &Inventory) -> Vec<Difference> {
        let mut found = self.differs(inventory);
        found.retain(|difference| difference.mode);
        found
    }

    /// MIG mode alone: what is wanted, with the instances that are there.
    #[must_use]
    pub fn mode_only(&self, inventory: &Inventory) -> Self {
        let keep = |gpu: &Gpu| Wanted::Exactly(live::held(gpu, &Usage::default()));
        let wanted = self.wanted.iter().map(|(uuid, wanted)| match inventory.gpu(uuid) {
            Some(gpu) if *wanted != Wanted::Disabled => (uuid.clone(), keep(gpu)),
            _ => (uuid.clone(), wanted.clone()),
        });
        Self {
            wanted: wanted.collect(),
            notes: self.notes.clone(),
        }
    }
}

fn difference(gpu: &Gpu, wanted: &Wanted) -> Option<Difference> {
    let mig = gpu.mig.as_ref()?;
    let on = *wanted != Wanted::Disabled;
    let word = |on| if on { "on" } else { "off" };
    let pending = if mig.pending_enabled == on && mig.enabled != on {
        " until a reset"
    } else {
        ""
    };
    let mode = mig.enabled != on;
    let text = if mode {
        format!("MIG mode is to be {} and is {}{pending}", word(on), word(mig.enabled))
    } else {
        let held = live::held(gpu, &Usage::default());
        let (wanted, found) = match wanted {
            Wanted::Disabled => return None,
            Wanted::Instances(demand) => (demand.to_string(), devices(&held).to_string()),
            Wanted::Exactly(wanted) => (layout(wanted), layout(&held)),
        };
        let unusable = held.iter().find(|held| held.compute == Compute::Parts(Vec::new()));
        match unusable {
            Some(held) => format!("`{}` has no compute instance, so that nobody can use it", held.instance),
            None if wanted == found => return None,
            None => format!("is to have {wanted} and has {found}"),
        }
    };
    Some(Difference {
        index: gpu.index,
        mode,
        text,
    })
}

/// The MIG devices by profile.
pub(super) fn devices(held: &[Held]) -> Demand {
    let name = |held: &Held, slices: u32| {
        let whole = held.instance.profile.slices();
        if slices == whole {
            return Some(held.instance.profile.clone());
        }
        format!("{slices}c.{}", held.instance.profile).parse().ok()
    };
    let all = held
        .iter()
        .flat_map(|held| held.parts().into_iter().filter_map(move |part| name(held, part.slices)));
    all.map(|profile| (profile, 1)).collect()
}

fn layout(held: &[Held]) -> String {
    let mut places: Vec<_> = held
        .iter()
        .map(|held| {
            let parts: Vec<_> = held.parts().iter().map(|part| format!("{}c", part.slices)).collect();
            match held.compute {
                Compute::Whole => held.instance.to_string(),
                Compute::Parts(_) => format!("{} ({})", held.instance, parts.join(" + ")),
            }
        })
        .collect();
    places.sort();
    if places.is_empty() {
        "nothing".to_owned()
    } else {
        places.join(", ")
    }
}
