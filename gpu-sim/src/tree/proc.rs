//! `/proc`: the driver's own folder, the MIG minor numbers and the list of device majors.

use std::fmt::Write as _;

use super::{Tree, dev};
use crate::{GpuEntry, NodeFile, Result, node::board_of};

/// The driver numbers this many GPUs' instances, present or not.
const MIG_GPUS: u32 = 32;
const MIG_GPU_INSTANCES: u32 = 15;
const MIG_COMPUTE_INSTANCES: u32 = 8;
/// The minor of the IMEX management capability, the first one behind those of MIG (measured).
const FABRIC_IMEX: u32 = 3 + MIG_GPUS * MIG_GPU_INSTANCES * (1 + MIG_COMPUTE_INSTANCES);

/// The driver's modules as the kernel lists them to one who may not see addresses: name, bytes, users, which modules those are. The
/// sizes are plausible ones.
const MODULES: &str = "\
nvidia_uvm 2134016 0 - Live 0x0000000000000000 (OE)
nvidia_modeset 1720320 0 - Live 0x0000000000000000 (OE)
nvidia 14381056 2 nvidia_uvm,nvidia_modeset, Live 0x0000000000000000 (OE)
";

/// The driver's parameters as measured on an H200 with driver 580.159.04.
const PARAMS: &str = include_str!("proc-params.txt");

const DRIVER: &str = "proc/driver/nvidia";

/// The driver's folder for a GPU.
pub(super) fn folder(gpu: &GpuEntry) -> String {
    format!("{DRIVER}/gpus/{}", gpu.pci)
}

/// All that is there of a GPU.
pub(super) fn paths(gpu: &GpuEntry) -> [String; 2] {
    [format!("{DRIVER}/capabilities/gpu{}", gpu.minor), folder(gpu)]
}

pub(super) fn put_in(tree: &Tree<'_>, gpu: &GpuEntry, driver: &str) -> Result<()> {
    tree.folder(&format!("{DRIVER}/capabilities/gpu{}/mig", gpu.minor))?;
    tree.file(&format!("{}/information", folder(gpu)), 0o444, information(gpu, driver))
}

pub(super) fn write(tree: &Tree<'_>, node: &NodeFile) -> Result<()> {
    let driver = DRIVER;
    tree.file(&format!("{driver}/version"), 0o444, version(&node.driver))?;
    tree.file(&format!("{driver}/params"), 0o444, params(node))?;
    tree.file(&format!("{driver}/registry"), 0o644, "Binary: \"\"\n")?;
    tree.folder(&format!("{driver}/gpus"))?;
    let capabilities = format!("{driver}/capabilities");
    tree.file(&format!("{capabilities}/mig/config"), 0o444, capability(1, 0o400))?;
    tree.file(&format!("{capabilities}/mig/monitor"), 0o444, capability(2, 0o444))?;
    tree.file(
        &format!("{capabilities}/fabric-imex-mgmt"),
        0o444,
        capability(FABRIC_IMEX, 0o400),
    )?;
    tree.file("proc/driver/nvidia-caps/mig-minors", 0o444, mig_minors())?;
    tree.file(
        "proc/driver/nvidia-caps/sys-minors",
        0o444,
        format!("fabric-imex-mgmt {FABRIC_IMEX}\n"),
    )?;
    tree.file("proc/modules", 0o444, MODULES)?;
    tree.file("proc/devices", 0o444, devices())
}

fn params(node: &NodeFile) -> String {
    // The machine measured had no NVLink.
    if node.nvlink.is_some() {
        PARAMS.replace("NvLinkDisable: 1", "NvLinkDisable: 0")
    } else {
        PARAMS.to_owned()
    }
}

fn version(driver: &str) -> String {
    format!(
        "NVRM version: NVIDIA UNIX Open Kernel Module for {}  {driver}  Release Build  (gpu-sim@simulated)  \n\
         GCC version:  gcc version 12.2.0 (simulated) \n",
        std::env::consts::ARCH
    )
}

fn information(gpu: &GpuEntry, driver: &str) -> String {
    let (product, vbios) = board_of(gpu).map_or(("", String::new()), |board| {
        (board.product.as_str(), board.vbios.to_lowercase())
    });
    format!(
        "Model: \t\t {product}\n\
         IRQ:   \t\t {irq}\n\
         GPU UUID: \t {uuid}\n\
         Video BIOS: \t {vbios}\n\
         Bus Type: \t PCIe\n\
         DMA Size: \t 52 bits\n\
         DMA Mask: \t 0xfffffffffffff\n\
         Bus Location: \t {pci}\n\
         Device Minor: \t {minor}\n\
         GPU Firmware: \t {driver}\n\
         GPU Excluded:\t No\n",
        irq = irq(gpu),
        uuid = gpu.uuid,
        pci = gpu.pci,
        minor = gpu.minor,
    )
}

/// The interrupt of a GPU; the first one's as measured.
pub(crate) fn irq(gpu: &GpuEntry) -> u32 {
    41 + gpu.minor
}

pub(super) fn capability(minor: u32, mode: u32) -> String {
    format!("DeviceFileMinor: {minor}\nDeviceFileMode: {mode}\nDeviceFileModify: 1\n")
}

/// The minor number that stands for a GPU instance.
pub(crate) fn gpu_instance(gpu: u32, instance: u32) -> u32 {
    3 + (gpu * MIG_GPU_INSTANCES + instance) * (1 + MIG_COMPUTE_INSTANCES)
}

/// The minor number that stands for a compute instance.
pub(crate) fn compute_instance(gpu: u32, instance: u32, compute: u32) -> u32 {
    gpu_instance(gpu, instance) + 1 + compute
}

fn mig_minors() -> String {
    let mut text = "config 1\nmonitor 2\n".to_owned();
    for gpu in 0..MIG_GPUS {
        for instance in 0..MIG_GPU_INSTANCES {
            let minor = gpu_instance(gpu, instance);
            let _ = writeln!(text, "gpu{gpu}/gi{instance}/access {minor}");
            for compute in 0..MIG_COMPUTE_INSTANCES {
                let minor = compute_instance(gpu, instance, compute);
                let _ = writeln!(text, "gpu{gpu}/gi{instance}/ci{compute}/access {minor}");
            }
        }
    }
    text
}

fn devices() -> String {
    format!(
        "Character devices:\n  1 mem\n  5 /dev/tty\n{nvidia} nvidia\n{nvidia} nvidia-modeset\n{nvidia} nvidiactl\n\
         {imex} nvidia-caps-imex-channels\n{caps} nvidia-caps\n{uvm} nvidia-uvm\n\nBlock devices:\n259 blkext\n",
        nvidia = dev::NVIDIA,
        imex = dev::IMEX_CHANNELS,
        caps = dev::CAPABILITIES,
        uvm = dev::UVM,
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mig_minors_follow_the_drivers_numbering() {
        let text = mig_minors();
        for line in [
            "gpu0/gi0/access 3",
            "gpu0/gi0/ci7/access 11",
            "gpu2/gi3/ci1/access 302",
            "gpu31/gi14/ci7/access 4322",
        ] {
            assert!(text.lines().any(|have| have == line), "{line}");
        }
        assert_eq!(FABRIC_IMEX, 4323);
    }
}
