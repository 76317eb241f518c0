use std::collections::{BTreeMap, BTreeSet};

use gpu_core::Inventory;

use super::{Configs, DeviceFilter, Devices, Spec};
use crate::mig::{Board, BoardError, Profile, live};

/// Why no file can be made for a node.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NoProfiles {
    /// No GPU can do MIG.
    #[error("this node has no GPU that can do MIG")]
    NoMig,
    /// The driver does not say what GPUs can be divided into while MIG mode is off.
    #[error("the driver tells no profile of GPU {index} while MIG mode is off")]
    Unknown {
        /// The first such GPU.
        index: u32,
    },
    /// What the driver says does not fit together.
    #[error(transparent)]
    Board(#[from] BoardError),
}

/// The file that fits the GPUs of a node: `all-disabled`, `all-enabled`, `all-balanced`, and `all-` each profile that they
/// offer, as many as there can be.
///
/// # Errors
/// If no GPU can do MIG, or the driver of one does not tell its profiles.
pub fn generate(inventory: &Inventory) -> Result<Configs, NoProfiles> {
    let mut boards: BTreeMap<DeviceFilter, Board> = BTreeMap::new();
    for gpu in &inventory.gpus {
        let Some(mig) = &gpu.mig else { continue };
        let board = if mig.profiles.is_empty() {
            None
        } else {
            live::board(gpu)?
        };
        let board = board.ok_or(NoProfiles::Unknown { index: gpu.index })?;
        boards.entry(DeviceFilter::of(gpu)).or_insert(board);
    }
    if boards.is_empty() {
        return Err(NoProfiles::NoMig);
    }
    let several = boards.len() > 1;
    let only = |filter| if several { vec![filter] } else { Vec::new() };
    let mut counts: BTreeMap<String, BTreeMap<DeviceFilter, BTreeMap<Profile, u32>>> = BTreeMap::new();
    let mut mixes = Vec::new();
    for (&filter, board) in &boards {
        for spec in board.profiles() {
            let name = format!("all-{}", spec.profile.label());
            let counts = counts.entry(name).or_default();
            counts.insert(filter, BTreeMap::from([(spec.profile.clone(), spec.max_instances)]));
        }
        if let Some(balanced) = balanced(board) {
            // As the vendor has it, each kind has an entry of its own here.
            mixes.push(spec(only(filter), true, balanced));
        }
    }
    let mut configs: BTreeMap<_, _> = counts
        .into_iter()
        .map(|(name, counts)| (name, specs(&counts, several)))
        .collect();
    if !mixes.is_empty() {
        configs.insert("all-balanced".to_owned(), mixes);
    }
    for (name, mig_enabled) in [("all-disabled", false), ("all-enabled", true)] {
        configs.insert(name.to_owned(), vec![spec(Vec::new(), mig_enabled, BTreeMap::new())]);
    }
    Ok(Configs { configs })
}

/// One entry for each set of counts, with the kinds of GPU that share it.
fn specs(counts: &BTreeMap<DeviceFilter, BTreeMap<Profile, u32>>, several: bool) -> Vec<Spec> {
    let distinct: BTreeSet<_> = counts.values().collect();
    let with = |wanted: &BTreeMap<Profile, u32>| {
        let filters = counts
            .iter()
            .filter(|(_, counts)| *counts == wanted)
            .map(|(&filter, _)| filter);
        let filters = if several { filters.collect() } else { Vec::new() };
        spec(filters, true, wanted.clone())
    };
    distinct.into_iter().map(with).collect()
}

fn spec(device_filter: Vec<DeviceFilter>, mig_enabled: bool, mig_devices: BTreeMap<Profile, u32>) -> Spec {
    Spec {
        device_filter,
        devices: Devices::All,
        mig_enabled,
        mig_devices,
    }
}

/// The vendor's mix for a GPU of seven or four slices; of profiles with as many slices the one that a GPU can have most of.
fn balanced(board: &Board) -> Option<BTreeMap<Profile, u32>> {
    let mix: &[(u32, u32)] = match board.compute_slices() {
        7 => &[(1, 2), (2, 1), (3, 1)],
        4 => &[(1, 2), (2, 1)],
        _ => return None,
    };
    let profile = |slices: u32| {
        let plain = board.profiles().iter().filter(|spec| {
            let profile = &spec.profile;
            profile.slices() == slices && profile.attributes().chain(profile.without()).next().is_none()
        });
        plain
            .max_by_key(|spec| spec.max_instances)
            .map(|spec| spec.profile.clone())
    };
    mix.iter().map(|&(slices, n)| Some((profile(slices)?, n))).collect()
}
