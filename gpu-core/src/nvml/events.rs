use std::{
    io,
    ops::ControlFlow,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
        mpsc,
    },
    thread::{self, JoinHandle},
    time::Duration,
};

use nvml_wrapper::error::NvmlError;

use super::{Library, gate::Gate, raw};
use crate::{Error, Gpu, GpuUuid, Problem, ProblemKind, Result};

/// How long one wait lasts: the longest time that a stopped watch's thread, which nobody waits for, outlives it.
const WAIT_MS: u32 = 500;

/// After a wait that failed, and twice as long after each further one, so that a lost GPU costs no processor time.
const FIRST_PAUSE: Duration = Duration::from_millis(500);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);

/// Something that happened to a GPU.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HealthEvent {
    /// The physical GPU.
    pub gpu: GpuUuid,
    /// What happened.
    pub kind: HealthEventKind,
    /// The GPU instance it happened to; `None` where it is the whole GPU's.
    pub gpu_instance: Option<u32>,
    /// The compute instance it happened to; `None` where it is the whole GPU's or GPU instance's.
    pub compute_instance: Option<u32>,
}

/// What a [`HealthEvent`] reports.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum HealthEventKind {
    /// The driver logged this Xid.
    Xid(u64),
    /// A memory error was corrected.
    SingleBitEcc,
    /// A memory error could not be corrected.
    DoubleBitEcc,
    /// GPU instances or compute instances were made or destroyed, or the MIG mode changed.
    MigConfigChanged,
}

impl HealthEventKind {
    const SINGLE_BIT_ECC: u64 = 1; // nvmlEventTypeSingleBitEccError
    const DOUBLE_BIT_ECC: u64 = 2; // nvmlEventTypeDoubleBitEccError
    const XID: u64 = 8; // nvmlEventTypeXidCriticalError
    const MIG_CONFIG: u64 = 0x100; // nvmlEventMigConfigChange
    const ALL: u64 = Self::SINGLE_BIT_ECC | Self::DOUBLE_BIT_ECC | Self::XID | Self::MIG_CONFIG;

    fn from_nvml(kind: u64, data: u64) -> Option<Self> {
        match kind {
            Self::SINGLE_BIT_ECC => Some(Self::SingleBitEcc),
            Self::DOUBLE_BIT_ECC => Some(Self::DoubleBitEcc),
            Self::XID => Some(Self::Xid(data)),
            Self::MIG_CONFIG => Some(Self::MigConfigChanged),
            _ => None,
        }
    }
}

/// What a [`HealthWatch`] delivers.
#[derive(Debug)]
#[non_exhaustive]
pub enum Watched {
    /// An event.
    Event(HealthEvent),
    /// A GPU fell off the bus, or needs a reset: the wait failed, and the GPU answers so when it is asked. It is watched no more;
    /// the others are.
    Lost(GpuUuid),
    /// NVML could not wait for a reason that no GPU explains. The watch goes on after a pause.
    Interrupted(Error),
}

/// A thread that waits for the health events of a node's GPUs.
///
/// One event set for all, one registration for each physical GPU. Dropping it ends the thread, as [`stop`](Self::stop) does.
#[derive(Debug)]
pub struct HealthWatch {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<()>,
    gate: Arc<Gate<Watched>>,
    problems: Vec<Problem>,
}

impl HealthWatch {
    /// Starts to watch `gpus`; events that happen after this returns are delivered.
    ///
    /// `deliver` is called on the watch's own thread and ends it by [`ControlFlow::Break`].
    ///
    /// # Errors
    /// Where NVML offers no events at all, does not return from a call, or no thread can be started. A single GPU that offers none, or is lost, is in
    /// [`problems`](Self::problems).
    pub fn start(
        library: Arc<Library>,
        gpus: &[Gpu],
        deliver: impl FnMut(Watched) -> ControlFlow<()> + Send + 'static,
    ) -> Result<Self> {
        let stop = Arc::new(AtomicBool::new(false));
        let wanted: Vec<_> = gpus.iter().map(|gpu| (gpu.index, gpu.uuid.clone())).collect();
        let gate = Arc::new(Gate::new(deliver));
        // Each GPU is three calls, and the set one.
        let limit = library
            .call_timeout
            .saturating_mul(3 * u32::try_from(gpus.len()).unwrap_or(1) + 1);
        let (ready, registered) = mpsc::sync_channel(1);
        let thread = thread::Builder::new()
            .name("gpu-health".to_owned())
            .spawn({
                let stop = Arc::clone(&stop);
                let gate = Arc::clone(&gate);
                move || match Registered::new(&library, &wanted) {
                    Ok((registered, problems)) => {
                        // Nobody waits for the answer any more if the caller's thread is gone: then there is nothing to do.
                        if ready.send(Ok(problems)).is_ok() {
                            registered.watch(&library, &stop, &gate);
                        }
                    }
                    Err(error) => drop(ready.send(Err(error))),
                }
            })
            .map_err(Error::Thread)?;
        let problems = match registered.recv_timeout(limit) {
            Ok(answer) => answer?,
            Err(mpsc::RecvTimeoutError::Timeout) => {
                return Err(Error::Hung {
                    call: "nvmlDeviceRegisterEvents",
                    elapsed: limit,
                });
            }
            Err(mpsc::RecvTimeoutError::Disconnected) => {
                return Err(Error::Thread(io::Error::other("it ended before it could answer")));
            }
        };
        Ok(Self {
            stop,
            thread,
            gate,
            problems,
        })
    }

