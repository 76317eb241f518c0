//! What flags, environment and configuration file mean together.

use std::{
    env,
    path::{Path, PathBuf},
};

use anyhow::{Context, bail};
use gpu_labels::{
    gpu_core::nvml::LibrarySearch,
    gpu_sharing::config::{Config, ConfigFile, DiscoveryStrategy, Flags, Options, Program, Reading},
};

use super::arguments::FeatureDiscovery;
use crate::{config_file, names::feature_discovery as names, program::BadUsage, vendor};

/// What the file, the environment and the flags mean, and what they were read from.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Settings {
    pub(super) config: Config,
    pub(super) warnings: Vec<String>,
    /// The configuration file's text, to see when it changes.
    pub(super) text: Option<String>,
}

impl Settings {
    /// Reads the configuration file and puts it beneath the environment and the flags.
    pub(super) fn read(arguments: &FeatureDiscovery) -> anyhow::Result<Self> {
        let ours = &arguments.ours;
        let environment = env::vars_os()
            .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
            .collect();
        let environment = Flags::from_environment(Program::FeatureDiscovery, &environment).map_err(BadUsage::new)?;
        let text = config_text(arguments)?;
        let reading = if ours.lenient_config {
            Reading::Lenient
        } else {
            Reading::Strict
        };
        let (file, unknown) = ConfigFile::parse(text.as_deref().unwrap_or_default(), reading).with_context(|| {
            format!(
                "cannot use the configuration file `{}`",
                config_path(arguments).display()
            )
        })?;
        let options = Options {
            naming: ours.resource_naming,
        };
        let (config, ignored) = Config::resolve(file, arguments.vendor.flags().or(environment), options);
        config.check(Program::FeatureDiscovery)?;
        if let strategy @ (DiscoveryStrategy::Tegra | DiscoveryStrategy::Vfio) = config.device_discovery_strategy {
            bail!(BadUsage::new(format!(
                "--device-discovery-strategy=`{strategy}` is not supported"
            )));
        }
        if ours.pci_labels && !ours.node_labels {
            bail!(BadUsage::new(
                "--pci-labels needs --node-labels: elsewhere Node Feature Discovery makes these labels"
            ));
        }
        let api = ours.node_labels || config.use_node_feature_api;
        if api && arguments.cluster.node_name.is_empty() {
            bail!(BadUsage::new(
                "the name of this node is not known: set --node-name or NODE_NAME"
            ));
        }
        let warnings = unknown.iter().chain(&ignored).map(ToString::to_string).collect();
        Ok(Self { config, warnings, text })
    }

    /// Where the driver's library is looked for.
    pub(super) fn library_search(&self, arguments: &FeatureDiscovery) -> LibrarySearch {
        let root = Path::new(&self.config.plugin.container_driver_root);
        LibrarySearch {
            library: arguments.ours.nvml_library.clone(),
            driver_root: Some(if root.is_dir() {
                root.to_owned()
            } else {
                PathBuf::from("/")
            }),
        }
    }
}

/// The configuration file; an empty path is none.
fn config_path(arguments: &FeatureDiscovery) -> PathBuf {
    let variable = || vendor::env_or(names::GFD_CONFIG_FILE, &vendor::env(names::CONFIG_FILE));
    arguments.vendor.config_file.clone().unwrap_or_else(variable).into()
}

/// What the configuration file says now; `None` where none is named.
pub(super) fn config_text(arguments: &FeatureDiscovery) -> anyhow::Result<Option<String>> {
    let path = config_path(arguments);
    if path.as_os_str().is_empty() {
        return Ok(None);
    }
    config_file::read(&path).map(Some)
}
