use std::fmt::{Display, Write as _};

use comfy_table::{Table, presets::NOTHING};
use gpu_core::{Gpu, Inventory};

/// An inventory as a table for people, with a line on the driver above and the problems below.
pub fn inventory_table(inventory: &Inventory) -> String {
    let mut text = match &inventory.driver {
        Some(driver) => format!("Driver {}, CUDA {}\n", driver.version, or_dash(driver.cuda_version)),
        None => "No driver\n".to_owned(),
    };
    if inventory.gpus.is_empty() {
        text.push_str("No GPUs\n");
    } else {
        let mut table = Table::new();
        table.load_style(NOTHING);
        table.set_header([
            "GPU",
            "Name",
            "UUID",
            "PCI address",
            "Device",
            "NUMA",
            "Memory",
            "CUDA",
            "MIG",
        ]);
        table.add_rows(inventory.gpus.iter().map(row));
        let _ = writeln!(text, "{table}");
    }
    for problem in &inventory.problems {
        let _ = writeln!(text, "! {problem}");
    }
    text
}

fn row(gpu: &Gpu) -> [String; 9] {
    [
        gpu.index.to_string(),
        gpu.name.clone(),
        gpu.uuid.to_string(),
        gpu.pci.address.to_string(),
        format!("/dev/nvidia{}", gpu.minor),
        or_dash(gpu.numa_node),
        or_dash(gpu.memory.map(|memory| format!("{} MiB", memory.total_mib()))),
        or_dash(gpu.compute_capability),
        match &gpu.mig {
            None => "-",
            Some(mig) if mig.enabled => "on",
            Some(_) => "off",
        }
        .to_owned(),
    ]
}

/// Absent is not zero: what the hardware does not offer is a dash.
fn or_dash(value: Option<impl Display>) -> String {
    value.map_or_else(|| "-".to_owned(), |value| value.to_string())
}
