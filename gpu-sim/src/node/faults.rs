//! What may go wrong with a GPU, and what may run on it.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use super::{Node, board_of, mig::refused};
use crate::{
    Result,
    mig::{self, Refusal},
    state::{Event, Process},
};

/// A simulated process on a GPU: see [`Node::load`].
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Load {
    /// How busy it keeps the GPU, in percent.
    pub utilization: u32,
    /// The GPU memory it uses, in MiB.
    pub memory_mib: u64,
    /// Its number. None: one that no process of this machine can have.
    pub pid: Option<u32>,
    /// The MIG device it runs on: GPU instance and compute instance.
    pub instance: Option<(u32, u32)>,
}

/// What a driver wants done to a GPU that is not sound: see [`Node::want_recovery`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(feature = "cli", derive(clap::ValueEnum))]
pub enum Recovery {
    /// Nothing: it is sound.
    None,
    /// A reset of the GPU.
    Reset,
    /// A reboot of the machine.
    Reboot,
    /// An end of the programs that use it with other GPUs.
    DrainP2p,
    /// An end of the programs that use it, and a reset.
    DrainAndReset,
}

/// Linux gives no process a higher number.
const HIGHEST_PID: u32 = 1 << 22;

impl Node {
    /// Denies or grants permission to ask a GPU: every NVML call for it answers `NO_PERMISSION`.
    ///
    /// # Errors
    /// Where there is no such GPU, or the state cannot be written.
    pub fn deny(&self, gpu: usize, denied: bool) -> Result<()> {
        self.change(gpu, |record| record.denied = denied)
    }

    /// Lets a GPU hang: for so long every NVML call for it does not return, from now on. [`restore`](Self::restore) ends it.
    ///
    /// Calls for other GPUs go on, also in the same process.
    ///
    /// # Errors
    /// Where there is no such GPU, or the state cannot be written.
    pub fn hang(&self, gpu: usize, time: Duration) -> Result<()> {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let until = u64::try_from(now.saturating_add(time).as_millis()).unwrap_or(u64::MAX);
        self.change(gpu, |record| record.hung_until_ms = until)
    }

    /// Lets each NVML call for a GPU take so much longer; zero ends it.
    ///
    /// # Errors
    /// Where there is no such GPU, or the state cannot be written.
    pub fn slow(&self, gpu: usize, delay: Duration) -> Result<()> {
        let delay = u64::try_from(delay.as_millis()).unwrap_or(u64::MAX);
        self.change(gpu, |record| record.delay_ms = delay)
    }

    /// Counts memory errors of a GPU, corrected and uncorrected, and reports one event of each kind that there was
    /// (`nvmlEventTypeSingleBitEccError`, `nvmlEventTypeDoubleBitEccError`). No Xid is reported.
    ///
    /// # Errors
    /// Where there is no such GPU, or the state cannot be written.
    pub fn inject_ecc(&self, gpu: usize, corrected: u64, uncorrected: u64) -> Result<()> {
        self.change(gpu, |record| record.ecc.add(corrected, uncorrected))?;
        let uuid = &self.gpu(gpu)?.uuid;
        for (count, kind) in [(corrected, Event::SINGLE_BIT), (uncorrected, Event::DOUBLE_BIT)] {
            if count > 0 {
                self.state.append(&Event::of_gpu(uuid, kind, 0))?;
            }
        }
        Ok(())
    }

    /// Lets the driver want something done to a GPU (`NVML_FI_DEV_GET_GPU_RECOVERY_ACTION`); a reset of the GPU, or a reboot, is
    /// enough for any of it. No event is reported.
    ///
    /// # Errors
    /// Where there is no such GPU, or the state cannot be written.
    pub fn want_recovery(&self, gpu: usize, recovery: Recovery) -> Result<()> {
        self.change(gpu, |record| record.recovery_action = recovery as u32)
    }

    /// Lets a simulated process run on a GPU, or changes the one with that number. Answers its number.
    ///
    /// While it runs, its MIG device cannot be destroyed, and a change of MIG mode or a reset waits.
    ///
    /// # Errors
    /// Where there is no such GPU or MIG device, the GPU is partitioned and no MIG device is named, memory does not
    /// suffice, or the state cannot be written.
    pub fn load(&self, gpu: usize, load: Load) -> Result<u32> {
        let entry = self.gpu(gpu)?;
        let done = self.change(gpu, |record| {
            let pid = load.pid.unwrap_or_else(|| {
                let highest = record.processes.iter().map(|process| process.pid).max().unwrap_or(0);
                highest.max(HIGHEST_PID) + 1
            });
            let mut processes = record.processes.clone();
            processes.retain(|process| process.pid != pid);
            let room = match load.instance {
                None if record.mig.mode => return Err(Refusal::InvalidArgument),
                None => board_of(entry).map(|board| (board.memory.total_bytes - board.memory.reserved_bytes) >> 20),
                Some((instance, compute)) => {
                    let found = record.mig.instance(instance).ok_or(Refusal::NotFound)?;
                    if found.compute.iter().all(|other| other.id != compute) {
                        return Err(Refusal::NotFound);
                    }
                    let table = board_of(entry).and_then(|board| mig::find(board.mig.as_deref()?));
                    table
                        .and_then(|table| table.by_constant(found.profile))
                        .map(|profile| profile.memory_mib)
                }
            };
            let beside = processes
                .iter()
                .filter(|other| load.instance.map(|it| it.0) == other.instance.map(|it| it.0))
                .map(|other| other.memory_mib)
                .sum::<u64>();
            if beside.saturating_add(load.memory_mib) > room.unwrap_or(0) {
                return Err(Refusal::InsufficientMemory);
            }
            processes.push(Process {
                pid,
                memory_mib: load.memory_mib,
                utilization: load.utilization.min(100),
                instance: load.instance,
            });
            processes.sort_by_key(|process| process.pid);
            record.processes = processes;
            Ok(pid)
        })?;
        done.map_err(|refusal| refused(format!("run a process on GPU {gpu}"), refusal))
    }

    /// Ends a simulated process of a GPU, or all. That there is none is fine.
    ///
    /// # Errors
    /// Where there is no such GPU, or the state cannot be written.
    pub fn unload(&self, gpu: usize, pid: Option<u32>) -> Result<()> {
        self.change(gpu, |record| {
            record
                .processes
                .retain(|process| pid.is_some_and(|pid| pid != process.pid));
        })
    }
}
