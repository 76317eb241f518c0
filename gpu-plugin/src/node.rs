use std::{collections::BTreeSet, path::PathBuf, sync::Arc};

use gpu_cdi::{DiscoverConfig, HookName, Platform};
use gpu_core::{GpuUuid, Inventory, nvml::LibrarySearch, ownership::OwnerFile};
use gpu_sharing::config::Config;

use crate::{Affinity, GpuChoice, HealthPolicy, How, Mps, Offer, OfferedDevice, ResourceSet, Result, offer};

use self::{answers::Prepared, cdi::CdiFiles, footing::Footing};
pub(crate) use self::{machine::Machine, owners::Claims};

mod answers;
mod cdi;
mod footing;
mod machine;
mod owners;

/// How the GPUs of a node are offered.
#[derive(Debug, Clone, PartialEq)]
pub struct NodeConfig {
    /// The vendor's settings. Default: those of an empty configuration file.
    pub config: Config,
    /// Which GPUs are offered. Default: all.
    pub choice: GpuChoice,
    /// Where the driver library is. Default: wherever the loader finds it.
    pub library: LibrarySearch,
    /// Where the host's `/sys` and `/proc` are. Default: `/`.
    pub host_root: PathBuf,
    /// Which events make a GPU unhealthy, and when it is healthy again.
    pub health: HealthPolicy,
    /// The folder for CDI files, written if containers are told by CDI names. Default: `/var/run/cdi`.
    pub cdi_dir: PathBuf,
    /// Where the driver's files and device nodes are.
    pub driver_files: DiscoverConfig,
    /// Hooks to leave out of CDI files. Default: none.
    pub disabled_hooks: BTreeSet<HookName>,
    /// Whether CDI files have a container's process join the group of a device node that only its group may use. Default: yes.
    pub additional_gids: bool,
    /// Whether CDI files mount the sockets of the driver's daemons. Default: yes.
    pub ipc_sockets: bool,
    /// Whether the devices of CDI files say whether a GPU's memory is coherent with the processor's. Default: no.
    pub coherent_annotations: bool,
    /// Where the MPS root is seen from here. Default: `/mps`.
    pub mps_root: PathBuf,
    /// Where the programs of the node agree who may offer which GPU. Default: nowhere.
    pub owners: Option<OwnerFile>,
}

impl Default for NodeConfig {
    fn default() -> Self {
        Self {
            config: Config::default(),
            choice: GpuChoice::default(),
            library: LibrarySearch::default(),
            host_root: PathBuf::from("/"),
            health: HealthPolicy::default(),
            cdi_dir: PathBuf::from("/var/run/cdi"),
            driver_files: DiscoverConfig::default(),
            disabled_hooks: BTreeSet::new(),
            additional_gids: true,
            ipc_sockets: true,
            coherent_annotations: false,
            mps_root: PathBuf::from(gpu_sharing::mps::names::CONTAINER_ROOT),
            owners: None,
        }
    }
}

impl NodeConfig {
    /// Whether the same machine is read by it.
    pub(crate) fn reads_the_same(&self, other: &Self) -> bool {
        let strategy = |config: &Self| config.config.device_discovery_strategy;
        self.library == other.library
            && self.host_root == other.host_root
            && self.driver_files == other.driver_files
            && strategy(self) == strategy(other)
    }
}

/// The GPUs of this node as they are offered.
#[derive(Debug)]
pub struct Node {
    machine: Machine,
    resources: Vec<ResourceSet>,
    how: How,
    remarks: Vec<String>,
    /// None where nobody is asked.
    claims: Option<Claims>,
    footing: Footing,
}

impl Node {
    /// Reads the GPUs, claims them, and writes the CDI files if they are needed. Files and NVML tell what the machine is
    /// ([`Platform::of`]), unless the configuration says it.
    ///
    /// What cannot be read or offered is in [`problems`](Self::problems); the rest is offered, which may be nothing: then no
    /// file is written. This calls the driver and may take its time: run it off the async runtime.
    ///
    /// # Errors
    /// Where the node as a whole cannot be read, or not be offered as it is configured, or its CDI file not be written. Owners and CDI
    /// files are then as they were.
    pub fn discover(config: &NodeConfig) -> Result<Self> {
        Self::of(Machine::read(config)?, config)
    }

    /// The same, of a node that was read before: GPUs that cannot be read now stay as they were.
    ///
    /// # Errors
    /// As [`discover`](Self::discover).
    pub(crate) fn discover_after(before: &Inventory, config: &NodeConfig) -> Result<Self> {
        Self::of(Machine::read(config)?.keeping(before), config)
    }

