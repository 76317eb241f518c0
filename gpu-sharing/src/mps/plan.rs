use std::collections::{BTreeMap, BTreeSet};

use gpu_core::{CudaVersion, Gpu, Inventory, Problem, ProblemKind};
use serde::{Deserialize, Serialize};

use super::{
    Remark, Result, Root, SharedGpu,
    names::{DEVICE_ORDER, LOG_DIRECTORY, PCI_ORDER, PIPE_DIRECTORY, VISIBLE_DEVICES},
};
use crate::config::{Config, ResourceName, SharedResource as Entry, Sharing};

/// What the MPS daemon of a node has to serve.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Plan {
    /// One daemon each, by name. Empty where nothing is shared by MPS.
    pub resources: Vec<SharedResource>,
    /// What is not as the configuration may have meant it.
    pub remarks: Vec<Remark>,
}

/// A resource whose GPUs containers share by MPS, through a daemon of its own.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SharedResource {
    /// The name that pods ask for, renamed if it is so configured.
    pub resource: ResourceName,
    /// Its GPUs, by index.
    pub gpus: Vec<SharedGpu>,
    /// Whether the node has other GPUs too: then the daemon must be kept off those.
    pub partial: bool,
}

/// What is shared by MPS on a node with these GPUs; nothing where the configuration shares otherwise or not at all.
///
/// GPUs that drive displays alone are passed over. Of several entries that name a resource, a GPU goes by the first that
/// selects it.
///
/// # Errors
/// Where a GPU cannot be shared as configured. A GPU that cannot be read is not among these GPUs, and no error; neither is one that
/// the configuration names and the node does not have.
pub fn plan(inventory: &Inventory, config: &Config) -> Result<Plan> {
    let Sharing::Mps(shared) = &config.sharing else {
        return Ok(Plan::default());
    };
    let cuda = inventory.driver.as_ref().and_then(|driver| driver.cuda_version);
    let mut found = Gathered::default();
    let gpus: Vec<_> = inventory.gpus.iter().filter(|gpu| !gpu.is_display_only()).collect();
    for entry in &shared.resources {
        let of_resource: Vec<_> = gpus
            .iter()
            .copied()
            .filter(|gpu| config.gpu_resource(&gpu.name) == entry.name)
            .collect();
        if of_resource.is_empty() {
            found.remarks.push(Remark::NoSuchResource {
                resource: entry.name.clone(),
            });
        }
        found.share(entry, &of_resource, cuda)?;
    }
    Ok(found.plan(gpus.len() + unread(inventory)))
}

/// How many GPUs the node has besides those that were read: a daemon must be kept off them too, and goes on as it is when they go.
fn unread(inventory: &Inventory) -> usize {
    let hidden = |problem: &&Problem| {
        let tells_of_one = inventory.gpus.iter().any(|gpu| problem.hides(gpu));
        problem.kind != ProblemKind::Incomplete && !tells_of_one
    };
    let indices = inventory.problems.iter().filter(hidden).map(|problem| problem.index);
    indices.collect::<BTreeSet<_>>().len()
}

#[derive(Default)]
struct Gathered {
    resources: BTreeMap<ResourceName, Vec<SharedGpu>>,
    remarks: Vec<Remark>,
}

impl Gathered {
    fn share(&mut self, entry: &Entry, gpus: &[&Gpu], cuda: Option<CudaVersion>) -> Result<()> {
        let indices: Vec<_> = gpus.iter().map(|gpu| gpu.index.to_string()).collect();
        let named: Vec<_> = indices
            .iter()
            .map(String::as_str)
            .zip(gpus.iter().map(|gpu| gpu.uuid.as_str()))
            .collect();
        let (selected, missing) = entry.devices.select(&named);
        if !gpus.is_empty() {
            let not_there = |what| Remark::NotThere {
                resource: entry.name.clone(),
                what,
            };
            self.remarks.extend(missing.into_iter().map(not_there));
        }
        for gpu in selected.into_iter().map(|position| gpus[position]) {
            if self.has(gpu) {
                continue;
            }
            let shared = SharedGpu::new(gpu, entry.replicas, cuda)?;
            self.remark(&shared);
            let name = entry.rename.as_ref().unwrap_or(&entry.name);
            self.resources.entry(name.clone()).or_default().push(shared);
        }
        Ok(())
    }

