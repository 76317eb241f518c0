mod check;

use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::{Error, PciAddress, Result, board, document, driver, profile::Profile, seed, spec::NodeSpec};

/// What `node.yaml` holds: everything a node is made of.
///
/// It may be edited by hand; processes see the change when they next initialise NVML. What happens to a node while it
/// runs is not here but in its `state/` folder.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct NodeFile {
    /// Version of this format: 1.
    pub version: u32,
    /// The profile it was made from, for people.
    pub profile: String,
    /// The seed it was made from, for people.
    pub seed: u64,
    /// Product name of the machine.
    pub machine: String,
    /// Full driver version.
    pub driver: String,
    /// `nvmlGpuVirtualizationMode_t`.
    #[serde(default)]
    pub virtualization: u32,
    /// NVLink, if the GPUs have it.
    pub nvlink: Option<NvLink>,
    /// The NVLink fabric, if there is one.
    pub fabric: Option<Fabric>,
    /// The GPUs. Once read they are in PCI order, as NVML's indices are; in the file any order will do.
    pub gpus: Vec<GpuEntry>,
}

/// NVLink of every GPU of a node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NvLink {
    /// `nvmlNvlinkVersion_t`.
    pub version: u32,
    /// Links per GPU.
    pub links: u32,
    /// PCI addresses of the NVSwitch chips; the links are spread over them. None are named where they are elsewhere.
    pub switches: Vec<PciAddress>,
    /// PCI device id of those chips. Default: that of the Hopper generation.
    #[serde(default = "hopper_switch")]
    pub switch_device: u16,
    /// Whether instead GPUs 0 and 1, 2 and 3, … are bridged.
    #[serde(default)]
    pub bridged_pairs: bool,
}

fn hopper_switch() -> u16 {
    0x22a3
}

/// The NVLink fabric that the GPUs of a node belong to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Fabric {
    /// UUID of the cluster, in the usual form.
    pub cluster: String,
    /// The clique within it.
    pub clique: u32,
}

impl Fabric {
    /// The cluster's UUID as NVML hands it out.
    pub(crate) fn cluster_bytes(&self) -> Option<[u8; 16]> {
        let digits: String = self.cluster.chars().filter(|&c| c != '-').collect();
        let number = u128::from_str_radix(&digits, 16).ok()?;
        (digits.len() == 32).then_some(number.to_be_bytes())
    }
}

/// One GPU of a node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct GpuEntry {
    /// Name of its [`Board`](crate::Board).
    pub board: String,
    /// UUID with the prefix `GPU-`.
    pub uuid: String,
    /// Serial number.
    pub serial: String,
    /// Per-device identifier.
    pub pdi: u64,
    /// PCI address. NVML's indices follow it.
    pub pci: PciAddress,
    /// Number of its device node: `/dev/nvidia<minor>`. It need not follow the PCI order.
    pub minor: u32,
    /// NUMA node; none where the firmware names none.
    pub numa: Option<u32>,
    /// Module number on the base board.
    pub module: u32,
    /// The PCIe switch it hangs on, if on any: GPUs with the same number share one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub switch: Option<u32>,
    /// The card it is on, where several GPUs share one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub card: Option<u32>,
}

impl NodeFile {
    /// The file's name within a node's folder.
    pub(crate) const NAME: &str = "node.yaml";

    const VERSION: u32 = 1;

