//! Partitioning the GPUs of a node, as `nvidia-smi mig` would.

use std::ffi::CStr;

use super::{Node, board_of};
use crate::{
    Board, Error, GpuEntry, MigProfile, MigTable, Result,
    mig::{self, Activation, GpuInstance, Refusal},
    nvml,
    seed::mig_uuid,
    state::Event,
};

/// A GPU instance and its MIG devices.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct MigInstance {
    /// Id of the GPU instance.
    pub id: u32,
    /// Name of its profile, such as `1g.10gb`.
    pub profile: String,
    /// The first memory slot it takes.
    pub start: u32,
    /// How many memory slots it takes.
    pub size: u32,
    /// Its compute instances, each a MIG device: id, profile such as `1c.3g.40gb`, and UUID.
    pub devices: Vec<(u32, String, String)>,
}

impl Node {
    /// Turns MIG mode of a GPU on or off. Answers whether it is in force; if not, a reset or reboot has to follow, because
    /// simulated processes use the GPU, or the board needs a reset that a virtual machine cannot do.
    ///
    /// # Errors
    /// Where there is no such GPU, it has no MIG, it shall be turned off and has instances, or the state cannot be written.
    pub fn set_mig_mode(&self, gpu: usize, on: bool) -> Result<bool> {
        let (entry, _, _) = self.partitionable(gpu)?;
        let rules = self.mode_rules(entry);
        let what = || format!("turn MIG mode of GPU {gpu} {}", if on { "on" } else { "off" });
        let done = self.change(gpu, |record| record.set_mig_mode(on, rules))?;
        let activation = done.map_err(|refusal| refused(what(), refusal))?;
        self.report(entry)?;
        Ok(activation == Activation::Done)
    }

    /// Resets a GPU: a change of MIG mode that waited for it is in force, and instances are gone.
    ///
    /// # Errors
    /// Where there is no such GPU, simulated processes use it, or the state cannot be written.
    pub fn reset(&self, gpu: usize) -> Result<()> {
        let done = self.change(gpu, crate::state::GpuRecord::reset)?;
        done.map_err(|refusal| refused(format!("reset GPU {gpu}"), refusal))?;
        self.report(self.gpu(gpu)?)
    }

    /// Makes a GPU instance with one compute instance that takes all of it: a MIG device. `profile` is its name, such as
    /// `1g.10gb`; without a start the driver chooses.
    ///
    /// # Errors
    /// Where there is no such GPU, the board has no such profile, MIG mode is off, there is no room, or the state cannot be
    /// written.
    pub fn create_mig(&self, gpu: usize, profile: &str, start: Option<u32>) -> Result<MigInstance> {
        let (entry, board, table) = self.partitionable(gpu)?;
        let name = |profile: &MigProfile| profile.name(profile.slices, board.memory.total_bytes);
        let found = table.profiles.iter().find(|candidate| name(candidate) == profile);
        let found = found.ok_or_else(|| Error::UnknownMigProfile {
            board: board.name.clone(),
            profile: profile.to_owned(),
            known: table.profiles.iter().map(name).collect(),
        })?;
        let place = start.map(|start| format!(" at {start}")).unwrap_or_default();
        let what = || format!("create {profile}{place} on GPU {gpu}");
        let made = self.state.change(&self.file, |record| {
            let mig = &mut record.gpu_mut(&entry.uuid).mig;
            let made = mig.create(table, found, start)?;
            mig.create_compute(table, made.id, found.slices, None)?;
            mig.instance(made.id)
                .cloned()
                .ok_or(Failure::Refused(Refusal::NotFound))
        });
        let made = made.map_err(|failure| failure.of(what()))?;
        self.report(entry)?;
        Ok(describe(entry, board, table, &made))
    }

