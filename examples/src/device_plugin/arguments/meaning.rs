//! What the arguments and the settings come to.

use std::path::{Path, PathBuf};

use anyhow::ensure;
use gpu_plugin::{
    GpuChoice, HealthPolicy, NodeConfig, Sockets,
    gpu_core::{
        nvml::LibrarySearch,
        ownership::{self, OwnerFile},
    },
    names::{DISABLE_HEALTHCHECKS, ENABLE_HEALTHCHECKS},
};
use gpu_sharing::config::{Config, Interval};

use super::DevicePlugin;
use crate::{cdi_feature::CdiFeature, driver_files::driver_files, vendor};

/// Where manifests mount the driver root.
const USUAL_DRIVER_ROOT: &str = "/driver-root";

impl DevicePlugin {
    /// How the node is offered with these settings.
    pub(in crate::device_plugin) fn node_config(&self, config: &Config) -> anyhow::Result<NodeConfig> {
        let root_here = driver_root_here(config, Path::new(USUAL_DRIVER_ROOT))?;
        let feature = |wanted| self.cdi_feature_flags.contains(&wanted);
        let mut driver_files = driver_files(&root_here, &self.host_root);
        driver_files.explicit_libraries = feature(CdiFeature::ExplicitLibraries);
        Ok(NodeConfig {
            config: config.clone(),
            choice: GpuChoice {
                include: self.include_gpus.clone(),
                exclude: self.exclude_gpus.clone(),
            },
            library: LibrarySearch {
                library: self.nvml_library.clone(),
                driver_root: Some(root_here.clone()),
            },
            host_root: self.host_root.clone(),
            health: self.health_policy(),
            cdi_dir: self.cdi_dir.clone(),
            driver_files,
            disabled_hooks: self.cdi_disable_hooks.clone(),
            additional_gids: !feature(CdiFeature::NoAdditionalGids),
            ipc_sockets: !feature(CdiFeature::NoIpcSockets),
            coherent_annotations: feature(CdiFeature::CoherentAnnotations),
            mps_root: self.mps_dir.clone(),
            owners: self.owners(),
        })
    }

    fn health_policy(&self) -> HealthPolicy {
        let (policy, _) = vendors_policy();
        let mut policy = policy.with_classes(self.xid_classes.0.clone());
        policy.quiet = match self.health_quiet_period {
            Interval::Every(time) => time,
            Interval::Infinite => std::time::Duration::MAX,
        };
        policy
    }

    /// Where plugins serve and register.
    pub(in crate::device_plugin) fn sockets(&self) -> Sockets {
        let usual = || Some(kubelet_folder(&self.kubelet_socket)?.join("pod-resources/kubelet.sock"));
        let given = self.pod_resources_socket.clone();
        Sockets {
            kubelet: self.kubelet_socket.clone(),
            pod_resources: given.or_else(usual).filter(|path| !path.as_os_str().is_empty()),
        }
    }

    fn owners(&self) -> Option<OwnerFile> {
        let usual = || self.host_root.join(ownership::FILE);
        let path = self.owners_file.clone().unwrap_or_else(usual);
        let file = (!path.as_os_str().is_empty()).then(|| OwnerFile::new(path))?;
        match kubelet_folder(&self.kubelet_socket) {
            Some(folder) => Some(file.kubelet(folder)),
            None => Some(file),
        }
    }
}

/// The policy of the vendor's variables, and words in them that mean nothing.
fn vendors_policy() -> (HealthPolicy, Vec<String>) {
    HealthPolicy::new(&vendor::env(DISABLE_HEALTHCHECKS), &vendor::env(ENABLE_HEALTHCHECKS))
}

/// Says which words of the vendor's variables mean nothing; they stay the same as long as the program runs.
pub(in crate::device_plugin) fn say_unknown_xids() {
    for word in vendors_policy().1 {
        tracing::warn!("`{word}` in {DISABLE_HEALTHCHECKS} or {ENABLE_HEALTHCHECKS} is no Xid and has no effect");
    }
}

/// Where the driver root is seen from here. A driver in another root than `/` that is not mounted must not be mistaken for one
/// in `/`.
pub(in crate::device_plugin) fn driver_root_here(config: &Config, usual: &Path) -> anyhow::Result<PathBuf> {
    let here = match config.plugin.container_driver_root.as_str() {
        "" | USUAL_DRIVER_ROOT => usual,
        path => Path::new(path),
    };
    if here == usual && !here.is_dir() && config.nvidia_driver_root == "/" {
        return Ok(PathBuf::from("/"));
    }
    ensure!(
        here.is_dir(),
        "the driver root `{}` of the host is not seen here: there is no folder `{}`; mount it there, or set \
         DRIVER_ROOT_CTR_PATH to where it is",
        config.nvidia_driver_root,
        here.display(),
    );
    Ok(here.to_owned())
}

/// Where the kubelet has its files, if the socket is in the usual folder of them.
fn kubelet_folder(socket: &Path) -> Option<PathBuf> {
    socket.parent()?.parent().map(PathBuf::from)
}
