//! A simulated node, and the files around it.

use std::{fs, path::PathBuf};

use gpu_plugin::{
    NodeConfig,
    gpu_cdi::{DeviceRule, DiscoverConfig},
    gpu_core,
    gpu_kubelet::double::{Config, Kubelet},
    gpu_sharing::config::{Config as Settings, DeviceListStrategy},
    names::CDI_FILE,
};
use gpu_sim::NodeSpec;
use tempfile::TempDir;

/// A simulated node with 4 GPUs, and where its plugin writes.
pub(super) struct Place {
    pub(super) dir: TempDir,
    pub(super) node: gpu_sim::Node,
}

impl Place {
    pub(super) fn new() -> Self {
        Self::with(&NodeSpec::new("h100").gpus(4))
    }

    pub(super) fn with(spec: &NodeSpec) -> Self {
        let dir = TempDir::new().expect("a temporary directory");
        let node = gpu_sim::Node::create(spec, dir.path().join("node")).expect("a simulated node");
        Self { dir, node }
    }

    pub(super) fn config(&self) -> NodeConfig {
        let root = self.node.root();
        let mut driver_files = DiscoverConfig::new(&root);
        driver_files.sys_root.clone_from(&root);
        driver_files.device_rule = DeviceRule::AnyFile; // only root can make device nodes
        let mut settings = Settings::default();
        settings.plugin.device_list_strategy = vec![DeviceListStrategy::CdiCri];
        NodeConfig {
            config: settings,
            library: gpu_core::nvml::LibrarySearch {
                library: Some(self.node.library()),
                driver_root: None,
            },
            host_root: root,
            cdi_dir: self.dir.path().join("cdi"),
            driver_files,
            ..NodeConfig::default()
        }
    }

    pub(super) fn patient(&self) -> NodeConfig {
        let mut config = self.config();
        config.config.fail_on_init_error = false;
        config
    }

    pub(super) fn cdi_dir(&self) -> PathBuf {
        self.dir.path().join("cdi")
    }

    /// What the driver tells of the node.
    pub(super) fn inventory(&self) -> gpu_core::Inventory {
        let search = self.config().library;
        let library = gpu_core::nvml::Library::open(&search).expect("the simulated library");
        library.inventory(&self.node.root()).expect("a simulated node")
    }

    pub(super) fn cdi_file(&self) -> PathBuf {
        self.dir.path().join("cdi").join(CDI_FILE)
    }

    /// What is in the folder for CDI files, half-written ones too.
    pub(super) fn cdi_files(&self) -> usize {
        fs::read_dir(self.dir.path().join("cdi")).map_or(0, Iterator::count)
    }

    pub(super) async fn kubelet(&self) -> Kubelet {
        Kubelet::start(Config::in_dir(self.dir.path().join("kubelet")))
            .await
            .expect("the kubelet double starts")
    }
}