    pub(crate) fn new(spec: &NodeSpec, profile: &Profile, driver: &driver::Driver) -> Result<Self> {
        let count = spec.gpus.unwrap_or(profile.slots.len());
        let slots = profile.slots.get(..count).ok_or_else(|| Error::TooManyGpus {
            profile: profile.name.clone(),
            asked: count,
            room: profile.slots.len(),
        })?;
        let order = if spec.permute_pci {
            seed::permutation(spec.seed, count)
        } else {
            (0..count).collect()
        };
        let gpu = |minor: usize, slot: &crate::Slot| {
            let minor = minor as u64;
            let board = slot.board.as_ref().unwrap_or(&profile.board);
            let prefix = board::find(board).map_or("", |board| board.serial_prefix.as_str());
            let card = slot.card.map_or(minor, u64::from);
            GpuEntry {
                board: board.clone(),
                uuid: format!("GPU-{}", seed::uuid(spec.seed, minor)),
                serial: format!(
                    "{prefix}{:010}",
                    seed::number(spec.seed, card, "serial") % 10_000_000_000
                ),
                pdi: seed::number(spec.seed, minor, "pdi"),
                pci: slot.pci,
                minor: u32::try_from(minor).unwrap_or(u32::MAX),
                numa: slot.numa,
                module: slot.module,
                switch: slot.switch,
                card: slot.card,
            }
        };
        let mut gpus: Vec<GpuEntry> = order
            .iter()
            .enumerate()
            .filter_map(|(minor, &place)| Some(gpu(minor, slots.get(place)?)))
            .collect();
        gpus.sort_by_key(|gpu| gpu.pci);
        Ok(Self {
            version: Self::VERSION,
            profile: profile.name.clone(),
            seed: spec.seed,
            machine: profile.machine.clone(),
            driver: driver.version.to_owned(),
            virtualization: profile.virtualization,
            nvlink: profile.nvlink.clone(),
            fabric: profile.fabric.clone(),
            gpus,
        })
    }

    /// Reads the file and checks that it makes sense.
    pub(crate) fn read(path: &Path) -> Result<Self> {
        let text = document::text(path).map_err(Error::read(path))?;
        Self::parse(&text, path)
    }

    /// The same from text; `path` is for messages.
    pub(crate) fn parse(text: &str, path: &Path) -> Result<Self> {
        let checked = document::read(text, Self::VERSION).and_then(|file| check::check(&file, text).map(|()| file));
        let mut file: Self = checked.map_err(|document::Fault { line, message }| Error::NodeFile {
            path: path.to_owned(),
            line,
            message,
        })?;
        file.gpus.sort_by_key(|gpu| gpu.pci);
        Ok(file)
    }

