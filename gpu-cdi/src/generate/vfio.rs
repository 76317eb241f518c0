use std::fmt;

use gpu_core::{PciAddress, PciDevice, PciInventory};

use super::{GenerateOptions, NameStrategy, Roots, common, finish, gpus::add_node};
use crate::{ContainerEdits, Device, DeviceName, DriverFiles, Error, Result, Spec};

/// The node by which a program makes a container of IOMMU groups.
const CONTROL: &str = "/dev/vfio/vfio";

/// A spec of passed-through GPUs, and what is missing from it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GeneratedVfio {
    /// The spec.
    pub spec: Spec,
    /// GPUs that are bound to VFIO and not described.
    pub problems: Vec<VfioProblem>,
}

/// A GPU that is bound to VFIO and cannot be given to a container.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VfioProblem {
    /// The GPU.
    pub address: PciAddress,
    /// The node that it lacks; `None` if it is in no IOMMU group.
    pub node: Option<String>,
}

impl fmt::Display for VfioProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.node {
            Some(node) => write!(f, "GPU {} has no device node `{node}`", self.address),
            None => write!(f, "GPU {} is in no IOMMU group", self.address),
        }
    }
}

/// Describes the GPUs that are bound to VFIO, for virtual machines that run in containers.
///
/// Each is its group's node, and every container gets `/dev/vfio/vfio`. The index counts the GPUs on the bus, bound to VFIO or not;
/// in place of a UUID, which only the NVIDIA driver could tell, a GPU has its PCI address.
///
/// # Errors
/// - [`Error::NothingFound`]: no GPU is bound to VFIO, or none of these can be described, or there is no control node.
/// - [`Error::Invalid`] as for [`generate`](crate::generate).
pub fn generate_vfio(bus: &PciInventory, files: &DriverFiles, options: &GenerateOptions) -> Result<GeneratedVfio> {
    let missing = |what: &str| Error::NothingFound {
        what: what.to_owned(),
        root: files.dev_root.clone(),
    };
    let roots = Roots::new(&files.driver_root, &files.dev_root, options)?;
    let control = files.device_node(CONTROL).ok_or_else(|| missing(CONTROL))?;
    let (mut devices, mut problems) = (Vec::new(), Vec::new());
    let gpus = bus.devices.iter().filter(|device| device.is_gpu()).enumerate();
    for (index, gpu) in gpus.filter(|(_, gpu)| is_passed_through(gpu)) {
        match edits(gpu, files, options, &roots) {
            Ok(edits) => {
                let names = options.names.iter().map(|strategy| name(*strategy, index, gpu));
                devices.extend(names.map(|name| Device::new(name, edits.clone())));
            }
            Err(problem) => problems.push(problem),
        }
    }
    if devices.is_empty() {
        let reasons: Vec<_> = problems.iter().map(ToString::to_string).collect();
        return Err(missing(&match reasons.as_slice() {
            [] => "GPU that is bound to VFIO".to_owned(),
            reasons => format!("GPU that is bound to VFIO and can be used ({})", reasons.join("; ")),
        }));
    }
    let mut common = common::void_edits();
    add_node(&mut common, control, options, &roots);
    let spec = finish(options, devices, common)?;
    Ok(GeneratedVfio { spec, problems })
}

/// `vfio-pci`, and the drivers of single boards that build on it, such as `nvgrace_gpu_vfio_pci`.
fn is_passed_through(gpu: &PciDevice) -> bool {
    gpu.driver.as_deref().is_some_and(|driver| driver.contains("vfio"))
}

fn edits(
    gpu: &PciDevice,
    files: &DriverFiles,
    options: &GenerateOptions,
    roots: &Roots,
) -> Result<ContainerEdits, VfioProblem> {
    let problem = |node| VfioProblem {
        address: gpu.address,
        node,
    };
    let group = gpu.iommu_group.ok_or_else(|| problem(None))?;
    let path = format!("/dev/vfio/{group}");
    let Some(node) = files.device_node(&path) else {
        return Err(problem(Some(path)));
    };
    let mut edits = ContainerEdits::default();
    add_node(&mut edits, node, options, roots);
    Ok(edits)
}

fn name(strategy: NameStrategy, index: usize, gpu: &PciDevice) -> DeviceName {
    let name = match strategy {
        NameStrategy::Index => index.to_string(),
        NameStrategy::TypeIndex => format!("vfio{index}"),
        NameStrategy::Uuid => gpu.address.to_string(),
    };
    name.parse().expect("an index and a PCI address are device names")
}
