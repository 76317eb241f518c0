//! `/sys`: the GPUs on the PCI bus, the kernel modules and the machine's name.

use super::{Tree, proc};
use crate::{Board, GpuEntry, NodeFile, PciIds, Result, node::board_of};

pub(super) fn write(tree: &Tree<'_>, node: &NodeFile) -> Result<()> {
    tree.folder("sys/bus/pci/devices")?;
    tree.folder("sys/bus/pci/drivers/nvidia")?;
    for module in ["nvidia", "nvidia_modeset", "nvidia_uvm"] {
        tree.file(&format!("sys/module/{module}/initstate"), 0o444, "live\n")?;
        tree.file(
            &format!("sys/module/{module}/version"),
            0o444,
            format!("{}\n", node.driver),
        )?;
    }
    tree.file("sys/class/dmi/id/product_name", 0o444, format!("{}\n", node.machine))
}

/// What the kernel shows of a GPU, whose place in the node is the number of its IOMMU group.
pub(super) fn put_in(tree: &Tree<'_>, gpu: &GpuEntry, group: usize) -> Result<()> {
    board_of(gpu).map_or(Ok(()), |board| device(tree, gpu, board, group))
}

/// All that is there of a GPU.
pub(super) fn paths(gpu: &GpuEntry, group: usize) -> [String; 4] {
    [
        format!("sys/kernel/iommu_groups/{group}"),
        format!("sys/bus/pci/drivers/nvidia/{}", gpu.pci),
        format!("sys/bus/pci/devices/{}", gpu.pci),
        format!("sys/devices/{}/{}", gpu.pci.root(), gpu.pci),
    ]
}

fn device(tree: &Tree<'_>, gpu: &GpuEntry, board: &Board, group: usize) -> Result<()> {
    let folder = format!("sys/devices/{}/{}", gpu.pci.root(), gpu.pci);
    let PciIds {
        device,
        subsystem_device,
        class,
        revision,
        link_generation,
        link_width,
    } = &board.pci;
    let vendor = PciIds::VENDOR;
    let speed = format!("{:.1} GT/s PCIe", transfers(*link_generation));
    let texts = [
        ("vendor", format!("0x{vendor:04x}")),
        ("device", format!("0x{device:04x}")),
        ("class", format!("0x{class:06x}")),
        ("revision", format!("0x{revision:02x}")),
        ("subsystem_vendor", format!("0x{vendor:04x}")),
        ("subsystem_device", format!("0x{subsystem_device:04x}")),
        (
            "numa_node",
            gpu.numa.map_or_else(|| "-1".to_owned(), |node| node.to_string()),
        ),
        ("enable", "1".to_owned()),
        ("irq", proc::irq(gpu).to_string()),
        ("current_link_speed", speed.clone()),
        ("max_link_speed", speed),
        ("current_link_width", link_width.to_string()),
        ("max_link_width", link_width.to_string()),
        (
            "modalias",
            format!(
                "pci:v{vendor:08X}d{device:08X}sv{vendor:08X}sd{subsystem_device:08X}bc{:02X}sc{:02X}i{:02X}",
                class >> 16,
                (class >> 8) & 0xff,
                class & 0xff
            ),
        ),
    ];
    for (name, text) in texts {
        tree.file(&format!("{folder}/{name}"), 0o444, text + "\n")?;
    }
    tree.file(&format!("{folder}/config"), 0o644, config(gpu, board))?;
    tree.file(&format!("{folder}/resource"), 0o444, resource(gpu, board))?;
    tree.link(&format!("{folder}/driver"), "../../../bus/pci/drivers/nvidia")?;
    tree.link(&format!("{folder}/subsystem"), "../../../bus/pci")?;
    tree.link(
        &format!("{folder}/iommu_group"),
        &format!("../../../kernel/iommu_groups/{group}"),
    )?;

    let device = format!("devices/{}/{}", gpu.pci.root(), gpu.pci);
    tree.link(
        &format!("sys/kernel/iommu_groups/{group}/devices/{}", gpu.pci),
        &format!("../../../../{device}"),
    )?;
    tree.link(
        &format!("sys/bus/pci/devices/{}", gpu.pci),
        &format!("../../../{device}"),
    )?;
    tree.link(
        &format!("sys/bus/pci/drivers/nvidia/{}", gpu.pci),
        &format!("../../../../{device}"),
    )
}

/// Giga-transfers per second of a PCIe generation.
fn transfers(generation: u32) -> f64 {
    match generation {
        0 | 1 => 2.5,
        2 => 5.0,
        3 => 8.0,
        later => 16.0 * f64::from(1_u32 << later.saturating_sub(4).min(16)),
    }
}

/// The three memory regions of a board, start and size: registers, memory, and a small one. All 64 bit, prefetchable.
fn regions(gpu: &GpuEntry, board: &Board) -> [(u64, u64); 3] {
    let slot = u64::from(gpu.minor);
    let memory = board.memory.bar1_total_bytes;
    // Each board gets its own stretch of addresses, aligned to its largest region.
    let base = memory * (16 + 2 * slot);
    [
        (base + memory, 16 << 20),
        (base, memory),
        (base + memory + (64 << 20), 32 << 20),
    ]
}

/// The first 256 bytes of the configuration space.
fn config(gpu: &GpuEntry, board: &Board) -> Vec<u8> {
    let mut config = vec![0; 256];
    let mut put = |at: usize, bytes: &[u8]| {
        if let Some(place) = config.get_mut(at..at + bytes.len()) {
            place.copy_from_slice(bytes);
        }
    };
    put(0x00, &PciIds::VENDOR.to_le_bytes());
    put(0x02, &board.pci.device.to_le_bytes());
    put(0x04, &0x0546_u16.to_le_bytes()); // command: memory, bus master, parity, SERR, no INTx
    put(0x06, &0x0010_u16.to_le_bytes()); // status: has a capability list
    put(0x08, &[board.pci.revision]);
    put(0x09, board.pci.class.to_le_bytes().get(..3).unwrap_or_default());
    for (at, (start, _)) in [0x10, 0x18, 0x20].into_iter().zip(regions(gpu, board)) {
        put(at, &(start | 0xc).to_le_bytes()); // 64 bit, prefetchable
    }
    put(0x2c, &PciIds::VENDOR.to_le_bytes());
    put(0x2e, &board.pci.subsystem_device.to_le_bytes());
    put(0x34, &[0x40]); // first capability
    put(0x3c, &[u8::try_from(proc::irq(gpu)).unwrap_or(0xff), 1]); // interrupt line, pin A
    put(0x40, &[0x10, 0x00, 0x02, 0x00]); // PCI Express endpoint, version 2, last in the list
    let link = u16::try_from((board.pci.link_width << 4) | board.pci.link_generation).unwrap_or(0);
    put(0x4c, &link.to_le_bytes()); // link capabilities: width and speed
    put(0x52, &link.to_le_bytes()); // link status: the same now
    config
}

/// The thirteen lines of the `resource` file: start, end and flags of each region.
fn resource(gpu: &GpuEntry, board: &Board) -> String {
    let mut regions = regions(gpu, board).into_iter();
    (0..13)
        .map(
            |line| match (line < 6 && line % 2 == 0).then(|| regions.next()).flatten() {
                Some((start, size)) => format!("0x{start:016x} 0x{:016x} 0x000000000014220c\n", start + size - 1),
                None => "0x0000000000000000 0x0000000000000000 0x0000000000000000\n".to_owned(),
            },
        )
        .collect()
}
