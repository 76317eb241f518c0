use std::cmp::Reverse;

use gpu_core::{ComputeCapability, Gpu};
use gpu_sharing::config::{Config, ResourceName};

use super::Sheet;
use crate::LabelValue;

/// The GPUs of one model.
#[derive(Debug)]
pub(super) struct Model<'a> {
    pub(super) name: &'a str,
    /// By PCI address.
    gpus: Vec<&'a Gpu>,
}

impl<'a> Model<'a> {
    /// The models of a node, the one first that its labels are about.
    pub(super) fn all(gpus: &[&'a Gpu]) -> Vec<Self> {
        let mut models: Vec<Self> = Vec::new();
        for &gpu in gpus {
            match models.iter_mut().find(|model| model.name == gpu.name) {
                Some(model) => model.gpus.push(gpu),
                None => models.push(Self {
                    name: &gpu.name,
                    gpus: vec![gpu],
                }),
            }
        }
        // Stable: of equals the one with the first GPU stays before the other.
        models.sort_by_key(|model| (Reverse(model.has_whole()), Reverse(model.gpus.len())));
        models
    }

    /// Whether there is a GPU that is not in MIG mode.
    fn has_whole(&self) -> bool {
        self.gpus.iter().any(|gpu| !gpu.mig_enabled())
    }

    /// The labels of whole GPUs. `base` is what keys begin with.
    pub(super) fn write(&self, sheet: &mut Sheet, base: &str, config: &Config) {
        let resource = config.gpu_resource(self.name);
        let sharing = if self.has_whole() {
            Replicated::of(config, &resource)
        } else {
            // Nobody gets a GPU in MIG mode whole, be it shared.
            Replicated::NONE
        };
        sharing.write(sheet, base, self.name, "");
        let count = u64::try_from(self.gpus.len()).unwrap_or(u64::MAX);
        sheet.set(&format!("{base}.count"), count);
        let memory = self
            .gpus
            .iter()
            .find_map(|gpu| gpu.memory)
            .map(|memory| memory.total_mib());
        if let Some(memory) = memory.filter(|memory| *memory > 0) {
            sheet.set(&format!("{base}.memory"), memory);
        }
        let capability = self.gpus.iter().find_map(|gpu| gpu.compute_capability);
        if let Some(capability) = capability.filter(|capability| capability.major > 0) {
            sheet.set(&format!("{base}.compute.major"), capability.major);
            sheet.set(&format!("{base}.compute.minor"), capability.minor);
            sheet.word(&format!("{base}.family"), family(capability));
        }
    }
}

/// How a resource is shared, as labels say it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Replicated {
    replicas: u32,
    strategy: &'static str,
    /// Whether the replicas go by the resource's own name, so that the product's has to tell.
    marked: bool,
}

impl Replicated {
    const NONE: Self = Self {
        replicas: 0,
        strategy: "none",
        marked: false,
    };

    pub(super) fn of(config: &Config, resource: &ResourceName) -> Self {
        match config.sharing.resource(resource) {
            Some(shared) => Self {
                replicas: shared.replicas,
                strategy: config.sharing.as_str(),
                marked: shared.rename.is_none(),
            },
            None => Self {
                replicas: 1,
                ..Self::NONE
            },
        }
    }

    pub(super) fn write(self, sheet: &mut Sheet, base: &str, model: &str, suffix: &str) {
        let shared = if self.marked { "-SHARED" } else { "" };
        let product = LabelValue::suffixed(model, &format!("{suffix}{shared}"));
        sheet.set(&format!("{base}.product"), product);
        sheet.set(&format!("{base}.replicas"), self.replicas);
        sheet.word(&format!("{base}.sharing-strategy"), self.strategy);
    }
}

/// The chip's generation by its compute capability.
fn family(capability: ComputeCapability) -> &'static str {
    match (capability.major, capability.minor) {
        (1, _) => "tesla",
        (2, _) => "fermi",
        (3, _) => "kepler",
        (5, _) => "maxwell",
        (6, _) => "pascal",
        (7, 0..5) => "volta",
        (7, _) => "turing",
        (8, 0..9) => "ampere",
        (8, _) => "ada-lovelace",
        (9, _) => "hopper",
        // 11 is Thor, which the vendor's program v0.20.0 calls `undefined`.
        (10..=12, _) => "blackwell",
        (13, _) => "rubin",
        _ => "undefined",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn families_follow_the_compute_capability() {
        #[track_caller]
        fn check(capability: &str, expected: &str) {
            assert_eq!(family(capability.parse().unwrap()), expected, "{capability}");
        }
        for (capability, expected) in [
            ("1.3", "tesla"),
            ("2.0", "fermi"),
            ("3.7", "kepler"),
            ("4.0", "undefined"),
            ("5.2", "maxwell"),
            ("6.1", "pascal"),
            ("7.0", "volta"),
            ("7.2", "volta"),
            ("7.5", "turing"),
            ("8.0", "ampere"),
            ("8.7", "ampere"),
            ("8.9", "ada-lovelace"),
            ("9.0", "hopper"),
            ("10.0", "blackwell"),
            ("11.0", "blackwell"),
            ("12.1", "blackwell"),
            ("13.0", "rubin"),
            ("14.0", "undefined"),
        ] {
            check(capability, expected);
        }
    }
}
