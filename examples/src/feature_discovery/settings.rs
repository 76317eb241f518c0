//! What flags, environment and configuration file mean together, and what of it cannot be.

use std::path::{Path, PathBuf};

use anyhow::bail;
use gpu_labels::{
    gpu_core::nvml::LibrarySearch,
    gpu_sharing::config::{Config, DiscoveryStrategy, Program},
};

use super::arguments::FeatureDiscovery;
use crate::{program::BadUsage, settings::Settings};

/// Whose variables are read.
const PROGRAM: Program = Program::FeatureDiscovery;

impl FeatureDiscovery {
    /// Reads the configuration file and puts it beneath the environment and the flags.
    pub(super) fn settings(&self) -> anyhow::Result<Settings> {
        let settings = self.file.settings(PROGRAM, self.vendor.flags())?;
        self.check(&settings.config)?;
        Ok(settings)
    }

    /// What the configuration file says now; `None` where none is named.
    pub(super) fn config_text(&self) -> anyhow::Result<Option<String>> {
        self.file.text(PROGRAM)
    }

    /// Where the driver's library is looked for.
    pub(super) fn library_search(&self, config: &Config) -> LibrarySearch {
        let root = Path::new(&config.plugin.container_driver_root);
        LibrarySearch {
            library: self.ours.nvml_library.clone(),
            driver_root: Some(if root.is_dir() {
                root.to_owned()
            } else {
                PathBuf::from("/")
            }),
        }
    }

    fn check(&self, config: &Config) -> anyhow::Result<()> {
        if let strategy @ (DiscoveryStrategy::Tegra | DiscoveryStrategy::Vfio) = config.device_discovery_strategy {
            bail!(BadUsage::new(format!(
                "--device-discovery-strategy=`{strategy}` is not supported"
            )));
        }
        if self.ours.pci_labels && !self.ours.node_labels {
            bail!(BadUsage::new(
                "--pci-labels needs --node-labels: elsewhere Node Feature Discovery makes these labels"
            ));
        }
        let api = self.ours.node_labels || config.use_node_feature_api;
        if api && self.cluster.node_name.is_empty() {
            bail!(BadUsage::new(
                "the name of this node is not known: set --node-name or NODE_NAME"
            ));
        }
        Ok(())
    }
}
