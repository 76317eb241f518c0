use std::collections::BTreeMap;

use gpu_core::{Gpu, MigDevice};
use gpu_sharing::config::{Config, MigStrategy, ResourceName};

use super::{Sheet, model::Replicated};
use crate::{
    LabelKey, LabelValue, Remark,
    names::{COUNT, MEMORY, PRODUCT, REPLICAS, SHARING_STRATEGY},
};

/// The MIG devices of one profile, with the GPU of the first.
struct Group<'a> {
    gpu: &'a Gpu,
    devices: Vec<&'a MigDevice>,
}

/// The labels of MIG devices, over those of whole GPUs.
pub(super) fn write(sheet: &mut Sheet, gpus: &[&Gpu], config: &Config) {
    let Some(first) = gpus.iter().find(|gpu| gpu.mig_enabled()) else {
        return;
    };
    let groups = groups(sheet, gpus);
    if config.mig_strategy == MigStrategy::Mixed {
        for (profile, group) in &groups {
            // Keys keep the usual name, whatever the resource is called.
            match ResourceName::mig(profile) {
                Ok(name) => group.write(sheet, &name, profile, config),
                Err(error) => sheet.remarks.push(Remark::Profile {
                    profile: profile.clone(),
                    reason: error.to_string(),
                }),
            }
        }
        return;
    }
    match uniform(gpus, &groups) {
        Ok((profile, group)) => group.write(sheet, &ResourceName::gpu(), profile, config),
        Err(reason) => {
            sheet.remarks.push(Remark::InvalidSingle { reason });
            sheet.set(PRODUCT, LabelValue::suffixed(&first.name, "-MIG-INVALID"));
            for key in [COUNT, REPLICAS, MEMORY] {
                sheet.set(key, 0_u32);
            }
            sheet.word(SHARING_STRATEGY, "");
        }
    }
}

/// The devices by profile; one whose profile is not known is in none.
fn groups<'a>(sheet: &mut Sheet, gpus: &[&'a Gpu]) -> BTreeMap<String, Group<'a>> {
    let mut groups: BTreeMap<String, Group<'a>> = BTreeMap::new();
    for &gpu in gpus.iter().filter(|gpu| gpu.mig_enabled()) {
        let devices = gpu.mig.iter().flat_map(|mig| &mig.devices);
        let mut unknown = false;
        for device in devices {
            let Some(profile) = &device.profile else {
                unknown = true;
                continue;
            };
            let group = groups.entry(profile.to_string()).or_insert_with(|| Group {
                gpu,
                devices: Vec::new(),
            });
            group.devices.push(device);
        }
        if unknown {
            sheet.remarks.push(Remark::UnknownMigDevice { index: gpu.index });
        }
    }
    groups
}

/// The one profile of all devices of all GPUs.
fn uniform<'a, 'b>(
    gpus: &[&Gpu],
    groups: &'b BTreeMap<String, Group<'a>>,
) -> Result<(&'b str, &'b Group<'a>), &'static str> {
    let devices = |gpu: &Gpu| gpu.mig.as_ref().map_or(0, |mig| mig.devices.len());
    if gpus.iter().any(|gpu| !gpu.mig_enabled()) {
        return Err("all devices on the node must be configured with the same migEnabled value");
    }
    if gpus.iter().any(|gpu| devices(gpu) == 0) {
        return Err("a GPU in MIG mode has no MIG devices");
    }
    let mut groups = groups.iter();
    match (groups.next(), groups.next()) {
        (Some((profile, group)), None) if group.devices.len() == gpus.iter().map(|gpu| devices(gpu)).sum::<usize>() => {
            Ok((profile, group))
        }
        (Some(_), _) => Err("more than one MIG device type present on node"),
        (None, _) => Err("the profiles of the MIG devices are not known"),
    }
}

impl Group<'_> {
    /// `name` is what keys begin with.
    fn write(&self, sheet: &mut Sheet, name: &ResourceName, profile: &str, config: &Config) {
        let base = name.as_str();
        // The longest of the keys: if it is one, all are.
        if let Err(error) = format!("{base}.sharing-strategy").parse::<LabelKey>() {
            return sheet.remarks.push(Remark::Profile {
                profile: profile.to_owned(),
                reason: error.to_string(),
            });
        }
        let suffix = format!("-MIG-{}", profile.replace('+', "."));
        let resource = config.mig_resource(profile).ok().flatten();
        Replicated::of(config, resource.as_ref().unwrap_or(name)).write(sheet, base, &self.gpu.name, &suffix);
        let count = u64::try_from(self.devices.len()).unwrap_or(u64::MAX);
        sheet.set(&format!("{base}.count"), count);
        let Some(attributes) = self.devices.iter().find_map(|device| device.attributes) else {
            return sheet.remarks.push(Remark::UnknownMigDevice { index: self.gpu.index });
        };
        sheet.set(&format!("{base}.memory"), attributes.memory_mib);
        let engines = attributes.engines;
        for (name, number) in [
            ("multiprocessors", attributes.multiprocessors),
            ("slices.gi", attributes.gpu_slices),
            ("slices.ci", attributes.compute_slices),
            ("engines.copy", engines.copy_engines),
            ("engines.decoder", engines.decoders),
            ("engines.encoder", engines.encoders),
            ("engines.jpeg", engines.jpeg_engines),
            ("engines.ofa", engines.ofa_engines),
        ] {
            sheet.set(&format!("{base}.{name}"), number);
        }
    }
}
