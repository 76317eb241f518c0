//! How well the GPUs of a node reach each other, as numbers.

use std::collections::BTreeMap;

use gpu_core::{CommonAncestor, Fabric, Gpu, GpuUuid, Inventory, NvLinkRemote};

/// Above this number of GPUs the scores of all sets would not fit.
const TABLE_LIMIT: usize = 16;

/// More NVLinks than this between two GPUs score no higher (go-gpuallocator v0.6.0, `gpuallocator/besteffort_policy.go`).
const MOST_LINKS: u32 = 18;

/// How well each two GPUs of a node reach each other, and each set of them.
///
/// The points are those of the vendor's plugin: for the nearest part of the machine above both, and 100 for each NVLink
/// between them. It does not see that GPUs also meet in switches, so that on such machines PCI Express alone decides;
/// here the links that lead to switches count as well, between GPUs of one fabric.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Affinity {
    gpus: Vec<GpuUuid>,
    positions: BTreeMap<GpuUuid, usize>,
    /// Row by row.
    pairs: Vec<u32>,
    /// The score of each set, by its bits; empty where there are too many.
    sets: Vec<u32>,
}

impl Affinity {
    /// That of a node.
    pub fn of(inventory: &Inventory) -> Self {
        let mut gpus: Vec<&Gpu> = inventory.gpus.iter().collect();
        gpus.sort_by_key(|gpu| gpu.pci.address);
        let pairs = gpus
            .iter()
            .flat_map(|one| gpus.iter().map(|other| score(inventory, one, other)));
        Self::new(gpus.iter().map(|gpu| gpu.uuid.clone()).collect(), pairs.collect())
    }

    /// From the scores of all pairs, row by row.
    fn new(gpus: Vec<GpuUuid>, pairs: Vec<u32>) -> Self {
        let positions = gpus.iter().cloned().enumerate().map(|(n, gpu)| (gpu, n)).collect();
        let mut affinity = Self {
            gpus,
            positions,
            pairs,
            sets: Vec::new(),
        };
        if affinity.gpus.len() <= TABLE_LIMIT {
            affinity.sets = affinity.table();
        }
        affinity
    }

    /// Each set's score is that of the set without its first member, and of that member with the others.
    fn table(&self) -> Vec<u32> {
        let mut table = vec![0_u32; 1 << self.gpus.len()];
        for set in 1..table.len() {
            let (first, rest) = (set.trailing_zeros() as usize, set & (set - 1));
            table[set] = table[rest] + bits(rest).map(|other| self.pair(first, other)).sum::<u32>();
        }
        table
    }

    /// The number of GPUs.
    pub fn len(&self) -> usize {
        self.gpus.len()
    }

    /// Whether there is no GPU.
    pub fn is_empty(&self) -> bool {
        self.gpus.is_empty()
    }

    /// The place of a GPU in the order by PCI address.
    pub fn position(&self, gpu: &str) -> Option<usize> {
        let gpu = gpu.parse().ok()?;
        self.positions.get(&gpu).copied()
    }

    /// The score of two GPUs by their places; 0 for a GPU and itself.
    pub fn pair(&self, one: usize, other: usize) -> u32 {
        self.pairs.get(one * self.gpus.len() + other).copied().unwrap_or(0)
    }

    /// The score of a set, given by its bits; `None` where the scores of sets are not known.
    pub(crate) fn set(&self, bits: usize) -> Option<u32> {
        self.sets.get(bits).copied()
    }
}

#[cfg(test)]
impl Affinity {
    /// One of made-up GPUs.
    pub(crate) fn made_up(gpus: usize, score: impl Fn(usize, usize) -> u32) -> Self {
        let uuid = |n| format!("GPU-00000000-0000-4000-8000-{n:012}").parse().expect("a UUID");
        let pairs = (0..gpus).flat_map(|one| (0..gpus).map(move |other| (one.min(other), one.max(other))));
        let pairs = pairs.map(|(one, other)| if one == other { 0 } else { score(one, other) });
        Self::new((0..gpus).map(uuid).collect(), pairs.collect())
    }
}

/// The places of the bits that are set, from the lowest.
pub(crate) fn bits(mut set: usize) -> impl Iterator<Item = usize> {
    std::iter::from_fn(move || {
        let lowest = (set != 0).then(|| set.trailing_zeros() as usize)?;
        set &= set - 1;
        Some(lowest)
    })
}

fn score(inventory: &Inventory, one: &Gpu, other: &Gpu) -> u32 {
    if one.uuid == other.uuid {
        return 0;
    }
    let pair = inventory.pair(one.index, other.index);
    let ancestor = pair.and_then(|pair| pair.common_ancestor).map_or(0, points);
    ancestor + 100 * links(one, other).min(MOST_LINKS)
}

