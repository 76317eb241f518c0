use gpu_core::{Gpu, GpuUuid, MigDevice};
use gpu_sharing::time_slicing::SEPARATOR;

/// A GPU or MIG device that pods can get.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OfferedDevice {
    /// Its UUID: `GPU-…` or `MIG-…`.
    pub uuid: String,
    /// Its number: that of the GPU, or GPU and slot (`0:1`).
    pub index: String,
    /// The GPU that it is, or is a part of.
    pub gpu: GpuUuid,
    /// The number in the GPU's `/dev/nvidia<minor>`.
    pub minor: u32,
    /// Which part of the GPU it is; `None` for the whole.
    pub instance: Option<Instance>,
    /// The NUMA node of the GPU's slot.
    pub numa_node: Option<u32>,
    /// How often it is handed out; `None` for once, under its own id.
    pub replicas: Option<u32>,
}

/// A part of a GPU in MIG mode.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Instance {
    /// The GPU instance's number.
    pub gpu: u32,
    /// The compute instance's number within it.
    pub compute: u32,
}

impl OfferedDevice {
    pub(super) fn whole(gpu: &Gpu) -> Self {
        Self {
            uuid: gpu.uuid.to_string(),
            index: gpu.index.to_string(),
            gpu: gpu.uuid.clone(),
            minor: gpu.minor,
            instance: None,
            numa_node: gpu.numa_node,
            replicas: None,
        }
    }

    pub(super) fn mig(gpu: &Gpu, device: &MigDevice) -> Self {
        Self {
            uuid: device.uuid.to_string(),
            index: format!("{}:{}", gpu.index, device.index),
            instance: Some(Instance {
                gpu: device.gpu_instance,
                compute: device.compute_instance,
            }),
            ..Self::whole(gpu)
        }
    }

    /// The ids by which the kubelet knows it: its UUID, or `uuid::n` for each replica.
    pub fn ids(&self) -> impl Iterator<Item = String> + '_ {
        let whole = self.replicas.is_none().then(|| self.uuid.clone());
        let replicas = (0..self.replicas.unwrap_or(0)).map(|n| format!("{}{SEPARATOR}{n}", self.uuid));
        whole.into_iter().chain(replicas)
    }
}
