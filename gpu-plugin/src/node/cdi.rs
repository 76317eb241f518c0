//! The plugin's CDI files.

mod files;
mod gpus;

pub(super) use self::files::CdiFiles;

use gpu_cdi::{DriverFiles, GenerateOptions, Kind, NameStrategy, Spec, generate_companion, generate_imex};
use gpu_sharing::config::DeviceIdStrategy;

use super::{Machine, NodeConfig, answers::gates, retain};
use crate::{Answers, ResourceSet, Result, names};

/// Describes what is offered, for files that are to be written; what cannot be described is not offered, since a pod with it could not
/// start.
pub(super) fn describe(
    machine: &Machine,
    files: &DriverFiles,
    config: &NodeConfig,
    answers: &mut Answers,
    resources: &mut Vec<ResourceSet>,
    remarks: &mut Vec<String>,
) -> Result<CdiFiles> {
    let mut cdi_files = CdiFiles::default();
    let mut options = options(config, "gpu");
    let known = files::known(&config.cdi_dir.join(names::CDI_FILE));
    options.names = device_names(config.config.plugin.device_id_strategy, known.as_ref());
    let (spec, skipped) = gpus::describe(machine, files, &config.driver_files, &options, remarks)?;
    let is_described = |name: &str| {
        let devices = spec.iter().flat_map(|spec| &spec.devices);
        devices.into_iter().any(|device| device.name.as_str() == name)
    };
    let before: usize = resources.iter().map(|set| set.devices.len()).sum();
    retain(resources, |device| is_described(answers.told(device)));
    if resources.iter().map(|set| set.devices.len()).sum::<usize>() < before {
        remarks.extend(skipped.iter().map(|skipped| format!("not offered: {skipped}")));
    }
    if let Some(spec) = spec {
        cdi_files.add(spec, &config.cdi_dir);
    }
    for (companion, _) in gates(&config.config) {
        match generate_companion(companion, files, &self::options(config, companion.as_str())) {
            Ok(spec) => {
                cdi_files.add(spec, &config.cdi_dir);
                answers
                    .companions
                    .push(format!("{}/{companion}=all", names::CDI_VENDOR));
            }
            Err(error @ gpu_cdi::Error::NothingFound { .. }) => {
                remarks.push(format!(
                    "no container gets devices of {companion}: {}",
                    super::words(&error)
                ));
            }
            Err(error) => return Err(error.into()),
        }
    }
    if !answers.imex_channels.is_empty() {
        let channel = |channel: &u32| channel.to_string().parse();
        let channels: Result<Vec<_>, _> = answers.imex_channels.iter().map(channel).collect();
        let channels = channels.expect("the configuration takes channel 0 alone");
        let spec = generate_imex(
            files,
            &channels,
            &self::options(config, gpu_cdi::names::IMEX_CHANNEL_CLASS),
        )?;
        cdi_files.add(spec, &config.cdi_dir);
    }
    Ok(cdi_files)
}

/// The names that answers have from here on, and those of the other kind where the file has them: the kubelet keeps the answers
/// of pods, whose containers may start again after the strategy was changed.
fn device_names(strategy: DeviceIdStrategy, known: Option<&Spec>) -> Vec<NameStrategy> {
    let is_index = |name: &str| name.starts_with(|first: char| first.is_ascii_digit());
    let (own, other) = match strategy {
        DeviceIdStrategy::Uuid => (NameStrategy::Uuid, NameStrategy::Index),
        DeviceIdStrategy::Index => (NameStrategy::Index, NameStrategy::Uuid),
    };
    let mut devices = known.into_iter().flat_map(|spec| &spec.devices);
    let kept = devices.any(|device| is_index(device.name.as_str()) == (other == NameStrategy::Index));
    [Some(own), kept.then_some(other)].into_iter().flatten().collect()
}

fn options(config: &NodeConfig, class: &str) -> GenerateOptions {
    let settings = &config.config;
    let mut options = GenerateOptions::default();
    options.kind = Kind::new(names::CDI_VENDOR, class).expect("a valid kind");
    options.all_device = false;
    options.host_driver_root = Some(settings.nvidia_driver_root.clone());
    options.host_dev_root = Some(settings.nvidia_dev_root.clone());
    options.hook_path.clone_from(&settings.plugin.nvidia_ctk_path);
    options.disabled_hooks.clone_from(&config.disabled_hooks);
    options.additional_gids = config.additional_gids;
    options.ipc_sockets = config.ipc_sockets;
    options
}
