//! What a container is told of its devices: values in, an answer out.

use gpu_kubelet::device_plugin::{CdiDevice, ContainerAllocateResponse, DeviceSpec, Mount};
use gpu_sharing::config::{DeviceIdStrategy, DeviceListStrategy};

use crate::{OfferedDevice, names};

/// How containers are told their devices.
///
/// The answers are those of the vendor's plugin (k8s-device-plugin v0.20.0, `internal/plugin/server.go`), in a fixed order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answers {
    /// In which ways, all of them.
    pub lists: Vec<DeviceListStrategy>,
    /// By which name.
    pub ids: DeviceIdStrategy,
    /// The prefix of CDI annotations.
    pub annotation_prefix: String,
    /// The variables that ask the vendor's container runtime for more: `NVIDIA_GDS` and the like, each `enabled`.
    pub gates: Vec<&'static str>,
    /// CDI devices that every container gets besides: `k8s.device-plugin.nvidia.com/gds=all` and the like.
    pub companions: Vec<String>,
    /// The IMEX channels that every container gets.
    pub imex_channels: Vec<u32>,
    /// Device nodes, if they are listed too and some other way than CDI is used.
    pub nodes: Option<NodePaths>,
}

/// Where device nodes are.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NodePaths {
    /// The device root on the host, whose `dev` holds them.
    pub host_root: String,
    /// Those that every container gets, as far as they exist.
    pub control: Vec<String>,
    /// Those of MIG instances, by the UUID of the MIG device.
    pub capabilities: std::collections::BTreeMap<String, Vec<String>>,
}

impl Answers {
    /// The answer for these devices; one that is named twice is given once, in the place where it was first named.
    ///
    /// `nonce` makes the annotation's key one of its own, so that those of several resources can stand in one container.
    pub fn answer(&self, devices: &[&OfferedDevice], nonce: impl FnOnce() -> String) -> ContainerAllocateResponse {
        let devices = without_twins(devices);
        let told: Vec<&str> = devices.iter().map(|device| self.told(device)).collect();
        let mut answer = ContainerAllocateResponse::default();
        self.add_cdi(&mut answer, &told, nonce);
        for gate in &self.gates {
            answer.envs.insert((*gate).to_owned(), names::ENABLED.to_owned());
        }
        if self.uses(DeviceListStrategy::EnvVar) {
            answer.envs.insert(names::VISIBLE_DEVICES.to_owned(), told.join(","));
            if !self.imex_channels.is_empty() {
                answer
                    .envs
                    .insert(names::IMEX_CHANNELS.to_owned(), self.channels().join(","));
            }
        }
        if self.uses(DeviceListStrategy::VolumeMounts) {
            self.add_mounts(&mut answer, &told);
        }
        // A container of CDI's gets its nodes from there.
        let beside_cdi = [DeviceListStrategy::EnvVar, DeviceListStrategy::VolumeMounts];
        if let Some(nodes) = &self.nodes
            && beside_cdi.into_iter().any(|list| self.uses(list))
        {
            answer.devices = nodes.specs(&devices, &self.imex_channels);
        }
        answer
    }

    /// What a container is told of one device.
    pub fn told<'a>(&self, device: &'a OfferedDevice) -> &'a str {
        match self.ids {
            DeviceIdStrategy::Uuid => &device.uuid,
            DeviceIdStrategy::Index => &device.index,
        }
    }

    fn uses(&self, list: DeviceListStrategy) -> bool {
        self.lists.contains(&list)
    }

    fn channels(&self) -> Vec<String> {
        self.imex_channels.iter().map(ToString::to_string).collect()
    }

    fn add_cdi(&self, answer: &mut ContainerAllocateResponse, told: &[&str], nonce: impl FnOnce() -> String) {
        let gpus = told.iter().map(|name| format!("{}={name}", names::CDI_KIND));
        let channels = self.imex_channels.iter();
        let channels = channels.map(|channel| format!("{}={channel}", names::IMEX_CDI_KIND));
        let names: Vec<_> = gpus.chain(channels).chain(self.companions.iter().cloned()).collect();
        if names.is_empty() {
            return;
        }
        if self.uses(DeviceListStrategy::CdiAnnotations) {
            let key = format!("{}{}_{}", self.annotation_prefix, names::ANNOTATION_PLUGIN, nonce());
            answer.annotations.insert(key, names.join(","));
        }
        if self.uses(DeviceListStrategy::CdiCri) {
            answer.cdi_devices = names.into_iter().map(|name| CdiDevice { name }).collect();
        }
    }

    fn add_mounts(&self, answer: &mut ContainerAllocateResponse, told: &[&str]) {
        let folder = names::DEVICES_FOLDER;
        answer.envs.insert(names::VISIBLE_DEVICES.to_owned(), folder.to_owned());
        let devices = told.iter().map(|name| format!("{folder}/{name}"));
        let channels = self
            .imex_channels
            .iter()
            .map(|channel| format!("{folder}/imex/{channel}"));
        let mount = |container_path| Mount {
            container_path,
            host_path: "/dev/null".to_owned(),
            read_only: false,
        };
        answer.mounts = devices.chain(channels).map(mount).collect();
    }
}

impl NodePaths {
    fn specs(&self, devices: &[&OfferedDevice], channels: &[u32]) -> Vec<DeviceSpec> {
        let mut paths = self.control.clone();
        for device in devices {
            paths.extend(device.node.clone());
            paths.extend(self.capabilities.get(&device.uuid).into_iter().flatten().cloned());
        }
        paths.extend(channels.iter().map(|channel| format!("{}{channel}", names::IMEX_NODE)));
        // Two MIG devices of one GPU share its node.
        let mut specs: Vec<DeviceSpec> = Vec::with_capacity(paths.len());
        for path in paths {
            if specs.iter().all(|spec| spec.container_path != path) {
                specs.push(DeviceSpec {
                    host_path: format!("{}{path}", self.host_root.trim_end_matches('/')),
                    container_path: path,
                    permissions: "rw".to_owned(),
                });
            }
        }
        specs
    }
}

fn without_twins<'a>(devices: &[&'a OfferedDevice]) -> Vec<&'a OfferedDevice> {
    let mut left: Vec<&OfferedDevice> = Vec::with_capacity(devices.len());
    for device in devices {
        if left.iter().all(|known| known.uuid != device.uuid) {
            left.push(device);
        }
    }
    left
}

#[cfg(test)]
mod tests;