    fn has(&self, gpu: &Gpu) -> bool {
        self.resources.values().flatten().any(|shared| shared.uuid == gpu.uuid)
    }

    fn remark(&mut self, shared: &SharedGpu) {
        let (index, uuid) = (shared.index, shared.uuid.clone());
        match (shared.thread_percentage, shared.memory_limit_mib) {
            (None, _) => self.remarks.push(Remark::NoLimits { index, uuid }),
            (Some(_), None) => self.remarks.push(Remark::NoMemoryLimit { index, uuid }),
            (Some(_), Some(_)) => {}
        }
    }

    fn plan(self, gpus_of_node: usize) -> Plan {
        let resource = |(resource, mut gpus): (_, Vec<SharedGpu>)| {
            gpus.sort_by_key(|gpu| gpu.index);
            let partial = gpus.len() < gpus_of_node;
            SharedResource {
                resource,
                gpus,
                partial,
            }
        };
        Plan {
            resources: self.resources.into_iter().map(resource).collect(),
            remarks: self.remarks,
        }
    }
}

impl SharedResource {
    /// The environment of the daemon, and of the program that sends it commands: this and nothing else.
    ///
    /// CUDA numbers GPUs as NVML does, so that limits are set on the GPU that is meant also where models differ. Of several
    /// daemons each sees its own GPUs alone; one that has all is not told so, as the vendor's is not.
    pub fn daemon_environment(&self, root: &Root) -> BTreeMap<&'static str, String> {
        let path = |path: std::path::PathBuf| path.to_string_lossy().into_owned();
        let mut environment = BTreeMap::from([
            (PIPE_DIRECTORY, path(root.pipe(&self.resource))),
            (LOG_DIRECTORY, path(root.log(&self.resource))),
            (DEVICE_ORDER, PCI_ORDER.to_owned()),
        ]);
        if self.partial {
            let uuids: Vec<_> = self.gpus.iter().map(|gpu| gpu.uuid.as_str()).collect();
            environment.insert(VISIBLE_DEVICES, uuids.join(","));
        }
        environment
    }

    /// The commands that limit the daemon's clients, in the order in which they are sent.
    ///
    /// GPUs go by number, since limits by UUID have no effect (k8s-device-plugin v0.15.0-rc.2, CHANGELOG): by that of NVML, or
    /// by their place among those that the daemon sees.
    pub fn limit_commands(&self) -> Vec<String> {
        let number = |(place, gpu): (usize, &SharedGpu)| {
            if self.partial {
                place.to_string()
            } else {
                gpu.index.to_string()
            }
        };
        let memory = self.gpus.iter().enumerate().filter_map(|(place, gpu)| {
            let limit = gpu.memory_limit_mib?;
            Some(format!(
                "set_default_device_pinned_mem_limit {} {limit}M",
                number((place, gpu))
            ))
        });
        let threads = self
            .default_thread_percentage()
            .map(|percentage| format!("set_default_active_thread_percentage {percentage}"));
        memory.chain(threads).collect()
    }

    /// The share of threads that the daemon gives a client that asks for none: the daemon knows one for all its GPUs, so that
    /// it is the largest. Clients of other GPUs are limited by their own environment. `None` where a GPU cannot limit.
    pub fn default_thread_percentage(&self) -> Option<u32> {
        let shares: Option<Vec<_>> = self.gpus.iter().map(|gpu| gpu.thread_percentage).collect();
        shares?.into_iter().max()
    }

    /// The GPU with a UUID, if it is shared.
    pub fn gpu(&self, uuid: &str) -> Option<&SharedGpu> {
        self.gpus.iter().find(|gpu| gpu.uuid.as_str() == uuid)
    }
}
