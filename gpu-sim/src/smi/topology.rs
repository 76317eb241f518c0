//! `nvidia-smi topo -m`, laid out as measured with driver 580.159.04 for one GPU, and as NVIDIA's guides show it for several.

use std::fmt::Write as _;

use nvml_wrapper::{Device, enum_wrappers::device::TopologyLevel, error::NvmlError};

use super::{
    failure::Failure,
    raw::{self, Link},
};

const LEGEND: &str = "
Legend:

  X    = Self
  SYS  = Connection traversing PCIe as well as the SMP interconnect between NUMA nodes (e.g., QPI/UPI)
  NODE = Connection traversing PCIe as well as the interconnect between PCIe Host Bridges within a NUMA node
  PHB  = Connection traversing PCIe as well as a PCIe Host Bridge (typically the CPU)
  PXB  = Connection traversing multiple PCIe bridges (without traversing the PCIe Host Bridge)
  PIX  = Connection traversing at most a single PCIe bridge
  NV#  = Connection traversing a bonded set of # NVLinks
";

/// How each GPU is connected to each, and its NUMA node. Which CPUs are near it is not simulated.
pub(super) fn matrix(gpus: &[Device<'_>]) -> Result<String, Failure> {
    let mut header = String::from("\t\u{1b}[4m");
    let mut rows = String::new();
    let links: Vec<Vec<Link>> = gpus.iter().map(|gpu| raw::Gpu::of(gpu).links()).collect();
    for (at, gpu) in gpus.iter().enumerate() {
        let index = gpu.index()?;
        let _ = write!(header, "GPU{index}\t");
        let _ = write!(rows, "GPU{index}\t");
        for (other_at, other) in gpus.iter().enumerate() {
            let cell = if at == other_at {
                " X ".to_owned()
            } else {
                connection(gpu, other, &links[at], &links[other_at])?
            };
            rows += &cell;
            rows.push('\t');
        }
        let node = raw::Gpu::of(gpu).numa_node();
        let node = node.map_or_else(|| "N/A".to_owned(), |node| node.to_string());
        let _ = writeln!(rows, "N/A\t{node}\t\tN/A");
    }
    header += "CPU Affinity\tNUMA Affinity\tGPU NUMA ID\u{1b}[0m\n";
    Ok(header + &rows + LEGEND)
}

fn connection(gpu: &Device<'_>, other: &Device<'_>, links: &[Link], others: &[Link]) -> Result<String, Failure> {
    let bus = other.pci_info()?.bus_id;
    let direct = links
        .iter()
        .filter(|link| link.other_end.as_ref() == Some(&bus))
        .count();
    let through = |links: &[Link]| links.iter().filter(|link| link.to_switch).count();
    // Switches connect all GPUs of a node.
    let count = direct + through(links).min(through(others));
    if count > 0 {
        return Ok(format!("NV{count}"));
    }
    let other = gpu.nvml().device_by_index(other.index()?)?;
    let level = match gpu.topology_common_ancestor(other) {
        Ok(level) => level,
        Err(NvmlError::NotSupported) => return Ok("N/A".to_owned()),
        Err(error) => return Err(error.into()),
    };
    Ok(match level {
        TopologyLevel::Internal | TopologyLevel::Single => "PIX",
        TopologyLevel::Multiple => "PXB",
        TopologyLevel::HostBridge => "PHB",
        TopologyLevel::Node => "NODE",
        TopologyLevel::System => "SYS",
    }
    .to_owned())
}
