//! Whether there can be such a node, and where `node.yaml` says that there is.

use std::collections::{BTreeMap, HashMap};

use serde::{Deserialize, de::IgnoredAny};
use serde_saphyr::Spanned;

use super::{GpuEntry, NodeFile, NvLink};
use crate::{PciAddress, board, document::Fault, driver};

/// Names of the GPUs' device nodes end in a number below this; 254 and 255 are the control nodes.
const MINORS: u32 = 254;

/// Linux numbers no more NUMA nodes.
const NUMA_NODES: u32 = 1024;

/// `NVML_NVLINK_MAX_LINKS`.
const LINKS: u32 = 18;

/// Refuses what cannot be; `text` is what the file was read from.
pub(super) fn check(file: &NodeFile, text: &str) -> Result<(), Fault> {
    let impossible = |Impossible { place, message }| Fault {
        line: place.line(text),
        message: format!("{place}{message}"),
    };
    node(file).map_err(impossible)
}

/// What cannot be, and where it stands.
struct Impossible {
    place: Place,
    message: String,
}

/// A field of the file.
#[derive(Clone, Copy)]
enum Place {
    Driver,
    NvLink(&'static str),
    Fabric(&'static str),
    Gpu(usize, &'static str),
}

impl std::fmt::Display for Place {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Driver => Ok(()),
            Self::NvLink(_) => f.write_str("nvlink: "),
            Self::Fabric(_) => f.write_str("fabric: "),
            Self::Gpu(at, _) => write!(f, "gpus[{at}]: "),
        }
    }
}

/// Where each field stands, without what it holds.
#[derive(Deserialize)]
struct Fields {
    driver: Spanned<IgnoredAny>,
    nvlink: Option<Lines>,
    fabric: Option<Lines>,
    gpus: Vec<Lines>,
}

type Lines = BTreeMap<String, Spanned<IgnoredAny>>;

impl Place {
    /// The line of the field; the first of what it belongs to where the field is not written.
    fn line(self, text: &str) -> Option<u64> {
        let fields: Fields = serde_saphyr::from_str(text).ok()?;
        let (lines, field) = match self {
            Self::Driver => return Some(fields.driver.referenced.line()),
            Self::NvLink(field) => (fields.nvlink?, field),
            Self::Fabric(field) => (fields.fabric?, field),
            Self::Gpu(at, field) => (fields.gpus.into_iter().nth(at)?, field),
        };
        let found = lines.get(field).map(|field| field.referenced.line());
        found.or_else(|| lines.values().map(|field| field.referenced.line()).min())
    }
}

type Checked = Result<(), Impossible>;

fn refuse(place: Place, message: String) -> Checked {
    Err(Impossible { place, message })
}

fn node(file: &NodeFile) -> Checked {
    if let Err(error) = driver::find(&file.driver) {
        return refuse(Place::Driver, error.to_string());
    }
    if let Some(fabric) = &file.fabric
        && fabric.cluster_bytes().is_none()
    {
        let message = format!("cluster `{}` is no UUID", fabric.cluster);
        return refuse(Place::Fabric("cluster"), message);
    }
    if file.fabric.is_some() && file.nvlink.is_none() {
        return refuse(Place::Fabric("cluster"), "there is none without `nvlink`".to_owned());
    }
    for (at, gpu) in file.gpus.iter().enumerate() {
        gpu_alone(at, gpu)?;
    }
    unique(&file.gpus)?;
    neighbours(&file.gpus)?;
    file.nvlink.as_ref().map_or(Ok(()), |nvlink| links(nvlink, &file.gpus))
}

fn gpu_alone(at: usize, gpu: &GpuEntry) -> Checked {
    let uuid = &gpu.uuid;
    if board::find(&gpu.board).is_none() {
        return refuse(Place::Gpu(at, "board"), format!("board `{}` is not known", gpu.board));
    }
    if uuid.is_empty() || uuid.contains(|c: char| c.is_whitespace() || c == '/') {
        let message = format!("uuid `{uuid}` is empty or has a blank or slash in it");
        return refuse(Place::Gpu(at, "uuid"), message);
    }
    if gpu.minor >= MINORS {
        let message = format!("minor {} is not below {MINORS}", gpu.minor);
        return refuse(Place::Gpu(at, "minor"), message);
    }
    if gpu.pci.function() != 0 {
        let message = format!("pci `{}` is not the first function of a device", gpu.pci);
        return refuse(Place::Gpu(at, "pci"), message);
    }
    match gpu.numa {
        Some(node) if node >= NUMA_NODES => {
            refuse(Place::Gpu(at, "numa"), format!("numa {node} is not below {NUMA_NODES}"))
        }
        _ => Ok(()),
    }
}

/// That no two GPUs are told to be the same.
fn unique(gpus: &[GpuEntry]) -> Checked {
    twice(gpus, "uuid", |gpu| Some(format!("`{}`", gpu.uuid)))?;
    twice(gpus, "pci", |gpu| Some(format!("`{}`", gpu.pci)))?;
    twice(gpus, "minor", |gpu| Some(gpu.minor.to_string()))?;
    twice(gpus, "serial", |gpu| {
        gpu.card.is_none().then(|| format!("`{}`", gpu.serial))
    })
}

fn twice(gpus: &[GpuEntry], field: &'static str, value: impl Fn(&GpuEntry) -> Option<String>) -> Checked {
    let mut seen = HashMap::new();
    for (at, gpu) in gpus.iter().enumerate() {
        if let Some(value) = value(gpu)
            && let Some(first) = seen.insert(value.clone(), at)
        {
            let message = format!("{field} {value} stands twice, first in gpus[{first}]");
            return refuse(Place::Gpu(at, field), message);
        }
    }
    Ok(())
}

/// That GPUs which share a PCIe switch or a card share what comes with it.
fn neighbours(gpus: &[GpuEntry]) -> Checked {
    let (mut switches, mut cards) = (HashMap::new(), HashMap::new());
    for (at, gpu) in gpus.iter().enumerate() {
        if let Some(switch) = gpu.switch {
            let (first, numa) = *switches.entry(switch).or_insert((at, gpu.numa));
            if numa != gpu.numa {
                let message = format!("numa differs from that of gpus[{first}], which is on the same switch");
                return refuse(Place::Gpu(at, "numa"), message);
            }
        }
        if let Some(card) = gpu.card {
            let (first, board, serial) = *cards.entry(card).or_insert((at, &gpu.board, &gpu.serial));
            for (field, same) in [("board", board == &gpu.board), ("serial", serial == &gpu.serial)] {
                if !same {
                    let message = format!("{field} differs from that of gpus[{first}], which is on the same card");
                    return refuse(Place::Gpu(at, field), message);
                }
            }
        }
    }
    Ok(())
}

fn links(nvlink: &NvLink, gpus: &[GpuEntry]) -> Checked {
    if nvlink.links == 0 || nvlink.links > LINKS {
        let message = format!("links {} is not from 1 to {LINKS}", nvlink.links);
        return refuse(Place::NvLink("links"), message);
    }
    if nvlink.bridged_pairs && !nvlink.switches.is_empty() {
        let message = "GPUs that are bridged in pairs are on no switches".to_owned();
        return refuse(Place::NvLink("switches"), message);
    }
    let mut taken: Vec<PciAddress> = gpus.iter().map(|gpu| gpu.pci).collect();
    for switch in &nvlink.switches {
        if taken.contains(switch) {
            let message = format!("switch `{switch}` is at the address of something else");
            return refuse(Place::NvLink("switches"), message);
        }
        taken.push(*switch);
    }
    Ok(())
}
