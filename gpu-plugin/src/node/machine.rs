//! The machine whose GPUs are offered.

use std::{sync::Arc, time::Duration};

use gpu_cdi::{Platform, PlatformSigns};
use gpu_core::{
    Inventory,
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
    use super::*;

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