fn points(ancestor: CommonAncestor) -> u32 {
    match ancestor {
        CommonAncestor::Board => 60,
        CommonAncestor::SingleSwitch => 50,
        CommonAncestor::MultipleSwitches => 40,
        CommonAncestor::HostBridge => 30,
        CommonAncestor::NumaNode => 20,
        CommonAncestor::System => 10,
        _ => 0,
    }
}

/// The NVLinks between two GPUs, directly or through switches. Where the two ends tell different numbers, the lower one.
fn links(one: &Gpu, other: &Gpu) -> u32 {
    let direct = |from: &Gpu, to: &Gpu| count(from, |link| link.remote_pci == Some(to.pci.address));
    let switched = |gpu: &Gpu| count(gpu, |link| link.remote == Some(NvLinkRemote::Switch));
    let through = if same_fabric(one.fabric.as_ref(), other.fabric.as_ref()) {
        switched(one).min(switched(other))
    } else {
        0
    };
    direct(one, other).min(direct(other, one)) + through
}

fn count(gpu: &Gpu, leads: impl Fn(&gpu_core::NvLink) -> bool) -> u32 {
    let links = gpu.nvlinks.iter().filter(|link| link.active && leads(link));
    u32::try_from(links.count()).unwrap_or(u32::MAX)
}

/// Whether two GPUs with links to switches meet there. Where no fabric is told, the switches are the node's own.
fn same_fabric(one: Option<&Fabric>, other: Option<&Fabric>) -> bool {
    let clique = |fabric: &Fabric| (fabric.cluster_uuid.clone(), fabric.clique);
    one.map(clique) == other.map(clique)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// Two GPUs with these links, on one PCIe switch.
    #[track_caller]
    fn check(one: serde_json::Value, other: serde_json::Value, expected: u32) {
        let gpu = |index: u32, mut extra: serde_json::Value| {
            let gpu = json!({
                "index": index, "minor": index, "name": "made up",
                "uuid": format!("GPU-00000000-0000-4000-8000-00000000000{index}"),
                "pci": { "address": format!("0000:0{index}:00.0"), "id": "10de:0000" },
            });
            let extra = extra.as_object_mut().unwrap();
            extra.extend(gpu.as_object().unwrap().clone());
            json!(extra)
        };
        let inventory: Inventory = serde_json::from_value(json!({
            "gpus": [gpu(1, one), gpu(2, other)],
            "topology": [{ "gpus": [1, 2], "common_ancestor": "single_switch" }],
        }))
        .unwrap();
        let affinity = Affinity::of(&inventory);
        assert_eq!(affinity.pair(0, 1), expected);
        assert_eq!(affinity.pair(1, 0), expected);
        assert_eq!(affinity.set(0b11), Some(expected));
    }

    fn direct(to: u32, links: u32) -> serde_json::Value {
        let link = |n| json!({ "link": n, "active": true, "remote": "gpu", "remote_pci": format!("0000:0{to}:00.0") });
        json!({ "nvlinks": (0..links).map(link).collect::<Vec<_>>() })
    }

    fn switched(links: u32, clique: Option<u32>) -> serde_json::Value {
        let link = |n| json!({ "link": n, "active": n != 0, "remote": "switch", "remote_pci": "0000:09:00.0" });
        let mut gpu = json!({ "nvlinks": (0..links).map(link).collect::<Vec<_>>() });
        if let Some(clique) = clique {
            let cluster = "00000000-0000-0000-0000-000000000001";
            gpu["fabric"] = json!({ "state": "completed", "cluster_uuid": cluster, "clique": clique });
        }
        gpu
    }

    #[test]
    fn links_between_two_gpus_add_to_what_is_above_them() {
        check(json!({}), json!({}), 50);
        check(direct(2, 4), direct(1, 4), 450);
        check(direct(2, 20), direct(1, 20), 1850);
    }

    #[test]
    fn the_nearer_two_gpus_are_the_more_points_they_have() {
        for (ancestor, expected) in [
            (CommonAncestor::Board, 60),
            (CommonAncestor::SingleSwitch, 50),
            (CommonAncestor::MultipleSwitches, 40),
            (CommonAncestor::HostBridge, 30),
            (CommonAncestor::NumaNode, 20),
            (CommonAncestor::System, 10),
        ] {
            assert_eq!(points(ancestor), expected, "{ancestor:?}");
        }
    }

    #[test]
    fn ends_that_tell_different_numbers_are_no_reason_to_fail() {
        check(direct(2, 4), direct(1, 2), 250);
        check(direct(2, 4), json!({}), 50);
    }

    #[test]
    fn links_to_switches_count_between_gpus_of_one_fabric() {
        check(switched(5, None), switched(5, None), 450); // the first link is down
        check(switched(5, Some(1)), switched(5, Some(1)), 450);
        check(switched(5, Some(1)), switched(5, Some(2)), 50);
    }
}
