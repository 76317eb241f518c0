//! The machine whose GPUs are offered.

use std::{sync::Arc, time::Duration};

use gpu_cdi::{Platform, PlatformSigns};
use gpu_core::{
    Gpu, Inventory, Problem,
    nvml::{Library, Parts},
};
use gpu_sharing::config::DiscoveryStrategy;

use super::NodeConfig;
use crate::Result;

/// What is read of them: which go together is told by the topology.
const PARTS: Parts = Parts {
    topology: true,
    ..Parts::DEVICES
};

/// How long one call about a GPU may keep the others waiting; that it is only late is for its health to tell. A GPU without
/// persistence mode takes a second or two to wake.
const CALL_LIMIT: Duration = Duration::from_secs(5);

/// What a machine is and has, as it was read.
#[derive(Debug, Clone)]
pub(crate) struct Machine {
    pub(crate) platform: Platform,
    /// By which its GPUs are followed; `None` where NVML does not tell them apart.
    pub(crate) library: Option<Arc<Library>>,
    /// What NVML tells; nothing on a Tegra machine without it.
    pub(crate) inventory: Inventory,
}

impl Machine {
    /// Reads it.
    ///
    /// # Errors
    /// Where NVML is needed and fails. The GPU of a Tegra machine needs none.
    pub(crate) fn read(config: &NodeConfig) -> Result<Self> {
        let strategy = config.config.device_discovery_strategy;
        let signs = PlatformSigns::discover(&config.driver_files)?;
        let nvml = nvml(config);
        let listed = nvml.as_ref().ok().map(|(_, inventory)| inventory);
        let platform = platform(strategy, Platform::of(signs, listed));
        match nvml {
            Ok((library, inventory)) => Ok(Self {
                platform,
                library: (platform == Platform::Nvml).then_some(library),
                inventory,
            }),
            // A library that is there and fails may yet say that the machine is another.
            Err(error)
                if platform == Platform::Tegra && (strategy == DiscoveryStrategy::Tegra || is_absent(&error)) =>
            {
                Ok(Self {
                    platform,
                    library: None,
                    inventory: Inventory::default(),
                })
            }
            Err(error) => Err(error.into()),
        }
    }

    /// The same machine, with another reading.
    pub(crate) fn with(&self, inventory: Inventory) -> Self {
        Self {
            platform: self.platform,
            library: self.library.clone(),
            inventory,
        }
    }

    /// The same, and the GPUs that it could not read as they were before: pods that have them go on, and so the kubelet goes on
    /// knowing them. One that is gone without a problem was taken out.
    pub(crate) fn keeping(mut self, before: &Inventory) -> Self {
        let unread = |gpu: &&Gpu| {
            let is_known = self.inventory.gpu(&gpu.uuid).is_some();
            !is_known && self.inventory.problems.iter().any(|problem| problem.hides(gpu))
        };
        let unread: Vec<_> = before.gpus.iter().filter(unread).cloned().collect();
        self.inventory.gpus.extend(unread);
        self.inventory.gpus.sort_by_key(|gpu| gpu.pci.address);
        self
    }

    /// The GPUs that could not be read and are [kept](Self::keeping), and why they could not.
    pub(crate) fn unread(&self) -> impl Iterator<Item = (&Gpu, &Problem)> {
        let gpus = self.inventory.gpus.iter();
        gpus.filter_map(|gpu| Some((gpu, self.inventory.problems.iter().find(|problem| problem.hides(gpu))?)))
    }

    /// What was read, without the GPUs that are kept.
    pub(crate) fn reading(&self) -> Inventory {
        let mut reading = self.inventory.clone();
        reading
            .gpus
            .retain(|gpu| self.unread().all(|(unread, _)| unread.uuid != gpu.uuid));
        reading
    }

    /// The same machine without those of the GPUs that are kept which this later reading neither has nor misses for a reason; none
    /// where it says nothing of that kind.
    pub(crate) fn without_the_gone(&self, later: &Inventory) -> Option<Self> {
        let is_gone = |gpu: &Gpu| {
            let is_kept = self.unread().any(|(unread, _)| unread.uuid == gpu.uuid);
            is_kept && later.gpu(&gpu.uuid).is_none() && !later.problems.iter().any(|problem| problem.hides(gpu))
        };
        let mut left = self.inventory.clone();
        left.gpus.retain(|gpu| !is_gone(gpu));
        left.problems.clone_from(&later.problems);
        (left.gpus.len() < self.inventory.gpus.len()).then(|| self.with(left))
    }