    /// Removes a GPU instance and its compute instances.
    ///
    /// # Errors
    /// Where there is no such GPU or instance, a simulated process uses it, or the state cannot be written.
    pub fn destroy_mig(&self, gpu: usize, instance: u32) -> Result<()> {
        let (entry, _, _) = self.partitionable(gpu)?;
        let done = self.state.change(&self.file, |record| {
            let record = record.gpu_mut(&entry.uuid);
            let used = record.used();
            let found = record.mig.instance(instance).ok_or(Refusal::NotFound)?;
            for compute in found.compute.clone() {
                record.mig.destroy_compute(instance, compute.id, &used)?;
            }
            Ok(record.mig.destroy(instance)?)
        });
        done.map_err(|failure: Failure| failure.of(format!("destroy GPU instance {instance} of GPU {gpu}")))?;
        self.report(entry)
    }

    /// The GPU instances of a GPU by id; none where MIG mode is off or there is no MIG.
    ///
    /// # Errors
    /// Where there is no such GPU, or the state cannot be read.
    pub fn mig(&self, gpu: usize) -> Result<Vec<MigInstance>> {
        let entry = self.gpu(gpu)?;
        let record = self.state.read()?;
        let Some((board, table)) = mig_of(entry) else {
            return Ok(Vec::new());
        };
        let instances = &record.gpu(&entry.uuid).mig.instances;
        Ok(instances
            .iter()
            .map(|instance| describe(entry, board, table, instance))
            .collect())
    }

    /// Whether MIG mode of a GPU is on, and whether it will be after a reset.
    ///
    /// # Errors
    /// Where there is no such GPU, or the state cannot be read.
    pub fn mig_mode(&self, gpu: usize) -> Result<(bool, bool)> {
        let entry = self.gpu(gpu)?;
        let record = self.state.read()?;
        let mig = &record.gpu(&entry.uuid).mig;
        Ok((mig.mode, mig.pending))
    }

    fn partitionable(&self, gpu: usize) -> Result<(&GpuEntry, &'static Board, &'static MigTable)> {
        let entry = self.gpu(gpu)?;
        let (board, table) = mig_of(entry)
            .ok_or_else(|| refused(format!("partition GPU {gpu} ({})", entry.board), Refusal::NotSupported))?;
        Ok((entry, board, table))
    }

    fn report(&self, gpu: &GpuEntry) -> Result<()> {
        self.state.append(&Event::of_gpu(&gpu.uuid, Event::MIG_CHANGE, 0))
    }
}

/// Why a change to the state did not happen.
enum Failure {
    Refused(Refusal),
    Other(Error),
}

impl Failure {
    fn of(self, what: String) -> Error {
        match self {
            Self::Refused(refusal) => refused(what, refusal),
            Self::Other(error) => error,
        }
    }
}

impl From<Refusal> for Failure {
    fn from(refusal: Refusal) -> Self {
        Self::Refused(refusal)
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self::Other(error)
    }
}

pub(super) fn refused(what: String, refusal: Refusal) -> Error {
    let reason: &CStr = nvml::error_text(refusal.code());
    Error::Refused {
        what,
        code: refusal.code(),
        reason: reason.to_string_lossy().into_owned(),
    }
}

fn mig_of(gpu: &GpuEntry) -> Option<(&'static Board, &'static MigTable)> {
    let board = board_of(gpu)?;
    Some((board, mig::find(board.mig.as_deref()?)?))
}

fn describe(gpu: &GpuEntry, board: &Board, table: &MigTable, instance: &GpuInstance) -> MigInstance {
    let profile = table.by_constant(instance.profile);
    let name = |slices: Option<u32>| {
        profile.map_or_else(String::new, |profile| {
            profile.name(slices.unwrap_or(profile.slices), board.memory.total_bytes)
        })
    };
    let device = |compute: &mig::ComputeInstance| {
        let uuid = mig_uuid(&gpu.uuid, instance.id, compute.id);
        (compute.id, name(Some(compute.slices)), uuid)
    };
    MigInstance {
        id: instance.id,
        profile: name(None),
        start: instance.start,
        size: profile.map_or(0, |profile| profile.size),
        devices: instance.compute.iter().map(device).collect(),
    }
}
