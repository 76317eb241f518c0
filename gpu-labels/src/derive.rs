use gpu_core::{Gpu, Inventory, ProblemKind};
use gpu_sharing::config::{Config, MigStrategy, Sharing};

use crate::{
    Error, LabelKey, LabelValue, Labels, Node, Remark, Vgpu,
    names::{
        CLIQUE, DEGRADED, DRIVER_FULL, DRIVER_PARTS, MACHINE, MIG_CAPABLE, MIG_STRATEGY, MODE, MPS_CAPABLE, PCI_DOMAIN,
        RUNTIME_FULL, RUNTIME_PARTS, TIMESTAMP, VGPU_HOST_BRANCH, VGPU_HOST_VERSION, VGPU_PRESENT,
    },
};

mod mig;
mod model;

use self::model::Model;

/// What labels there are beyond the vendor's.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Options {
    /// Whether each model of a node with several gets labels of its own, `nvidia.com/gpu-1.product` and so on, in the order in
    /// which [`labels`] chooses among them.
    pub per_model: bool,
}

/// The labels of a node, and what they could not say.
///
/// A GPU that cannot be read is missing from the counts and costs no other label; [`DEGRADED`] says so. A node with
/// no GPU has no labels but the time and the vGPU's.
///
/// Where the GPUs are of several models, `nvidia.com/gpu.*` speak of one: of those with a GPU that is not in MIG mode, the
/// one with the most GPUs, and of equals the one with the first GPU on the PCI bus.
///
/// # Errors
/// For a configuration that cannot be followed on this node.
pub fn labels(
    inventory: &Inventory,
    node: &Node,
    config: &Config,
    options: Options,
) -> Result<(Labels, Vec<Remark>), Error> {
    let mut sheet = Sheet::default();
    if let Some(time) = node.timestamp {
        sheet.set(TIMESTAMP, time);
    }
    let mut gpus: Vec<&Gpu> = inventory.gpus.iter().filter(|gpu| !gpu.is_display_only()).collect();
    // In the order of the bus, in whichever the inventory has them.
    gpus.sort_by_key(|gpu| gpu.pci.address);
    let models = Model::all(&gpus);
    if let Some(model) = models.first() {
        machine(&mut sheet, node);
        driver(&mut sheet, inventory);
        sheet.set(MIG_CAPABLE, gpus.iter().any(|gpu| gpu.mig.is_some()));
        mps(&mut sheet, &gpus, config)?;
        model.write(&mut sheet, "nvidia.com/gpu", config);
        if models.len() > 1 {
            sheet.remarks.push(Remark::SeveralModels {
                models: models.len(),
                chosen: model.name.to_owned(),
            });
        }
        if options.per_model {
            for (number, model) in (1..).zip(&models) {
                model.write(&mut sheet, &format!("nvidia.com/gpu-{number}"), config);
            }
        }
        if config.mig_strategy != MigStrategy::None {
            sheet.word(MIG_STRATEGY, config.mig_strategy.as_str());
            mig::write(&mut sheet, &gpus, config);
        }
        mode(&mut sheet, &gpus, node);
        clique(&mut sheet, &gpus);
    }
    degraded(&mut sheet, inventory);
    vgpu(&mut sheet, node);
    Ok((sheet.labels, sheet.remarks))
}

/// The labels by which operators find nodes with GPUs, where Node Feature Discovery does not run: no driver is needed.
///
/// `pci-10de.present`, and the same with the class, in the forms of Node Feature Discovery's that the vendor's operator reads.
pub fn pci_labels(node: &Node) -> Labels {
    let mut sheet = Sheet::default();
    for function in node.pci.iter().flatten().filter(|function| function.is_gpu()) {
        let vendor = function.id.vendor;
        sheet.set(&format!("{PCI_DOMAIN}/pci-{vendor:04x}.present"), true);
        let class = function.class >> 8;
        sheet.set(&format!("{PCI_DOMAIN}/pci-{class:04x}_{vendor:04x}.present"), true);
    }
    sheet.labels
}

/// Labels while they are written.
#[derive(Debug, Default)]
struct Sheet {
    labels: Labels,
    remarks: Vec<Remark>,
}

impl Sheet {
    /// A key that is none is left out: all that are put together of names are checked before.
    fn set(&mut self, key: &str, value: impl Into<LabelValue>) {
        if let Ok(key) = key.parse::<LabelKey>() {
            self.labels.insert(key, value.into());
        }
    }

    fn word(&mut self, key: &str, value: &str) {
        self.set(key, LabelValue::sanitized(value));
    }
}