    /// The file's text, with a comment for whoever edits it.
    pub(crate) fn to_text(&self, path: &Path) -> Result<String> {
        let yaml = serde_saphyr::to_string(self).map_err(|error| Error::NodeFile {
            path: path.to_owned(),
            line: None,
            message: error.to_string(),
        })?;
        Ok(format!(
            "# What this simulated node is made of. Edit it as you like; NVML indices follow the PCI addresses.\n\
             # The files under root/ were written from it once and do not follow.\n{yaml}"
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{driver, profile};

    fn new(spec: &NodeSpec) -> NodeFile {
        let profile = profile::find(&spec.profile).unwrap();
        NodeFile::new(spec, profile, driver::find(&profile.driver).unwrap()).unwrap()
    }

    #[test]
    fn what_is_written_is_read_back() {
        let file = new(&NodeSpec::new("h100").seed(5).permute_pci(true));
        let text = file.to_text(Path::new("node.yaml")).unwrap();
        assert_eq!(NodeFile::parse(&text, Path::new("node.yaml")).unwrap(), file);
    }

    #[test]
    fn every_profile_makes_a_file_that_is_read_back() {
        for profile in profile::profiles() {
            let file = new(&NodeSpec::new(&profile.name));
            let text = file.to_text(Path::new("node.yaml")).unwrap();
            assert_eq!(NodeFile::parse(&text, Path::new("node.yaml")).unwrap(), file);
            assert_eq!(file.gpus.len(), profile.slots.len());
        }
    }

    #[test]
    fn gpus_are_in_pci_order_and_minors_need_not_be() {
        let file = new(&NodeSpec::new("h100").seed(5).permute_pci(true));
        assert!(file.gpus.is_sorted_by_key(|gpu| gpu.pci));
        assert!(!file.gpus.is_sorted_by_key(|gpu| gpu.minor));
        assert!(
            new(&NodeSpec::new("h100").seed(5))
                .gpus
                .is_sorted_by_key(|gpu| gpu.minor)
        );
    }

    /// The file of a node of two GPUs with `from` replaced by `to`.
    #[track_caller]
    fn check(from: &str, to: &str, expected: &str) {
        let path = Path::new("n/node.yaml");
        let text = new(&NodeSpec::new("h100").gpus(2)).to_text(path).unwrap();
        let broken = text.replacen(from, to, 1);
        assert_ne!(text, broken);
        let message = NodeFile::parse(&broken, path).unwrap_err().to_string();
        assert_eq!(message, format!("`n/node.yaml` {expected}"));
    }

    #[test]
    fn a_broken_file_is_refused_with_its_line_and_field() {
        check("seed: 0", "seed: many", "line 5: invalid u64");
        check(
            "gpus:",
            "gups:",
            "line 22: unknown field `gups`, expected one of version, profile, seed, machine, driver, virtualization, nvlink, fabric, gpus",
        );
        check(
            "version: 1",
            "version: 2\nfuture: yes",
            "line 3: version 2 of this format is not known, only 1: make the node anew, or use the gpu-sim that wrote it",
        );
    }

    #[test]
    fn a_node_that_cannot_be_is_refused_with_its_line_and_field() {
        let known = crate::driver::find("1.2").unwrap_err().to_string();
        check("550.163.01", "1.2", &format!("line 7: {known}"));
        check(
            "board: H100-80GB-HBM3",
            "board: H999",
            "line 23: gpus[0]: board `H999` is not known",
        );
        check(
            "0000:1b:00.0",
            "0000:1a:00.0",
            "line 35: gpus[1]: pci `0000:1a:00.0` stands twice, first in gpus[0]",
        );
        check(
            "0000:1b:00.0",
            "0000:1b:00.1",
            "line 35: gpus[1]: pci `0000:1b:00.1` is not the first function of a device",
        );
        check(
            "minor: 1",
            "minor: 0",
            "line 36: gpus[1]: minor 0 stands twice, first in gpus[0]",
        );
        check("minor: 1", "minor: 255", "line 36: gpus[1]: minor 255 is not below 254");
        check("numa: 0", "numa: 5000", "line 29: gpus[0]: numa 5000 is not below 1024");
        check(
            "links: 18",
            "links: 19",
            "line 11: nvlink: links 19 is not from 1 to 18",
        );
        check(
            "bridged_pairs: false",
            "bridged_pairs: true",
            "line 13: nvlink: GPUs that are bridged in pairs are on no switches",
        );
        check(
            "0000:05:00.0",
            "0000:1a:00.0",
            "line 13: nvlink: switch `0000:1a:00.0` is at the address of something else",
        );
        check(
            "cluster: 0",
            "cluster: x",
            "line 20: fabric: cluster `x0000000-0000-0000-0000-000000000001` is no UUID",
        );
    }

    #[test]
    fn gpus_that_share_a_switch_or_card_share_what_comes_with_it() {
        #[track_caller]
        fn check(profile: &str, change: impl Fn(&mut GpuEntry), expected: &str) {
            let path = Path::new("n/node.yaml");
            let mut file = new(&NodeSpec::new(profile).gpus(2));
            change(&mut file.gpus[1]);
            let message = NodeFile::parse(&file.to_text(path).unwrap(), path)
                .unwrap_err()
                .to_string();
            assert!(
                message.starts_with("`n/node.yaml` line ") && message.ends_with(expected),
                "{message}"
            );
        }
        check(
            "pcie-pairs",
            |gpu| gpu.numa = Some(1),
            ": gpus[1]: numa differs from that of gpus[0], which is on the same switch",
        );
        check(
            "a16",
            |gpu| gpu.board = "T4".to_owned(),
            ": gpus[1]: board differs from that of gpus[0], which is on the same card",
        );
        check(
            "a16",
            |gpu| gpu.serial = "1".to_owned(),
            ": gpus[1]: serial differs from that of gpus[0], which is on the same card",
        );
        let path = Path::new("n/node.yaml");
        let mut file = new(&NodeSpec::new("h100").gpus(2));
        file.gpus[1].serial = file.gpus[0].serial.clone();
        let message = NodeFile::parse(&file.to_text(path).unwrap(), path)
            .unwrap_err()
            .to_string();
        assert!(message.contains("gpus[1]: serial `"), "{message}");
        let mut file = new(&NodeSpec::new("h100").gpus(2));
        file.nvlink = None;
        let message = NodeFile::parse(&file.to_text(path).unwrap(), path)
            .unwrap_err()
            .to_string();
        assert!(message.ends_with("fabric: there is none without `nvlink`"), "{message}");
    }
}
