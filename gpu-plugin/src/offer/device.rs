use gpu_core::{Gpu, GpuUuid, MigDevice};
use gpu_sharing::time_slicing::{self, SharedId};

/// A GPU or MIG device that pods can get.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OfferedDevice {
    /// Its UUID: `GPU-…` or `MIG-…`; what stands for one where NVML does not tell GPUs apart.
    pub uuid: String,
    /// Its number: that of the GPU, or GPU and slot (`0:1`).
    pub index: String,
    /// The GPU that it is, or is a part of; `None` where NVML does not tell GPUs apart.
    pub gpu: Option<GpuUuid>,
    /// The device node of the GPU: `/dev/nvidia<minor>`; `None` where there is no single one.
    pub node: Option<String>,
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
            gpu: Some(gpu.uuid.clone()),
            node: Some(format!("/dev/nvidia{}", gpu.minor)),
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

    /// All the GPUs of a machine on which NVML does not tell them apart.
    pub(super) fn all(id: &str, index: &str, node: Option<&str>) -> Self {
        Self {
            uuid: id.to_owned(),
            index: index.to_owned(),
            gpu: None,
            node: node.map(str::to_owned),
            instance: None,
            numa_node: None,
            replicas: None,
        }
    }

    /// The ids by which the kubelet knows it: its UUID, or `uuid::n` for each replica. A UUID that looks like the id of a replica has
    /// none: no driver's does.
    pub fn ids(&self) -> impl Iterator<Item = SharedId> + use<> {
        time_slicing::ids(&self.uuid, self.replicas).into_iter().flatten()
    }
}
