use std::{collections::HashSet, hash::Hash};

use crate::{ContainerEdits, Spec};

/// Removes what is there twice, takes from devices what every container gets anyway, and sorts.
pub(super) fn simplify(spec: &mut Spec) {
    deduplicate(&mut spec.container_edits);
    sort(&mut spec.container_edits);
    for device in &mut spec.devices {
        let edits = &mut device.container_edits;
        deduplicate(edits);
        let mut rest = edits.clone();
        subtract(&mut rest, &spec.container_edits);
        // A device without edits is no valid one.
        if !rest.is_empty() {
            *edits = rest;
        }
        sort(edits);
    }
    spec.devices.sort_by(|a, b| a.name.cmp(&b.name));
}

fn deduplicate(edits: &mut ContainerEdits) {
    once(&mut edits.env);
    once(&mut edits.device_nodes);
    once(&mut edits.hooks);
    once(&mut edits.mounts);
    edits.additional_gids.sort_unstable();
    edits.additional_gids.dedup();
}

pub(super) fn once<T: Clone + Eq + Hash>(entries: &mut Vec<T>) {
    let mut seen = HashSet::with_capacity(entries.len());
    entries.retain(|entry| seen.insert(entry.clone()));
}

fn subtract(edits: &mut ContainerEdits, common: &ContainerEdits) {
    edits.env.retain(|entry| !common.env.contains(entry));
    edits.device_nodes.retain(|entry| !common.device_nodes.contains(entry));
    edits.hooks.retain(|entry| !common.hooks.contains(entry));
    edits.mounts.retain(|entry| !common.mounts.contains(entry));
}

/// Orders nodes and mounts by depth and path; the order of variables and hooks means something.
fn sort(edits: &mut ContainerEdits) {
    let depth = |path: &str| path.split('/').filter(|part| !part.is_empty()).count();
    edits
        .device_nodes
        .sort_by(|a, b| (depth(&a.path), &a.path).cmp(&(depth(&b.path), &b.path)));
    edits.mounts.sort_by(|a, b| {
        let key = |mount: &crate::Mount| (depth(&mount.container_path), mount.container_path.clone());
        key(a).cmp(&key(b)).then_with(|| a.host_path.cmp(&b.host_path))
    });
}
