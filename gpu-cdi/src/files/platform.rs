use std::{fmt, path::Path};

use gpu_core::{Gpu, Inventory, ProblemKind};

use super::{DiscoverConfig, device_nodes, found::Search, wsl};
use crate::Result;

/// Most bytes of the file that names a chip's family.
const LIMIT: u64 = 4096;

/// How a machine has its GPUs, and so how they are described.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Platform {
    /// On a bus: NVML tells all of them ([`generate`](crate::generate)).
    Nvml,
    /// One in the chip: csv files tell what it needs ([`generate_tegra`](crate::generate_tegra)).
    Tegra,
    /// Those of Windows, lent to its subsystem for Linux, and all of them at once ([`generate_wsl`](crate::generate_wsl)).
    Wsl,
}

impl Platform {
    /// As the vendor's programs tell them (go-nvlib v0.12.0, `pkg/nvlib/info/resolver.go`), from what files show and what NVML
    /// lists; `None` where there is no NVML.
    ///
    /// They go by the name of the GPU where NVML knows the one in the chip. NVML may know no more of it than that: then it is a
    /// Tegra's whose files say so.
    pub fn of(signs: PlatformSigns, nvml: Option<&Inventory>) -> Self {
        let integrated = |nvml: &Inventory| nvml.gpus.iter().any(is_integrated);
        if signs.windows {
            Self::Wsl
        } else if nvml.is_some_and(integrated) || signs.tegra && nvml.is_none_or(describes_none) {
            Self::Tegra
        } else {
            Self::Nvml
        }
    }
}

impl fmt::Display for Platform {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Nvml => "NVML",
            Self::Tegra => "a Tegra machine",
            Self::Wsl => "Windows' subsystem for Linux",
        })
    }
}

/// What files show of a machine.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PlatformSigns {
    /// There is the node or the library that leads to Windows.
    pub windows: bool,
    /// It calls itself a Tegra.
    pub tegra: bool,
}

impl PlatformSigns {
    /// Looks for them beneath the three roots of `config`; no library is loaded for it.
    ///
    /// # Errors
    /// As for [`DriverFiles::discover`](crate::DriverFiles::discover).
    pub fn discover(config: &DiscoverConfig) -> Result<Self> {
        let dev_root = config.dev_root.as_ref().unwrap_or(&config.driver_root);
        let mut signs = Self::default();
        for (what, root) in [
            ("driver root", &config.driver_root),
            ("device root", dev_root),
            ("root of /sys and /proc", &config.sys_root),
        ] {
            let mut search = Search::new(DiscoverConfig::open(what, root)?);
            let node = device_nodes::node(&mut search, config.device_rule, wsl::NODE);
            signs.windows |= node.is_some() || search.target(Path::new(wsl::DXCORE)).is_some();
            signs.tegra |= is_tegra(&mut search);
            search.finish()?;
        }
        Ok(signs)
    }
}

fn is_tegra(search: &mut Search) -> bool {
    let family = search.root.read(Path::new("/sys/devices/soc0/family"), LIMIT);
    let named = family.is_ok_and(|family| family.to_ascii_lowercase().starts_with(b"tegra"));
    named || search.file(Path::new("/etc/nv_tegra_release"), |_| true).is_some()
}

/// By its name, as the vendor's programs tell it: that of an Orin is `Orin (nvgpu)`.
fn is_integrated(gpu: &Gpu) -> bool {
    gpu.name.contains("(nvgpu)") || gpu.name.contains("NVIDIA Thor")
}

/// Whether NVML lists GPUs and can describe none of them: that of an Orin has no PCI address.
fn describes_none(nvml: &Inventory) -> bool {
    let unreadable = nvml
        .problems
        .iter()
        .all(|problem| problem.kind == ProblemKind::Unreadable);
    nvml.gpus.is_empty() && !nvml.problems.is_empty() && unreadable
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const WINDOWS: PlatformSigns = PlatformSigns {
        windows: true,
        tegra: false,
    };
    const TEGRA: PlatformSigns = PlatformSigns {
        windows: false,
        tegra: true,
    };
    const NONE: PlatformSigns = PlatformSigns {
        windows: false,
        tegra: false,
    };

    /// What NVML lists: GPUs of these names, and others with problems of these kinds.
    fn nvml(names: &[&str], problems: &[&str]) -> Inventory {
        let gpu = |(index, name): (usize, &&str)| {
            json!({
                "index": index, "minor": index, "name": name,
                "uuid": format!("GPU-00000000-0000-4000-8000-{index:012}"),
                "pci": { "address": format!("0000:0{index}:00.0"), "id": "10de:0000" },
            })
        };
        let problem = |kind: &&str| json!({ "index": 0, "kind": kind, "call": "nvmlDeviceGetPciInfo_v3", "message": "not supported" });
        serde_json::from_value(json!({
            "gpus": names.iter().enumerate().map(gpu).collect::<Vec<_>>(),
            "problems": problems.iter().map(problem).collect::<Vec<_>>(),
        }))
        .unwrap()
    }

    #[test]
    fn a_platform_is_told_by_files_and_by_what_nvml_lists() {
        /// `listed` by NVML, where there is one.
        #[track_caller]
        fn check(signs: PlatformSigns, listed: Option<(&[&str], &[&str])>, expected: Platform) {
            let nvml = listed.map(|(names, problems)| nvml(names, problems));
            assert_eq!(Platform::of(signs, nvml.as_ref()), expected);
        }
        let (discrete, orin, thor) = ("NVIDIA H100", "Orin (nvgpu)", "NVIDIA Thor");
        check(NONE, None, Platform::Nvml);
        check(NONE, Some((&[discrete], &[])), Platform::Nvml);
        check(NONE, Some((&[], &["unreadable"])), Platform::Nvml);
        check(NONE, Some((&[orin], &[])), Platform::Tegra);
        check(NONE, Some((&[discrete, thor], &[])), Platform::Tegra);
        check(TEGRA, None, Platform::Tegra);
        check(TEGRA, Some((&[discrete], &["unreadable"])), Platform::Nvml);
        check(TEGRA, Some((&[], &["unreadable"])), Platform::Tegra);
        check(TEGRA, Some((&[], &["lost"])), Platform::Nvml);
        check(TEGRA, Some((&[], &[])), Platform::Nvml);
        let both = PlatformSigns { windows: true, ..TEGRA };
        for signs in [WINDOWS, both] {
            check(signs, None, Platform::Wsl);
            check(signs, Some((&[orin], &[])), Platform::Wsl);
        }
    }
}
