//! GPUs that containers share by MPS: what a container gets, and whether the daemon serves it.

use std::path::PathBuf;

use gpu_core::Inventory;
use gpu_kubelet::device_plugin::{ContainerAllocateResponse, Mount};
use gpu_sharing::{
    config::{Config, ResourceName},
    mps::{self, Remark, Root, SharedResource},
};

use crate::{OfferedDevice, ResourceSet, error::chain};

/// The resources of a node that are shared by MPS.
#[derive(Debug, Clone, PartialEq)]
pub struct Mps {
    resources: Vec<SharedResource>,
    /// The MPS root on the host.
    host_root: String,
    /// The MPS root as it is seen from here.
    root: Root,
}

impl Mps {
    /// What of the offered resources is shared by MPS; `None` where nothing is. What a person should know is added to the
    /// remarks.
    pub(crate) fn of(
        inventory: &Inventory,
        config: &Config,
        resources: &[ResourceSet],
        root: PathBuf,
        remarks: &mut Vec<String>,
    ) -> mps::Result<Option<Self>> {
        let mut offered = inventory.clone();
        offered.gpus.retain(|gpu| {
            let mut devices = resources.iter().flat_map(|set| &set.devices);
            devices.any(|device| device.gpu.as_ref() == Some(&gpu.uuid))
        });
        let plan = mps::plan(&offered, config)?;
        // Of resources that the node does not have the offer has told already.
        let new = |remark: &&Remark| !matches!(remark, Remark::NoSuchResource { .. });
        remarks.extend(plan.remarks.iter().filter(new).map(ToString::to_string));
        Ok((!plan.resources.is_empty()).then(|| Self {
            resources: plan.resources,
            host_root: config.mps_root.clone().unwrap_or_default(),
            root: Root::new(root),
        }))
    }

    /// The names of the resources.
    pub(crate) fn names(&self) -> impl Iterator<Item = &ResourceName> {
        self.resources.iter().map(|resource| &resource.resource)
    }

    /// Adds what a container needs to be a client; nothing where one of its devices is not shared by MPS.
    pub(crate) fn add(&self, answer: &mut ContainerAllocateResponse, name: &ResourceName, devices: &[&OfferedDevice]) {
        let uuids = devices.iter().map(|device| device.uuid.as_str());
        let Some(client) = self
            .resource(name)
            .and_then(|shared| shared.client(uuids, &self.host_root))
        else {
            return;
        };
        for (variable, value) in client.environment {
            answer.envs.insert(variable.to_owned(), value);
        }
        let mount = |mount: mps::Mount| Mount {
            container_path: mount.container_path,
            host_path: mount.host_path,
            read_only: false,
        };
        // In the vendor's order: before those that tell the devices.
        let others = std::mem::take(&mut answer.mounts);
        answer.mounts = client.mounts.into_iter().map(mount).chain(others).collect();
    }

    /// Whether the daemon of a resource serves what is handed out of it; of one that is not shared by MPS there is nothing to
    /// agree on.
    ///
    /// # Errors
    /// Why not, in words.
    pub(crate) fn agreed(&self, name: &ResourceName) -> Result<(), String> {
        let Some(wanted) = self.resource(name) else {
            return Ok(());
        };
        match mps::agreement(&self.root, name) {
            Ok(Some(agreement)) if agreement.covers(wanted) => Ok(()),
            Ok(Some(_)) => Err(format!(
                "the MPS daemon serves {name} otherwise than it is configured here"
            )),
            Ok(None) => Err(format!("no MPS daemon serves {name}")),
            Err(error) => Err(chain(&error)),
        }
    }

    fn resource(&self, name: &ResourceName) -> Option<&SharedResource> {
        self.resources.iter().find(|resource| resource.resource == *name)
    }
}
