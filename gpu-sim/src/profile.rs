use std::sync::LazyLock;

use serde::Deserialize;

use crate::{
    node_file::{Fabric, NvLink},
    pci::PciAddress,
};

/// A node template: which board, where the GPUs sit, how they are linked.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct Profile {
    /// What [`NodeSpec::new`](crate::NodeSpec::new) takes.
    pub name: String,
    /// One line for people.
    pub summary: String,
    /// Name of the [`Board`](crate::Board).
    pub board: String,
    /// Driver version unless another is asked for.
    pub driver: String,
    /// Product name of the machine, in `/sys/class/dmi/id/product_name`.
    pub machine: String,
    /// `nvmlGpuVirtualizationMode_t`: 0 on bare metal, 1 when passed through to a virtual machine.
    #[serde(default)]
    pub virtualization: u32,
    /// The places for GPUs, in PCI order. The first ones are filled.
    pub slots: Vec<Slot>,
    /// NVLink, if the GPUs have it.
    pub nvlink: Option<NvLink>,
    /// The NVLink fabric, if a fabric manager has set one up.
    pub fabric: Option<Fabric>,
}

/// A place for a GPU.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Slot {
    /// PCI address.
    pub pci: PciAddress,
    /// NUMA node; none where the firmware names none.
    pub numa: Option<u32>,
    /// Module number on the base board.
    pub module: u32,
}

const FILES: [&str; 3] = [
    include_str!("../profiles/h100.yaml"),
    include_str!("../profiles/h200.yaml"),
    include_str!("../profiles/h200-vm.yaml"),
];

static PROFILES: LazyLock<Vec<Profile>> = LazyLock::new(|| {
    FILES
        .iter()
        .filter_map(|text| serde_saphyr::from_str(text).ok())
        .collect()
});

/// The node templates, by name.
pub fn profiles() -> &'static [Profile] {
    &PROFILES
}

/// The profile of that name, else the first one with a board of that name; upper and lower case are the same.
pub(crate) fn find(name: &str) -> Option<&'static Profile> {
    let named = profiles()
        .iter()
        .find(|profile| profile.name.eq_ignore_ascii_case(name));
    named.or_else(|| {
        profiles()
            .iter()
            .find(|profile| profile.board.eq_ignore_ascii_case(name))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{board, driver};

    #[test]
    fn every_profile_file_names_a_board_and_a_driver_and_lists_slots_in_pci_order() {
        for text in FILES {
            let profile: Profile = serde_saphyr::from_str(text).unwrap();
            assert!(board::find(&profile.board).is_some(), "{}", profile.name);
            assert!(driver::find(&profile.driver).is_ok(), "{}", profile.name);
            assert!(profile.slots.is_sorted_by(|a, b| a.pci < b.pci), "{}", profile.name);
        }
        assert_eq!(profiles().len(), FILES.len());
    }

    #[test]
    fn a_board_name_stands_for_its_first_profile() {
        assert_eq!(find("H200-141GB").map(|profile| profile.name.as_str()), Some("h200"));
        assert!(find("h300").is_none());
    }
}