    /// What is offered of this machine; claims the GPUs and writes the CDI files, once nothing refuses it any more.
    ///
    /// # Errors
    /// As [`discover`](Self::discover).
    pub(crate) fn of(machine: Machine, config: &NodeConfig) -> Result<Self> {
        let offer = offer(machine.platform, &machine.inventory, &config.config, &config.choice)?;
        // Owners are of single GPUs.
        let owners = config.owners.as_ref().filter(|_| machine.platform == Platform::Nvml);
        let mut claims = owners.map(|owners| Claims::read(owners, gpus(&offer.resources)));
        let mut planned = Planned::of(&machine, config, &offer, claims.as_ref())?;
        if let Some(claims) = &mut claims {
            while !claims.take(&gpus(&planned.resources)) {
                planned = Planned::of(&machine, config, &offer, Some(claims))?;
            }
        }
        if let Err(error) = planned.cdi_files.write() {
            claims.iter().for_each(Claims::take_back);
            return Err(error);
        }
        let mut remarks: Vec<String> = offer.remarks.iter().map(ToString::to_string).collect();
        if let Some(claims) = &mut claims {
            claims.keep(&gpus(&planned.resources));
            remarks.extend(claims.remarks());
        }
        remarks.extend(planned.remarks);
        Ok(Self {
            machine,
            resources: planned.resources,
            how: planned.how,
            remarks,
            claims,
            footing: planned.footing,
        })
    }

    /// Offers no more than this inventory has of what is offered.
    pub(crate) fn shrink(&mut self, inventory: Inventory) {
        let is_there = |device: &OfferedDevice| match device.uuid.parse() {
            Ok(mig) => inventory.mig_device(&mig).is_some(),
            Err(_) => device.gpu.as_ref().is_some_and(|gpu| inventory.gpu(gpu).is_some()),
        };
        retain(&mut self.resources, is_there);
        self.machine.inventory = inventory;
    }

    /// What the machine is.
    pub fn platform(&self) -> Platform {
        self.machine.platform
    }

    /// What NVML tells of it; nothing on a Tegra machine without NVML.
    pub fn inventory(&self) -> &Inventory {
        &self.machine.inventory
    }

    /// How it was read.
    pub(crate) fn machine(&self) -> &Machine {
        &self.machine
    }

    /// What was agreed on with the other owners of GPUs; none where nobody is asked.
    pub(crate) fn claims(&mut self) -> &mut Option<Claims> {
        &mut self.claims
    }

    /// Whether device nodes and CDI files are as they were when it was put in force.
    pub(crate) fn stands(&self) -> bool {
        self.footing.holds()
    }

    /// What is offered, by name.
    pub fn resources(&self) -> &[ResourceSet] {
        &self.resources
    }

    /// How it is handed out.
    pub fn how(&self) -> &How {
        &self.how
    }

    /// Whether there is no GPU to offer.
    pub fn is_empty(&self) -> bool {
        self.resources.is_empty()
    }

    /// What a person should know of this node, in words: which GPUs are not offered and why, and what of the driver's files
    /// cannot be read. The inventory's own problems are not among it.
    pub fn remarks(&self) -> &[String] {
        &self.remarks
    }

    /// All that is amiss: the inventory's problems, where NVML tells GPUs apart, and the [`remarks`](Self::remarks).
    pub fn problems(&self) -> Vec<String> {
        self.machine.problems().chain(self.remarks.iter().cloned()).collect()
    }
}

/// What is to be offered, before anything is claimed or written.
struct Planned {
    resources: Vec<ResourceSet>,
    how: How,
    remarks: Vec<String>,
    cdi_files: CdiFiles,
    footing: Footing,
}

impl Planned {
    /// Of these resources what others do not claim.
    fn of(machine: &Machine, config: &NodeConfig, offer: &Offer, claims: Option<&Claims>) -> Result<Self> {
        let mut resources = offer.resources.clone();
        let mut remarks = Vec::new();
        let refuses = |gpu: &GpuUuid| claims.is_some_and(|claims| claims.refuses(gpu));
        retain(&mut resources, |device| !device.gpu.as_ref().is_some_and(refuses));
        let Prepared {
            answers,
            cdi_files,
            footing,
        } = answers::prepare(machine, config, &mut resources, &mut remarks)?;
        let mps = Mps::of(
            &machine.inventory,
            &config.config,
            &resources,
            config.mps_root.clone(),
            &mut remarks,
        )?;
        let how = How {
            answers: Arc::new(answers),
            mps: mps.map(Arc::new),
            affinity: Arc::new(Affinity::of(&machine.inventory)),
            policy: config.config.plugin.shared_devices_allocation_policy,
        };
        Ok(Self {
            resources,
            how,
            remarks,
            cdi_files,
            footing,
        })
    }
}

/// The GPUs that devices are offered of, each once.
fn gpus(resources: &[ResourceSet]) -> Vec<GpuUuid> {
    let gpus: BTreeSet<_> = resources
        .iter()
        .flat_map(|set| &set.devices)
        .filter_map(|device| device.gpu.as_ref())
        .collect();
    gpus.into_iter().cloned().collect()
}

/// Keeps these devices, and the resources that have any left.
fn retain(resources: &mut Vec<ResourceSet>, keep: impl Fn(&OfferedDevice) -> bool) {
    for set in resources.iter_mut() {
        set.devices.retain(&keep);
    }
    resources.retain(|set| !set.is_empty());
}
