use serde::{Deserialize, Serialize};

use crate::{GpuUuid, Problem};

mod cgroup;

pub use self::cgroup::Container;

/// Who uses the GPUs of a node at one moment.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schemars", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Usage {
    /// The GPUs that could be asked, in NVML's order, also those that nobody uses.
    pub gpus: Vec<GpuUsage>,
    /// What could not be asked.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub problems: Vec<Problem>,
}

/// Who uses one GPU.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schemars", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct GpuUsage {
    /// Which GPU.
    pub gpu: GpuUuid,
    /// The processes, by pid and then by instance. One is listed once for each kind of use and each instance.
    pub processes: Vec<GpuProcess>,
}

/// A process that uses a GPU.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schemars", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct GpuProcess {
    /// Its number as the driver gives it, which is the host's.
    pub pid: u32,
    /// How it uses the GPU.
    pub kind: ProcessKind,
    /// Memory of the GPU in bytes; absent where the driver does not say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_bytes: Option<u64>,
    /// The GPU instance it runs on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gpu_instance: Option<u32>,
    /// The compute instance it runs on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub compute_instance: Option<u32>,
    /// Its name (`/proc/<pid>/comm`); absent where the process cannot be seen from here.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub command: Option<String>,
    /// The container it runs in (`/proc/<pid>/cgroup`); absent for a process of the host, and where it cannot be seen.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub container: Option<Container>,
}

/// How a process uses a GPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schemars", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum ProcessKind {
    /// It computes (`nvmlDeviceGetComputeRunningProcesses_v3`).
    Compute,
    /// It draws (`nvmlDeviceGetGraphicsRunningProcesses_v3`).
    Graphics,
    /// It computes through the multi-process service (`nvmlDeviceGetMPSComputeRunningProcesses_v3`).
    Mps,
}
