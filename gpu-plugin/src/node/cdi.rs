//! The plugin's CDI files.

use std::{fs, path::Path};

use gpu_cdi::{DriverFiles, GenerateOptions, Kind, NameStrategy, Spec, generate, generate_companion, generate_imex};
use gpu_core::Inventory;
use gpu_sharing::config::DeviceIdStrategy;

use super::{NodeConfig, answers::gates, retain};
use crate::{Answers, ResourceSet, Result, names};

/// Describes what is offered; what cannot be described is not offered, since a pod with it could not start.
pub(super) fn describe(
    inventory: &Inventory,
    files: &DriverFiles,
    config: &NodeConfig,
    answers: &mut Answers,
    resources: &mut Vec<ResourceSet>,
    remarks: &mut Vec<String>,
) -> Result<()> {
    let options = options(config, "gpu");
    let (spec, skipped) = match generate(inventory, files, &options) {
        Ok(generated) => (Some(generated.spec), generated.skipped),
        Err(gpu_cdi::Error::NothingToDescribe { skipped }) => (None, skipped),
        Err(error) => return Err(error.into()),
    };
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
        write(&spec, &config.cdi_dir)?;
    }
    for (companion, _) in gates(&config.config) {
        match generate_companion(companion, files, &self::options(config, companion.as_str())) {
            Ok(spec) => {
                write(&spec, &config.cdi_dir)?;
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
        let spec = generate_imex(files, &channels, &self::options(config, "imex-channel"))?;
        write(&spec, &config.cdi_dir)?;
    }
    Ok(())
}

fn options(config: &NodeConfig, class: &str) -> GenerateOptions {
    let settings = &config.config;
    let mut options = GenerateOptions::default();
    options.kind = Kind::new(names::CDI_VENDOR, class).expect("a valid kind");
    options.names = vec![match settings.plugin.device_id_strategy {
        DeviceIdStrategy::Uuid => NameStrategy::Uuid,
        DeviceIdStrategy::Index => NameStrategy::Index,
    }];
    options.all_device = false;
    options.host_driver_root = Some(settings.nvidia_driver_root.clone());
    options.host_dev_root = Some(settings.nvidia_dev_root.clone());
    options.hook_path.clone_from(&settings.plugin.nvidia_ctk_path);
    options.disabled_hooks.clone_from(&config.disabled_hooks);
    options.additional_gids = config.additional_gids;
    options.ipc_sockets = config.ipc_sockets;
    options
}

/// Writes the file of a spec unless it is there already: runtimes read anew whatever changes.
fn write(spec: &Spec, folder: &Path) -> Result<()> {
    let path = folder.join(format!("{}.json", spec.kind.file_stem()));
    let known = fs::read_to_string(&path).ok();
    let known = known.and_then(|text| Spec::from_text(&text, gpu_cdi::Format::Json).ok());
    if known.as_ref() != Some(spec) {
        spec.write(&path)?;
        tracing::info!(path = %path.display(), "wrote the CDI file");
    }
    Ok(())
}