    /// The GPUs whose events cannot be waited for.
    pub fn problems(&self) -> &[Problem] {
        &self.problems
    }

    /// Ends the watch at once, or when `deliver` returns if it is being called: it is called no more, and dropped.
    ///
    /// The thread itself comes back from NVML within half a second and ends then; it keeps the library open until it does.
    pub fn stop(self) {
        drop(self);
    }
}

impl Drop for HealthWatch {
    fn drop(&mut self) {
        self.stop.store(true, Relaxed);
        self.thread.thread().unpark(); // it may be in a pause
        self.gate.close();
    }
}

/// An event set and the GPUs that are in it.
struct Registered<'nvml> {
    set: raw::EventSet<'nvml>,
    gpus: Vec<(raw::Handle, GpuUuid)>,
}

impl<'nvml> Registered<'nvml> {
    fn new(library: &'nvml Library, wanted: &[(u32, GpuUuid)]) -> Result<(Self, Vec<Problem>)> {
        let set = raw::EventSet::new(&library.nvml).map_err(|source| Error::Call {
            call: "nvmlEventSetCreate",
            source,
        })?;
        let mut registered = Self { set, gpus: Vec::new() };
        let mut problems = Vec::new();
        for (index, uuid) in wanted {
            match registered.add(library, uuid) {
                Ok(()) => {}
                Err((call, error)) => problems.push(Problem {
                    index: *index,
                    uuid: Some(uuid.clone()),
                    pci: None,
                    kind: match error {
                        NvmlError::GpuLost | NvmlError::ResetRequired | NvmlError::NotFound => ProblemKind::Lost,
                        NvmlError::NoPermission => ProblemKind::NoPermission,
                        // A GPU or a driver without events, and nothing wrong with it.
                        NvmlError::NotSupported | NvmlError::FunctionNotFound | NvmlError::FailedToLoadSymbol(_) => {
                            ProblemKind::Incomplete
                        }
                        _ => ProblemKind::Unreadable,
                    },
                    call: call.to_owned(),
                    message: error.to_string(),
                }),
            }
        }
        Ok((registered, problems))
    }

    fn add(&mut self, library: &'nvml Library, uuid: &GpuUuid) -> Result<(), (&'static str, NvmlError)> {
        let device = library
            .nvml
            .device_by_uuid(uuid.as_str())
            .map_err(|error| ("nvmlDeviceGetHandleByUUID", error))?;
        let supported = device
            .supported_event_types()
            .map_err(|error| ("nvmlDeviceGetSupportedEventTypes", error))?;
        let kinds = supported.bits() & HealthEventKind::ALL;
        self.set
            .register(&device, kinds)
            .map_err(|error| ("nvmlDeviceRegisterEvents", error))?;
        self.gpus.push((raw::Handle::of(&device), uuid.clone()));
        Ok(())
    }

    fn watch(mut self, library: &'nvml Library, stop: &AtomicBool, gate: &Gate<Watched>) {
        let mut pause = FIRST_PAUSE;
        while !stop.load(Relaxed) {
            let flow = match self.set.wait(WAIT_MS) {
                Ok(event) => {
                    pause = FIRST_PAUSE;
                    self.interpret(event)
                        .map_or(ControlFlow::Continue(()), |event| gate.deliver(Watched::Event(event)))
                }
                Err(NvmlError::Timeout) => {
                    pause = FIRST_PAUSE;
                    continue;
                }
                Err(source) => {
                    let lost = self.take_lost(library);
                    let flow = if lost.is_empty() {
                        let call = "nvmlEventSetWait_v2";
                        gate.deliver(Watched::Interrupted(Error::Call { call, source }))
                    } else {
                        lost.into_iter().try_for_each(|gpu| gate.deliver(Watched::Lost(gpu)))
                    };
                    if flow.is_continue() && !stop.load(Relaxed) {
                        thread::park_timeout(pause);
                        pause = LONGEST_PAUSE.min(pause * 2);
                    }
                    flow
                }
            };
            if flow.is_break() {
                return;
            }
        }
    }

    /// The GPUs that say they are lost. The others go on in a new event set: one that holds a lost GPU may fail at every wait.
    fn take_lost(&mut self, library: &'nvml Library) -> Vec<GpuUuid> {
        let is_lost = |uuid: &GpuUuid| {
            let answer = library
                .nvml
                .device_by_uuid(uuid.as_str())
                .and_then(|gpu| gpu.minor_number());
            matches!(
                answer,
                Err(NvmlError::GpuLost | NvmlError::ResetRequired | NvmlError::NotFound)
            )
        };
        let (lost, left): (Vec<_>, Vec<_>) = self.gpus.iter().map(|(_, uuid)| uuid.clone()).partition(is_lost);
        if lost.is_empty() {
            return lost;
        }
        if let Ok(set) = raw::EventSet::new(&library.nvml) {
            *self = Self { set, gpus: Vec::new() };
            for uuid in &left {
                // One that cannot be watched any more shows at the next interruption, or has no events to show.
                let _ = self.add(library, uuid);
            }
        }
        lost
    }

    /// `None` for an event that was not asked for.
    fn interpret(&self, event: raw::Event) -> Option<HealthEvent> {
        let whole = |id: u32| (id != u32::MAX).then_some(id);
        let (_, uuid) = self.gpus.iter().find(|(handle, _)| *handle == event.gpu)?;
        Some(HealthEvent {
            gpu: uuid.clone(),
            kind: HealthEventKind::from_nvml(event.kind, event.data)?,
            gpu_instance: whole(event.gpu_instance),
            compute_instance: whole(event.compute_instance),
        })
    }
}
