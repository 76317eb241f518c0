//! One device, handed out several times.

use std::collections::BTreeMap;

use gpu_sharing::config::{ResourceName, Shared, SharedResource, Sharing};

use super::{Named, OfferedDevice, Remark, ResourceSet};

/// The resources, with the devices that are shared as replicas, under another name where that is configured.
///
/// Several entries about one resource share different devices of it, each as often as it says; the first that selects a
/// device counts.
pub(super) fn shared(named: Named, sharing: &Sharing, remarks: &mut Vec<Remark>) -> Vec<ResourceSet> {
    let entries = sharing.shared().map_or(&[][..], |shared| &shared.resources);
    let absent = entries
        .iter()
        .map(|entry| &entry.name)
        .filter(|name| !named.contains_key(*name));
    let mut absent: Vec<_> = absent.cloned().collect();
    absent.dedup();
    remarks.extend(absent.into_iter().map(Remark::NothingToShare));

    let mut sets: BTreeMap<ResourceName, Vec<OfferedDevice>> = BTreeMap::new();
    for (name, devices) in named {
        let entries: Vec<_> = entries.iter().filter(|entry| entry.name == name).collect();
        let plan = plan(&name, &devices, &entries, remarks);
        for (mut device, entry) in devices.into_iter().zip(plan) {
            let offered_as = entry
                .and_then(|entry| entry.rename.clone())
                .unwrap_or_else(|| name.clone());
            device.replicas = entry.map(|entry| entry.replicas);
            sets.entry(offered_as).or_default().push(device);
        }
    }
    let fail = sharing
        .shared()
        .is_some_and(|shared: &Shared| shared.fail_requests_greater_than_one);
    let set = |(name, devices)| ResourceSet {
        name,
        devices,
        fail_requests_greater_than_one: fail,
    };
    sets.into_iter().map(set).collect()
}

/// For each device the entry that shares it, if any does. What is to be shared and not there is a remark: it may come.
fn plan<'a>(
    name: &ResourceName,
    devices: &[OfferedDevice],
    entries: &[&'a SharedResource],
    remarks: &mut Vec<Remark>,
) -> Vec<Option<&'a SharedResource>> {
    let references: Vec<_> = devices
        .iter()
        .map(|device| (device.index.as_str(), device.uuid.as_str()))
        .collect();
    let mut plan = vec![None; devices.len()];
    for entry in entries {
        let (selected, missing) = entry.devices.select(&references);
        remarks.extend(missing.into_iter().map(|what| Remark::NotThere {
            resource: name.clone(),
            what,
        }));
        for position in selected {
            plan[position].get_or_insert(*entry);
        }
    }
    plan
}
