//! Agreeing with the other programs of the node.

use std::collections::BTreeSet;

use gpu_core::{
    GpuUuid,
    ownership::{Owner, OwnerFile, OwnershipError},
};

use super::words;

/// Claims the GPUs for device plugins, and gives up those that it had and does not want any more. Those that are refused
/// because another owns them are returned, and remarked on.
///
/// A file that cannot be used takes nothing away: the vendor's plugin knows of none.
pub(super) fn claim(file: &OwnerFile, gpus: &[GpuUuid], remarks: &mut Vec<String>) -> BTreeSet<GpuUuid> {
    let owned = match file.read() {
        Ok(owners) => owners.owners,
        Err(error) => {
            remarks.push(format!("nobody is asked who owns the GPUs: {}", words(&error)));
            return BTreeSet::new();
        }
    };
    let mut refused = BTreeSet::new();
    let by_another = |gpu: &&GpuUuid| owned.get(*gpu).is_some_and(|claim| claim.owner != Owner::DevicePlugin);
    let (others, mut free): (Vec<_>, Vec<_>) = gpus.iter().partition(by_another);
    for gpu in others {
        let owner = owned[gpu].owner;
        remarks.push(format!(
            "{gpu} is not offered: it is owned by {owner} ({})",
            file.path().display()
        ));
        refused.insert(gpu.clone());
    }
    // Another may have been faster: then those are left to it.
    loop {
        let wanted: Vec<_> = free.iter().map(|gpu| (*gpu).clone()).collect();
        match file.claim(Owner::DevicePlugin, &wanted) {
            Ok(()) => break,
            Err(OwnershipError::Owned { others }) => {
                for (gpu, owner) in others {
                    remarks.push(format!(
                        "{gpu} is not offered: it is owned by {owner} ({})",
                        file.path().display()
                    ));
                    free.retain(|free| **free != gpu);
                    refused.insert(gpu);
                }
            }
            Err(error @ OwnershipError::OtherDraDriver { .. }) => {
                remarks.push(format!("no GPU is offered: {}", words(&error)));
                refused.extend(wanted);
                break;
            }
            Err(error) => {
                remarks.push(format!("the GPUs are offered without a claim: {}", words(&error)));
                break;
            }
        }
    }
    let mine = owned.iter().filter(|(_, claim)| claim.owner == Owner::DevicePlugin);
    let unwanted: Vec<_> = mine
        .map(|(gpu, _)| gpu)
        .filter(|gpu| !gpus.contains(gpu))
        .cloned()
        .collect();
    if !unwanted.is_empty()
        && let Err(error) = file.release(Owner::DevicePlugin, &unwanted)
    {
        remarks.push(format!("GPUs that are offered no more stay claimed: {}", words(&error)));
    }
    refused
}
