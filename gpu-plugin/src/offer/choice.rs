use std::{fmt, str::FromStr};

use gpu_core::{Gpu, GpuUuid, PciAddress};

use super::Remark;

/// Which GPUs of a node are offered. Default: all.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct GpuChoice {
    /// These and no others; all if it is empty.
    pub include: Vec<GpuRef>,
    /// Not these, also where they are included.
    pub exclude: Vec<GpuRef>,
}

impl GpuChoice {
    pub(super) fn of<'a>(&self, gpus: &[&'a Gpu], remarks: &mut Vec<Remark>) -> Vec<&'a Gpu> {
        let absent = |wanted: &&GpuRef| !gpus.iter().any(|gpu| wanted.names(gpu));
        let wanted = self.include.iter().chain(&self.exclude);
        remarks.extend(wanted.filter(absent).cloned().map(Remark::NoSuchGpu));

        let named = |list: &[GpuRef], gpu: &Gpu| list.iter().any(|wanted| wanted.names(gpu));
        let chosen = |gpu: &&Gpu| (self.include.is_empty() || named(&self.include, gpu)) && !named(&self.exclude, gpu);
        let (chosen, left): (Vec<&Gpu>, Vec<&Gpu>) = gpus.iter().copied().partition(chosen);
        remarks.extend(left.into_iter().map(|gpu| Remark::NotChosen {
            index: gpu.index,
            gpu: gpu.uuid.clone(),
        }));
        chosen
    }
}

/// One GPU: by NVML's index (`0`), by UUID (`GPU-…`) or by PCI address (`0000:07:00.0`).
///
/// ```
/// use gpu_plugin::GpuRef;
/// assert!("0000:07:00.0".parse::<GpuRef>().is_ok());
/// assert!("MIG-7a675969-0a3d-4f9c-8a6e-1b2c3d4e5f60".parse::<GpuRef>().is_err());
/// # Ok::<(), gpu_plugin::ParseGpuRefError>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GpuRef(Kind);

#[derive(Debug, Clone, PartialEq, Eq)]
enum Kind {
    Index(u32),
    Uuid(GpuUuid),
    Pci(PciAddress),
}

impl GpuRef {
    fn names(&self, gpu: &Gpu) -> bool {
        match &self.0 {
            Kind::Index(index) => *index == gpu.index,
            Kind::Uuid(uuid) => *uuid == gpu.uuid,
            Kind::Pci(address) => *address == gpu.pci.address,
        }
    }
}

impl fmt::Display for GpuRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Kind::Index(index) => index.fmt(f),
            Kind::Uuid(uuid) => uuid.fmt(f),
            Kind::Pci(address) => address.fmt(f),
        }
    }
}

impl FromStr for GpuRef {
    type Err = ParseGpuRefError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let index = text.parse::<u32>().ok().filter(|index| index.to_string() == text);
        let kind = index.map(Kind::Index);
        kind.or_else(|| text.parse().map(Kind::Uuid).ok())
            .or_else(|| text.parse().map(Kind::Pci).ok())
            .map(Self)
            .ok_or_else(|| ParseGpuRefError { text: text.to_owned() })
    }
}

/// A text that names no GPU.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` is neither an index (`0`), a UUID (`GPU-…`) nor a PCI address (`0000:07:00.0`)")]
pub struct ParseGpuRefError {
    text: String,
}
