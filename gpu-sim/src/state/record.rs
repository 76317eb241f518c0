//! What the state file holds.

use std::{collections::BTreeMap, path::Path, sync::LazyLock};

use serde::{Deserialize, Serialize};

use super::bounds;
use crate::{
    Error, Result, document,
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
    /// The driver version that was loaded last, if another than the node was made with ever was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) driver: Option<String>,
    /// Whether NVML calls are logged.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) log_calls: bool,
    /// What has happened to GPUs, by UUID; one that nothing has happened to is absent.
    #[serde(default)]
    pub(crate) gpus: BTreeMap<String, GpuRecord>,
}

/// What has happened to one GPU.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct GpuRecord {
    pub(crate) lost: bool,
    /// Who asks may not know.
    pub(crate) denied: bool,
    /// Until then it answers nothing: milliseconds since 1970.
    pub(crate) hung_until_ms: u64,
    /// How much longer each answer takes.
    pub(crate) delay_ms: u64,
    pub(crate) mig: Layout,
    pub(crate) processes: Vec<Process>,
    pub(crate) ecc: EccErrors,
    /// `nvmlComputeMode_t`.
    pub(crate) compute_mode: u32,
    pub(crate) persistence_off: bool,
    /// How long a process computes before the next one's turn: 0 default, 1 short, 2 medium, 3 long.
    pub(crate) time_slice: u32,
    /// `nvmlDeviceGpuRecoveryAction_t`.
    pub(crate) recovery_action: u32,
    /// It is not on the bus.
    pub(crate) unplugged: bool,
    /// How often it was taken out: who waited for its events before then waits no more.
    pub(crate) removals: u32,
}

/// Memory errors: since the last reset or reboot, and ever.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct EccErrors {
    pub(crate) corrected: u64,
    pub(crate) uncorrected: u64,
    pub(crate) corrected_ever: u64,
    pub(crate) uncorrected_ever: u64,
}

impl EccErrors {
    pub(crate) fn add(&mut self, corrected: u64, uncorrected: u64) {
        self.corrected = self.corrected.saturating_add(corrected);
        self.uncorrected = self.uncorrected.saturating_add(uncorrected);
        self.corrected_ever = self.corrected_ever.saturating_add(corrected);
        self.uncorrected_ever = self.uncorrected_ever.saturating_add(uncorrected);
    }

    /// Forgets what a reset does.
    pub(crate) fn reset(&mut self) {
        (self.corrected, self.uncorrected) = (0, 0);
    }
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

impl Default for Record {
    fn default() -> Self {
        Self {
            version: Self::VERSION,
            generation: 0,
            init_error: None,
            driver: None,
            log_calls: false,
            gpus: BTreeMap::new(),
        }
    }
}

impl Record {
    const VERSION: u32 = 1;

    /// What has happened to the GPU; nothing, if it is not mentioned.
    pub(crate) fn gpu(&self, uuid: &str) -> &GpuRecord {
        static NOTHING: LazyLock<GpuRecord> = LazyLock::new(GpuRecord::default);
        self.gpus.get(uuid).unwrap_or(&NOTHING)
    }

    /// How GPUs are partitioned, of those that something has been done to.
    pub(super) fn layouts(&self) -> impl Iterator<Item = (&String, &Layout)> {
        let all = self.gpus.iter();
        all.map(|(uuid, gpu)| (uuid, &gpu.mig))
            .filter(|(_, mig)| **mig != Layout::default())
    }

    /// The GPUs that are not on the bus.
    pub(super) fn unplugged(&self) -> impl Iterator<Item = &String> {
        let gpus = self.gpus.iter().filter(|(_, gpu)| gpu.unplugged);
        gpus.map(|(uuid, _)| uuid)
    }

    pub(crate) fn gpu_mut(&mut self, uuid: &str) -> &mut GpuRecord {
        self.gpus.entry(uuid.to_owned()).or_default()
    }

    pub(crate) fn parse(text: &str, path: &Path) -> Result<Self> {
        let fail = |document::Fault { line, message }| Error::State {
            path: path.to_owned(),
            line,
            message,
        };
        let record = document::read(text, Self::VERSION).map_err(fail)?;
        bounds::check(&record).map_err(|message| fail(document::Fault { line: None, message }))?;
        Ok(record)
    }

    pub(crate) fn to_text(&self, path: &Path) -> Result<String> {
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
            self.ecc.reset();
            self.time_slice = 0;
            self.recovery_action = 0;
            Ok(())
        } else {
            Err(Refusal::InUse)
        }
    }

    /// Takes the GPU off the bus, which no process may use unless it is lost: then none does any more. The driver forgets it, and
    /// finds it again as after a restart.
    pub(crate) fn unplug(&mut self, rules: ModeRules) -> Result<(), Refusal> {
        if self.unplugged {
            return Err(Refusal::NotFound);
        }
        if !self.processes.is_empty() && !self.lost {
            return Err(Refusal::InUse);
        }
        let removals = self.removals.wrapping_add(1);
        self.reboot(rules);
        (self.unplugged, self.removals) = (true, removals);
        Ok(())
    }

    /// What a restart of the machine leaves. It finds what is on the bus.
    pub(crate) fn reboot(&mut self, rules: ModeRules) {
        let Self { mut mig, mut ecc, .. } = std::mem::take(self);
        mig.reboot(rules);
        ecc.reset();
        (self.mig, self.ecc) = (mig, ecc);
    }

    /// Ends the faults that can end by themselves.
    pub(crate) fn restore(&mut self) {
        self.lost = false;
        self.denied = false;
        self.hung_until_ms = 0;
        self.delay_ms = 0;
    }

    /// How busy the processes keep the GPU, in percent.
    pub(crate) fn utilization(&self) -> u32 {
        let sum = self.processes.iter().map(|process| process.utilization);
        sum.fold(0, u32::saturating_add).min(100)
    }

    /// The MIG devices that processes run on.
    pub(crate) fn used(&self) -> Used {
        self.processes.iter().filter_map(|process| process.instance).collect()
    }
}
