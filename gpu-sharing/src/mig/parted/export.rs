use std::collections::{BTreeMap, BTreeSet};

use gpu_core::{Gpu, Inventory, Usage};

use super::{Configs, DeviceFilter, Devices, Spec, select};
use crate::mig::live;

/// The file that describes the GPUs of a node as they are, under one name.
///
/// GPUs that are alike are one entry. A GPU instance without a compute instance is no MIG device, and is left out.
pub fn export(inventory: &Inventory, name: &str) -> Configs {
    let kinds: BTreeSet<_> = inventory.gpus.iter().map(DeviceFilter::of).collect();
    let mut alike: Vec<(Spec, Vec<&Gpu>)> = Vec::new();
    for gpu in &inventory.gpus {
        let demand = select::devices(&live::held(gpu, &Usage::default()));
        let spec = Spec {
            device_filter: Vec::new(),
            devices: Devices::All,
            mig_enabled: gpu.mig_enabled(),
            mig_devices: demand.iter().map(|(profile, n)| (profile.clone(), n)).collect(),
        };
        match alike.iter_mut().find(|(known, _)| *known == spec) {
            Some((_, gpus)) => gpus.push(gpu),
            None => alike.push((spec, vec![gpu])),
        }
    }
    // One entry for the whole node needs no filter, whatever its GPUs are.
    let filtered = kinds.len() > 1 && alike.len() > 1;
    let specs = alike.into_iter().map(|(spec, gpus)| {
        let filters: BTreeSet<_> = gpus.iter().map(|gpu| DeviceFilter::of(gpu)).collect();
        let of_kinds = inventory
            .gpus
            .iter()
            .filter(|gpu| filters.contains(&DeviceFilter::of(gpu)));
        let all = of_kinds.count() == gpus.len();
        Spec {
            device_filter: if filtered {
                filters.into_iter().collect()
            } else {
                Vec::new()
            },
            devices: if all {
                Devices::All
            } else {
                Devices::Indices(gpus.iter().map(|gpu| gpu.index).collect())
            },
            ..spec
        }
    });
    Configs {
        configs: BTreeMap::from([(name.to_owned(), specs.collect())]),
    }
}
