use serde::Deserialize;

use crate::{
    data::{self, Catalog, catalog},
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
    /// Name of the [`Board`](crate::Board), where it is another than the profile's.
    pub board: Option<String>,
    /// The PCIe switch it hangs on, if on any: GPUs with the same number share one.
    pub switch: Option<u32>,
    /// The card it is on, where several GPUs share one: they have its serial number.
    pub card: Option<u32>,
}

static PROFILES: Catalog<Profile> = catalog!(data::PROFILES);

/// The node templates, by name.
pub fn profiles() -> impl Iterator<Item = &'static Profile> {
    PROFILES.all()
}

/// The profile of that name, else the first one with a board of that name; upper and lower case are the same.
pub(crate) fn find(name: &str) -> Option<&'static Profile> {
    PROFILES.find("name", name).or_else(|| PROFILES.find("board", name))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{board, driver};

    #[test]
    fn every_profile_file_names_a_board_and_a_driver_and_lists_slots_in_pci_order() {
        for text in data::PROFILES {
            let profile: Profile = serde_saphyr::from_str(text).unwrap_or_else(|error| panic!("{text}{error}"));
            let boards = profile.slots.iter().filter_map(|slot| slot.board.as_ref());
            for board in boards.chain([&profile.board]) {
                assert!(board::find(board).is_some(), "{} {board}", profile.name);
            }
            assert!(driver::find(&profile.driver).is_ok(), "{}", profile.name);
            assert!(profile.slots.is_sorted_by(|a, b| a.pci < b.pci), "{}", profile.name);
        }
        for board in crate::boards() {
            assert!(find(&board.name).is_some(), "{} is in no profile", board.name);
        }
    }

    #[test]
    fn a_board_name_stands_for_its_first_profile() {
        assert_eq!(find("H200-141GB").map(|profile| profile.name.as_str()), Some("h200"));
        assert!(find("h300").is_none());
    }
}
