use serde::{Deserialize, Serialize};

use crate::{Driver, Gpu, GpuPair, GpuUuid, MigDevice, MigUuid, Problem};

/// Everything that was read of one node's GPUs.
///
/// It holds no handles and does no I/O. A field that a GPU does not offer is `None`, never zero; a GPU that could not be
/// read is in [`problems`](Self::problems) and does not hide the others.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schemars", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Inventory {
    /// Version of this layout: [`Inventory::SCHEMA_VERSION`].
    #[serde(default = "schema_version", deserialize_with = "known_schema_version")]
    pub schema_version: u32,
    /// Counts the readings of one reader, from 1; 0 for a value that no reader produced.
    #[serde(default)]
    pub generation: u64,
    /// The driver that answered; `None` where none was asked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub driver: Option<Driver>,
    /// The GPUs that could be read, in NVML's order (by PCI address).
    pub gpus: Vec<Gpu>,
    /// What lies between each two of them, by index.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub topology: Vec<GpuPair>,
    /// What could not be read, in the order it was met.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub problems: Vec<Problem>,
}

impl Inventory {
    /// The layout that this version of the crate writes.
    pub const SCHEMA_VERSION: u32 = 1;

    /// The GPU with this UUID.
    pub fn gpu(&self, uuid: &GpuUuid) -> Option<&Gpu> {
        self.gpus.iter().find(|gpu| gpu.uuid == *uuid)
    }

    /// The MIG device with this UUID, and its GPU.
    pub fn mig_device(&self, uuid: &MigUuid) -> Option<(&Gpu, &MigDevice)> {
        self.gpus.iter().find_map(|gpu| {
            let devices = &gpu.mig.as_ref()?.devices;
            Some((gpu, devices.iter().find(|device| device.uuid == *uuid)?))
        })
    }

    /// What lies between two GPUs, given by index in any order.
    pub fn pair(&self, one: u32, other: u32) -> Option<&GpuPair> {
        let gpus = [one.min(other), one.max(other)];
        self.topology.iter().find(|pair| pair.gpus == gpus)
    }
}

impl Default for Inventory {
    /// A node without a driver and without GPUs.
    fn default() -> Self {
        Self {
            schema_version: Self::SCHEMA_VERSION,
            generation: 0,
            driver: None,
            gpus: Vec::new(),
            topology: Vec::new(),
            problems: Vec::new(),
        }
    }
}

fn schema_version() -> u32 {
    Inventory::SCHEMA_VERSION
}

/// A layout of another version may mean other things by the same names.
fn known_schema_version<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<u32, D::Error> {
    match u32::deserialize(deserializer)? {
        Inventory::SCHEMA_VERSION => Ok(Inventory::SCHEMA_VERSION),
        other => Err(serde::de::Error::custom(format_args!(
            "schema_version {other} is not known: this reads version {}",
            Inventory::SCHEMA_VERSION
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_inventory_written_by_hand_needs_only_gpus() {
        let inventory: Inventory = serde_json::from_str(r#"{ "gpus": [] }"#).unwrap();
        assert_eq!(inventory, Inventory::default());
    }

    #[test]
    fn a_layout_of_another_version_is_refused() {
        let error = serde_json::from_str::<Inventory>(r#"{ "schema_version": 2, "gpus": [] }"#).unwrap_err();
        assert!(error.to_string().contains("schema_version 2 is not known"), "{error}");
    }

    #[test]
    fn an_unknown_field_is_refused_by_name() {
        let error = serde_json::from_str::<Inventory>(r#"{ "gpus": [], "gpu": [] }"#).unwrap_err();
        assert!(error.to_string().contains("unknown field `gpu`"), "{error}");
    }
}
