use std::fmt;

use gpu_core::{ComputeCapability, CudaVersion, Gpu, GpuUuid};
use serde::{Deserialize, Serialize};

use super::{Error, Result};

/// How many clients a GPU's MPS server takes at once.
///
/// 16 before Volta, 48 from Volta (compute capability 7.0) on, and 60 with CUDA 13.1 or later (CUDA MPS guide r590, "Volta
/// MPS"). The vendor's daemon takes Volta for an older one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct MaxClients(u32);

impl MaxClients {
    /// Of a GPU with a driver. What is not known counts as old.
    pub fn of(capability: Option<ComputeCapability>, cuda: Option<CudaVersion>) -> Self {
        let newer = CudaVersion { major: 13, minor: 1 };
        Self(match (has_limits(capability), cuda) {
            (false, _) => 16,
            (true, Some(cuda)) if cuda >= newer => 60,
            (true, _) => 48,
        })
    }

    /// The number.
    pub fn get(self) -> u32 {
        self.0
    }
}

impl fmt::Display for MaxClients {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Whether clients can be limited: from Volta on.
fn has_limits(capability: Option<ComputeCapability>) -> bool {
    capability.is_some_and(|capability| capability.major >= 7)
}

/// A GPU that several containers share, and what each may use of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SharedGpu {
    /// NVML's index among the GPUs of the node.
    pub index: u32,
    /// Its UUID.
    pub uuid: GpuUuid,
    /// How many containers share it, 2 or more.
    pub replicas: u32,
    /// The memory that a client may take, in MiB, rounded down; `None` where the GPU's size is not known or it cannot limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_limit_mib: Option<u64>,
    /// The share of its threads that a client may use, in per cent, rounded down; `None` where it cannot limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub thread_percentage: Option<u32>,
}

impl SharedGpu {
    /// Divides a GPU into equal shares.
    ///
    /// # Errors
    /// Where it is divided into MIG devices, which MPS is not offered on, or has fewer clients than replicas.
    pub fn new(gpu: &Gpu, replicas: u32, cuda: Option<CudaVersion>) -> Result<Self> {
        let (index, uuid) = (gpu.index, gpu.uuid.clone());
        if gpu.mig_enabled() {
            return Err(Error::Mig { index, uuid });
        }
        let most = MaxClients::of(gpu.compute_capability, cuda);
        if replicas > most.get() {
            return Err(Error::TooManyReplicas {
                index,
                uuid,
                replicas,
                most,
            });
        }
        let limited = has_limits(gpu.compute_capability) && replicas > 0;
        let share = |memory: gpu_core::Memory| Some((memory.total_bytes / u64::from(replicas)) >> 20);
        Ok(Self {
            index,
            uuid,
            replicas,
            memory_limit_mib: gpu.memory.filter(|_| limited).and_then(share).filter(|mib| *mib > 0),
            thread_percentage: limited.then(|| (100 / replicas).max(1)),
        })
    }
}
