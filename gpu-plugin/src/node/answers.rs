//! What the answers to the kubelet need of the node's files.

use std::path::Path;

use gpu_cdi::{Companion, DeviceRule, DriverFiles, Platform};
use gpu_core::{Inventory, MigUuid};
use gpu_sharing::config::{Config, DeviceListStrategy};

use super::{
    Machine, NodeConfig,
    cdi::{self, CdiFiles},
    footing::Footing,
    retain,
};
use crate::{Answers, Error, NodePaths, ResourceSet, Result, names};

/// Nodes that every container gets with the others, in the vendor's order.
const CONTROL_NODES: [&str; 4] = [
    "/dev/nvidiactl",
    "/dev/nvidia-uvm",
    "/dev/nvidia-uvm-tools",
    "/dev/nvidia-modeset",
];

/// What containers are told, and the files that this takes.
pub(super) struct Prepared {
    pub(super) answers: Answers,
    pub(super) cdi_files: CdiFiles,
    pub(super) footing: Footing,
}

/// Describes the devices for CDI files if these are needed, and takes out those that a container could not start with.
pub(super) fn prepare(
    machine: &Machine,
    config: &NodeConfig,
    resources: &mut Vec<ResourceSet>,
    remarks: &mut Vec<String>,
) -> Result<Prepared> {
    let mut cdi_files = CdiFiles::default();
    let mut footing = Footing::new(&config.driver_files);
    let channels = imex_nodes(config);
    footing.add_nodes(channels.iter().map(|path| (path.as_str(), true)));
    let settings = &config.config;
    let imex_channels = imex_channels(config, remarks)?;
    let mut answers = Answers {
        lists: settings.plugin.device_list_strategy.clone(),
        ids: settings.plugin.device_id_strategy,
        annotation_prefix: settings.plugin.cdi_annotation_prefix.clone(),
        gates: gates(settings).into_iter().map(|(_, variable)| variable).collect(),
        companions: Vec::new(),
        imex_channels,
        nodes: None,
    };
    let by_cdi = uses_cdi(settings);
    let by_nodes = settings.plugin.pass_device_specs && beside_cdi(settings);
    if resources.is_empty() || (!by_cdi && !by_nodes) {
        return Ok(Prepared {
            answers,
            cdi_files,
            footing,
        });
    }
    let mut discover = config.driver_files.clone();
    let driver = machine.inventory.driver.as_ref();
    discover.driver_version = driver.map(|driver| driver.version.to_string());
    let files = DriverFiles::discover(&discover)?;
    remarks.extend(files.problems.iter().map(ToString::to_string));
    if by_cdi {
        cdi_files = cdi::describe(machine, &files, config, &mut answers, resources, remarks)?;
    }
    if by_nodes {
        answers.nodes = Some(nodes(machine, &files, config, resources, remarks));
    }
    let wanted = wanted_nodes(machine, &files);
    footing.add_nodes(cdi_files.nodes().map(|path| (path, true)));
    let is_found = |path: &String| files.device_node(path).is_some();
    footing.add_nodes(wanted.iter().map(|path| (path.as_str(), is_found(path))));
    footing.add_cdi_files(cdi_files.paths());
    Ok(Prepared {
        answers,
        cdi_files,
        footing,
    })
}

/// The nodes that containers are to get, whether or not they are there.
fn wanted_nodes(machine: &Machine, files: &DriverFiles) -> Vec<String> {
    if machine.platform != Platform::Nvml {
        return Vec::new();
    }
    let mut wanted: Vec<_> = CONTROL_NODES.iter().map(|path| (*path).to_owned()).collect();
    for gpu in &machine.inventory.gpus {
        wanted.push(format!("/dev/nvidia{}", gpu.minor));
        let ours = format!("gpu{}/", gpu.minor);
        let capabilities = files.capabilities.iter().filter(|(name, _)| name.starts_with(&ours));
        wanted.extend(capabilities.map(|(_, minor)| format!("/dev/nvidia-caps/nvidia-cap{minor}")));
    }
    wanted
}

pub(super) fn uses_cdi(config: &Config) -> bool {
    let cdi = [DeviceListStrategy::CdiAnnotations, DeviceListStrategy::CdiCri];
    config.plugin.device_list_strategy.iter().any(|list| cdi.contains(list))
}

