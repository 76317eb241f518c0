//! What the state file holds.

use std::{collections::BTreeMap, path::Path};

use serde::{Deserialize, Serialize};

use crate::{
    Error, Result,
    mig::{Activation, Layout, ModeRules, Refusal, Used},
};

/// Everything that has happened to a node, as of one moment.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Record {
    /// Version of this format: 1.
    pub(crate) version: u32,
    /// Grows by one with every change.
    pub(crate) generation: u64,
    /// The NVML code that initialisation answers, if it fails.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) init_error: Option<u32>,
    /// What has happened to GPUs, by UUID; one that nothing has happened to is absent.
    #[serde(default)]
    pub(crate) gpus: BTreeMap<String, GpuRecord>,
}

/// What has happened to one GPU.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct GpuRecord {
    #[serde(default)]
    pub(crate) lost: bool,
    #[serde(default)]
    pub(crate) mig: Layout,
    #[serde(default)]
    pub(crate) processes: Vec<Process>,
}

/// A simulated process that computes on a GPU.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Process {
    pub(crate) pid: u32,
    pub(crate) memory_mib: u64,
    /// How busy it keeps the GPU, in percent.
    pub(crate) utilization: u32,
    /// The MIG device it runs on: GPU instance and compute instance.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) instance: Option<(u32, u32)>,
}

/// The version alone: a file of another one may hold anything else.
#[derive(Deserialize)]
struct Version {
    version: u32,
}

impl Default for Record {
    fn default() -> Self {
        Self {
            version: Self::VERSION,
            generation: 0,
            init_error: None,
            gpus: BTreeMap::new(),
        }
    }
}

impl Record {
    const VERSION: u32 = 1;

    /// What has happened to the GPU; nothing, if it is not mentioned.
    pub(crate) fn gpu(&self, uuid: &str) -> &GpuRecord {
        static NOTHING: GpuRecord = GpuRecord {
            lost: false,
            mig: Layout {
                mode: false,
                pending: false,
                instances: Vec::new(),
            },
            processes: Vec::new(),
        };
        self.gpus.get(uuid).unwrap_or(&NOTHING)
    }

    pub(crate) fn gpu_mut(&mut self, uuid: &str) -> &mut GpuRecord {
        self.gpus.entry(uuid.to_owned()).or_default()
    }

    pub(super) fn parse(text: &str, path: &Path) -> Result<Self> {
        let fail = |line, message| Error::State {
            path: path.to_owned(),
            line,
            message,
        };
        let broken = |error: serde_saphyr::Error| {
            let message = error.without_snippet().to_string();
            let message = message.split(" at line ").next().unwrap_or_default().to_owned();
            fail(error.location().map(|place| place.line()), message)
        };
        let Version { version } = serde_saphyr::from_str(text).map_err(broken)?;
        if version != Self::VERSION {
            let message = format!(
                "version {version} of this format is not known, only {}: make the node anew, or use the gpu-sim that wrote it",
                Self::VERSION
            );
            return Err(fail(None, message));
        }
        serde_saphyr::from_str(text).map_err(broken)
    }

    pub(super) fn to_text(&self, path: &Path) -> Result<String> {
        serde_saphyr::to_string(self).map_err(|error| Error::State {
            path: path.to_owned(),
            line: None,
            message: error.to_string(),
        })
    }
}

impl GpuRecord {
    pub(crate) fn set_mig_mode(&mut self, on: bool, rules: ModeRules) -> Result<Activation, Refusal> {
        self.mig.set_mode(on, !self.processes.is_empty(), rules)
    }

    /// Resets the GPU, which no process may use.
    pub(crate) fn reset(&mut self) -> Result<(), Refusal> {
        if self.processes.is_empty() {
            self.mig.reset();
            Ok(())
        } else {
            Err(Refusal::InUse)
        }
    }

    /// The MIG devices that processes run on.
    pub(crate) fn used(&self) -> Used {
        self.processes.iter().filter_map(|process| process.instance).collect()
    }
}