    /// What of the reading is amiss. What NVML does not tell of GPUs that are one device is not missed.
    pub(crate) fn problems(&self) -> impl Iterator<Item = String> {
        let problems = match self.platform {
            Platform::Nvml => self.inventory.problems.as_slice(),
            _ => &[],
        };
        problems.iter().map(ToString::to_string)
    }
}

/// What a machine is taken for. The GPUs of Windows are one device whatever is asked for, as by the vendor's plugin.
fn platform(strategy: DiscoveryStrategy, found: Platform) -> Platform {
    match (strategy, found) {
        (DiscoveryStrategy::Tegra, _) => Platform::Tegra,
        (DiscoveryStrategy::Nvml, Platform::Tegra) => Platform::Nvml,
        (_, found) => found,
    }
}

fn nvml(config: &NodeConfig) -> gpu_core::Result<(Arc<Library>, Inventory)> {
    let library = Library::open(&config.library)?;
    let library = library.with_parts(PARTS).with_call_timeout(CALL_LIMIT);
    let inventory = library.inventory(&config.host_root)?;
    Ok((Arc::new(library), inventory))
}

/// Whether there is no library that the loader takes.
fn is_absent(error: &gpu_core::Error) -> bool {
    matches!(
        error,
        gpu_core::Error::LibraryNotFound { .. } | gpu_core::Error::LibraryUnusable { .. }
    )
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn machine(gpus: &[u32], lost: &[u32]) -> Machine {
        let gpu = |n| {
            json!({
                "index": n, "minor": n, "uuid": format!("GPU-0000000{n}-0000-0000-0000-000000000000"), "name": "x",
                "pci": { "address": format!("0000:{n}a:00.0"), "id": "10de:2335" },
            })
        };
        let problem =
            |n| json!({ "index": n, "kind": "lost", "call": "nvmlDeviceGetHandleByIndex_v2", "message": "x" });
        let gpus: Vec<_> = gpus.iter().map(gpu).collect();
        let problems: Vec<_> = lost.iter().map(problem).collect();
        Machine {
            platform: Platform::Nvml,
            library: None,
            inventory: serde_json::from_value(json!({ "gpus": gpus, "problems": problems })).unwrap(),
        }
    }

    #[test]
    fn a_gpu_that_is_lost_is_kept_until_it_is_taken_out() {
        let indices = |inventory: &Inventory| inventory.gpus.iter().map(|gpu| gpu.index).collect::<Vec<_>>();
        let whole = machine(&[0, 1, 2], &[]);
        let lost = machine(&[0, 2], &[1]).keeping(&whole.inventory);
        assert_eq!(
            (indices(&lost.inventory), indices(&lost.reading())),
            (vec![0, 1, 2], vec![0, 2])
        );
        assert_eq!(lost.unread().map(|(gpu, _)| gpu.index).collect::<Vec<_>>(), [1]);
        // However often the node is read.
        let again = machine(&[0, 2], &[1]).keeping(&lost.inventory);
        assert_eq!(again.inventory, lost.inventory);
        assert!(lost.without_the_gone(&again.reading()).is_none());
        let back = machine(&[0, 1, 2], &[]).keeping(&again.inventory);
        assert_eq!((back.inventory.gpus.len(), back.unread().count()), (3, 0));
        // It was taken out. Of one that had not been lost another tells.
        let gone = machine(&[0], &[]);
        let left = again.without_the_gone(&gone.inventory).unwrap();
        assert_eq!((indices(&left.inventory), left.problems().count()), (vec![0, 2], 0));
        assert_eq!(indices(&gone.keeping(&again.inventory).inventory), [0]);
    }

    #[test]
    fn a_machine_is_taken_for_what_it_is_unless_it_is_asked_for_otherwise() {
        use DiscoveryStrategy::{Auto, Nvml, Tegra};
        for found in [Platform::Nvml, Platform::Tegra, Platform::Wsl] {
            assert_eq!(platform(Auto, found), found);
            assert_eq!(platform(Tegra, found), Platform::Tegra);
        }
        assert_eq!(platform(Nvml, Platform::Nvml), Platform::Nvml);
        assert_eq!(platform(Nvml, Platform::Tegra), Platform::Nvml);
        assert_eq!(platform(Nvml, Platform::Wsl), Platform::Wsl);
    }
}
