//! The spec of the GPUs of a machine, whatever it is.

use gpu_cdi::{
    DiscoverConfig, DriverFiles, GenerateOptions, Generated, NameStrategy, ORIN_COMPAT_DIR, Platform, SkippedDevice,
    Spec, TegraConfig, TegraFiles, WslFiles, generate, generate_tegra, generate_wsl,
};
use gpu_core::Inventory;

use crate::{Result, error::chain, names::TEGRA_DEVICE, node::Machine};

/// Describes the GPUs; no spec where nothing can be described. What cannot be is told in words, and what is missing from the spec in
/// the remarks.
///
/// GPUs that are one device have the names by which answers call them, whatever the options say.
pub(super) fn describe(
    machine: &Machine,
    files: &DriverFiles,
    config: &DiscoverConfig,
    options: &GenerateOptions,
    remarks: &mut Vec<String>,
) -> Result<(Option<Spec>, Vec<String>)> {
    let generated = match machine.platform {
        Platform::Tegra => whole(tegra(&machine.inventory, config, options, remarks)),
        Platform::Wsl => whole(wsl(config, options, remarks)),
        _ => generate(&machine.inventory, files, options),
    };
    let words_of = |skipped: &[SkippedDevice]| skipped.iter().map(ToString::to_string).collect();
    match generated {
        Ok(Generated { spec, skipped }) => Ok((Some(spec), words_of(&skipped))),
        Err(gpu_cdi::Error::NothingToDescribe { skipped }) => Ok((None, words_of(&skipped))),
        Err(error @ gpu_cdi::Error::NothingFound { .. }) => Ok((None, vec![chain(&error)])),
        Err(error) => Err(error.into()),
    }
}

fn whole(spec: gpu_cdi::Result<Spec>) -> gpu_cdi::Result<Generated> {
    let skipped = Vec::new();
    spec.map(|spec| Generated { spec, skipped })
}

/// With the names by index and in the place of a UUID: the vendor's plugin has no CDI device where devices go by UUIDs.
fn tegra(
    inventory: &Inventory,
    config: &DiscoverConfig,
    options: &GenerateOptions,
    remarks: &mut Vec<String>,
) -> gpu_cdi::Result<Spec> {
    let mut csv = TegraConfig::new(&config.driver_root);
    csv.dev_root.clone_from(&config.dev_root);
    csv.device_rule = config.device_rule;
    let files = TegraFiles::discover(&csv)?;
    remarks.extend(files.problems.iter().map(ToString::to_string));
    let mut options = options.clone();
    options.names = vec![NameStrategy::Index];
    let mut spec = generate_tegra(Some(inventory), &files, &options, ORIN_COMPAT_DIR)?;
    if let Some(mut twin) = spec.devices.first().cloned() {
        twin.name = TEGRA_DEVICE.parse().expect("a device name");
        spec.devices.push(twin);
    }
    Ok(spec)
}

fn wsl(config: &DiscoverConfig, options: &GenerateOptions, remarks: &mut Vec<String>) -> gpu_cdi::Result<Spec> {
    let files = WslFiles::discover(config)?;
    remarks.extend(files.problems.iter().map(ToString::to_string));
    generate_wsl(&files, options)
}
