//! What MIG devices are offered as.

use gpu_core::{Gpu, MigDevice};
use gpu_sharing::config::{Config, MigStrategy};

use super::{Named, OfferError, OfferedDevice, Remark};

/// The devices of these GPUs by the resource that they belong to.
pub(super) fn named(gpus: &[&Gpu], config: &Config, remarks: &mut Vec<Remark>) -> Result<Named, OfferError> {
    if config.mig_strategy == MigStrategy::Single {
        check_single(gpus)?;
    }
    let mut named = Named::new();
    for gpu in gpus {
        if config.mig_strategy == MigStrategy::None || !gpu.mig_enabled() {
            let name = config.gpu_resource(&gpu.name);
            named.entry(name).or_default().push(OfferedDevice::whole(gpu));
            continue;
        }
        if devices(gpu).next().is_none() {
            let (index, gpu) = (gpu.index, gpu.uuid.clone());
            remarks.push(Remark::NoMigDevices { index, gpu });
        }
        for device in devices(gpu) {
            add(&mut named, gpu, device, config, remarks)?;
        }
    }
    Ok(named)
}

fn add(
    named: &mut Named,
    gpu: &Gpu,
    device: &MigDevice,
    config: &Config,
    remarks: &mut Vec<Remark>,
) -> Result<(), OfferError> {
    let profile = device.profile.as_ref().map(ToString::to_string);
    let taken = config.mig_strategy == MigStrategy::Single || is_taken(device, profile.as_deref(), config);
    let Some(profile) = profile.filter(|_| taken) else {
        count(remarks, device.profile.as_ref().map(ToString::to_string));
        return Ok(());
    };
    let name = config
        .mig_resource(&profile)
        .map_err(|source| OfferError::Profile { profile, source })?;
    if let Some(name) = name {
        named.entry(name).or_default().push(OfferedDevice::mig(gpu, device));
    }
    Ok(())
}

/// Strategy `mixed` has a resource for each profile with as many compute slices as GPU slices, and for what a rule names.
fn is_taken(device: &MigDevice, profile: Option<&str>, config: &Config) -> bool {
    let whole = |device: &MigDevice| {
        let attributes = device.attributes.as_ref();
        attributes.is_none_or(|attributes| attributes.compute_slices == attributes.gpu_slices)
    };
    let ruled = |profile: &str| config.resources.mig.iter().any(|rule| rule.matches(profile));
    profile.is_some_and(|profile| whole(device) || ruled(profile))
}

/// One remark for all devices of a profile.
fn count(remarks: &mut Vec<Remark>, of: Option<String>) {
    for remark in remarks.iter_mut() {
        if let Remark::NoResource { profile, count } = remark
            && *profile == of
        {
            *count += 1;
            return;
        }
    }
    remarks.push(Remark::NoResource { profile: of, count: 1 });
}

fn check_single(gpus: &[&Gpu]) -> Result<(), OfferError> {
    let divided: Vec<_> = gpus.iter().filter(|gpu| gpu.mig_enabled()).collect();
    if let Some(gpu) = divided.iter().find(|gpu| devices(gpu).next().is_none()) {
        return Err(OfferError::NoMigDevices { index: gpu.index });
    }
    let mut kinds = divided
        .iter()
        .flat_map(|gpu| devices(gpu))
        .map(|device| (&device.profile, &device.attributes));
    if let Some(first) = kinds.next()
        && kinds.any(|kind| kind != first)
    {
        return Err(OfferError::NotUniform);
    }
    if !divided.is_empty() && divided.len() < gpus.len() {
        return Err(OfferError::NotAllMig);
    }
    Ok(())
}

fn devices(gpu: &Gpu) -> impl Iterator<Item = &MigDevice> {
    gpu.mig.iter().flat_map(|mig| &mig.devices)
}