fn machine(sheet: &mut Sheet, node: &Node) {
    let machine = node.machine.as_deref().map(LabelValue::sanitized);
    match machine.filter(|machine| !machine.as_str().is_empty()) {
        Some(machine) => sheet.set(MACHINE, machine),
        None => sheet.word(MACHINE, "unknown"),
    }
}

fn driver(sheet: &mut Sheet, inventory: &Inventory) {
    let Some(driver) = &inventory.driver else { return };
    sheet.word(DRIVER_FULL, driver.version.as_str());
    let mut parts = driver.version.as_str().split('.');
    for keys in DRIVER_PARTS {
        let part = parts.next().unwrap_or_default();
        for key in keys {
            sheet.word(key, part);
        }
    }
    if let Some(cuda) = driver.cuda_version {
        sheet.word(RUNTIME_FULL, &cuda.to_string());
        for (keys, part) in RUNTIME_PARTS.into_iter().zip([cuda.major, cuda.minor]) {
            for key in keys {
                sheet.set(key, part);
            }
        }
    }
}

fn mps(sheet: &mut Sheet, gpus: &[&Gpu], config: &Config) -> Result<(), Error> {
    let mps = matches!(config.sharing, Sharing::Mps(_));
    if let Some(gpu) = gpus.iter().find(|gpu| mps && gpu.mig_enabled()) {
        return Err(Error::MpsOnMig { index: gpu.index });
    }
    sheet.set(MPS_CAPABLE, mps);
    Ok(())
}

fn mode(sheet: &mut Sheet, gpus: &[&Gpu], node: &Node) {
    let class = |gpu: &Gpu| {
        let mut functions = node.pci.iter().flatten();
        functions
            .find(|function| function.address == gpu.pci.address)
            .map(|function| function.class)
    };
    let all = |class_of_all| gpus.iter().all(|gpu| class(gpu) == Some(class_of_all));
    let mode = if all(crate::PciFunction::CLASS_3D) {
        "compute"
    } else if all(crate::PciFunction::CLASS_VGA) {
        "graphics"
    } else {
        "unknown"
    };
    sheet.word(MODE, mode);
}

fn clique(sheet: &mut Sheet, gpus: &[&Gpu]) {
    let clique = |gpu: &&Gpu| {
        let fabric = gpu.fabric.as_ref()?;
        let registered = fabric.state == gpu_core::FabricState::Completed && fabric.error.is_none();
        let (cluster, clique) = fabric.cluster_uuid.as_deref().zip(fabric.clique)?;
        registered.then(|| (cluster.to_owned(), clique))
    };
    let mut cliques: Vec<_> = gpus.iter().filter_map(clique).collect();
    cliques.sort();
    cliques.dedup();
    match cliques.as_slice() {
        [] => {}
        [(cluster, clique)] => sheet.set(CLIQUE, LabelValue::suffixed(cluster, &format!(".{clique}"))),
        several => {
            let cliques = several.iter().map(|(cluster, clique)| format!("{cluster}.{clique}"));
            let cliques = cliques.collect();
            sheet.remarks.push(Remark::SeveralCliques { cliques });
        }
    }
}

/// A value that is missing is no reason: the GPU is there.
fn degraded(sheet: &mut Sheet, inventory: &Inventory) {
    let read = |index| inventory.gpus.iter().any(|gpu| gpu.index == index);
    let problems = inventory.problems.iter();
    let mut gone: Vec<_> = problems
        .filter(|problem| problem.kind != ProblemKind::Incomplete && !read(problem.index))
        .map(|problem| problem.index)
        .collect();
    gone.sort_unstable();
    gone.dedup();
    if !gone.is_empty() {
        sheet.set(DEGRADED, true);
        sheet.remarks.push(Remark::Degraded { gpus: gone.len() });
    }
}

fn vgpu(sheet: &mut Sheet, node: &Node) {
    let Some(functions) = &node.pci else { return };
    let gpus = || functions.iter().filter(|function| function.is_gpu());
    let mut host = gpus().filter_map(|function| match &function.vgpu {
        Vgpu::Yes(host) => Some(host),
        _ => None,
    });
    if let Some(host) = host.next_back() {
        sheet.set(VGPU_PRESENT, true);
        if let Some(version) = &host.driver_version {
            sheet.word(VGPU_HOST_VERSION, version);
        }
        if let Some(branch) = &host.driver_branch {
            sheet.word(VGPU_HOST_BRANCH, branch);
        }
        return;
    }
    for function in gpus() {
        if let Vgpu::Unknown { reason } = &function.vgpu {
            let (address, reason) = (function.address, reason.clone());
            return sheet.remarks.push(Remark::VgpuUnknown { address, reason });
        }
    }
    sheet.set(VGPU_PRESENT, false);
}

#[cfg(test)]
mod tests;