fn beside_cdi(config: &Config) -> bool {
    let others = [DeviceListStrategy::EnvVar, DeviceListStrategy::VolumeMounts];
    config
        .plugin
        .device_list_strategy
        .iter()
        .any(|list| others.contains(list))
}

/// What containers get besides GPUs, and the variable that says so, in the vendor's order.
pub(super) fn gates(config: &Config) -> Vec<(Companion, &'static str)> {
    let gates = [
        (config.gdrcopy_enabled, Companion::GdrCopy, names::GDRCOPY),
        (config.gds_enabled, Companion::Gds, names::GDS),
        (config.mofed_enabled, Companion::Mofed, names::MOFED),
    ];
    let enabled = gates.into_iter().filter(|(enabled, ..)| *enabled);
    enabled.map(|(_, companion, variable)| (companion, variable)).collect()
}

fn imex_nodes(config: &NodeConfig) -> Vec<String> {
    let channels = config.config.imex.channel_ids.iter();
    channels
        .map(|channel| format!("{}{channel}", names::IMEX_NODE))
        .collect()
}

/// The channels that are asked for and there.
fn imex_channels(config: &NodeConfig, remarks: &mut Vec<String>) -> Result<Vec<u32>> {
    let mut found = Vec::new();
    for channel in &config.config.imex.channel_ids {
        let path = format!("{}{channel}", names::IMEX_NODE);
        if is_node(config, &path) {
            found.push(*channel);
        } else if config.config.imex.required {
            return Err(Error::ImexChannel { channel: *channel });
        } else {
            remarks.push(format!(
                "no container gets IMEX channel {channel}: there is no `{path}`"
            ));
        }
    }
    Ok(found)
}

/// Whether there is such a device node, beneath the device root as it is seen from here or in this process's own `/dev`.
fn is_node(config: &NodeConfig, path: &str) -> bool {
    let files = &config.driver_files;
    let root = files.dev_root.as_ref().unwrap_or(&files.driver_root);
    [root.as_path(), Path::new("/")].into_iter().any(|root| {
        let metadata = root.join(path.trim_start_matches('/')).metadata();
        metadata.is_ok_and(|metadata| match files.device_rule {
            DeviceRule::AnyFile => true,
            _ => std::os::unix::fs::FileTypeExt::is_char_device(&metadata.file_type()),
        })
    })
}

fn nodes(
    machine: &Machine,
    files: &DriverFiles,
    config: &NodeConfig,
    resources: &mut Vec<ResourceSet>,
    remarks: &mut Vec<String>,
) -> NodePaths {
    let control = match machine.platform {
        Platform::Nvml => CONTROL_NODES.as_slice(),
        _ => &[],
    };
    let there = control.iter().filter(|path| is_node(config, path));
    let mut paths = NodePaths {
        host_root: config.config.nvidia_dev_root.clone(),
        control: there.map(|path| (*path).to_owned()).collect(),
        ..NodePaths::default()
    };
    let mig = resources
        .iter()
        .flat_map(|set| &set.devices)
        .filter(|device| device.instance.is_some());
    for device in mig.map(|device| device.uuid.clone()).collect::<Vec<_>>() {
        match capabilities(&machine.inventory, files, &device) {
            Ok(found) => drop(paths.capabilities.insert(device, found)),
            Err(reason) => {
                remarks.push(format!("MIG device {device} is not offered: it {reason}"));
                retain(resources, |offered| offered.uuid != device);
            }
        }
    }
    paths
}

/// The nodes that allow the use of a MIG device, or why they are not known.
fn capabilities(inventory: &Inventory, files: &DriverFiles, device: &str) -> Result<Vec<String>, String> {
    let known = device.parse::<MigUuid>().ok();
    let found = known.as_ref().and_then(|uuid| inventory.mig_device(uuid));
    let Some((gpu, mig)) = found else {
        return Err("is not in the inventory".to_owned());
    };
    let [_, instance, compute] = files.mig_nodes(gpu, mig).map_err(|reason| reason.to_string())?;
    Ok(vec![instance.path.clone(), compute.path.clone()])
}
