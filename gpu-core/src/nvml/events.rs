use std::{
    mem,
    ops::ControlFlow,
    sync::{
        Arc,
        atomic::{AtomicU8, Ordering::Relaxed},
        mpsc,
    },
    thread::{self, JoinHandle},
    time::Duration,
};

use nvml_wrapper::error::NvmlError;

use super::{
    Library,
    gate::Gate,
    guard::{Failure, Progress},
    raw,
};
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

/// What the thread of a [`HealthWatch`] is to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
enum Order {
    /// Go on.
    Watch,
    /// End.
    Stop,
    /// Deliver what has happened so far, then end: another watch has begun.
    Retire,
}

/// The order in force.
#[derive(Debug)]
struct Orders(AtomicU8);

impl Orders {
    fn give(&self, order: Order) {
        self.0.store(order as u8, Relaxed);
    }

    fn has(&self, order: Order) -> bool {
        self.0.load(Relaxed) == order as u8
    }
}

/// A thread that waits for the health events of a node's GPUs.
///
/// One event set for all, one registration for each physical GPU. Dropping it ends the thread, as [`stop`](Self::stop) does.
#[derive(Debug)]
pub struct HealthWatch {
    orders: Arc<Orders>,
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
    /// Where NVML offers no events at all, does not return from a call for as long as the library allows, or no thread can be
    /// started. A single GPU that offers none, or is lost, is in [`problems`](Self::problems).
    pub fn start(
        library: Arc<Library>,
        gpus: &[Gpu],
        deliver: impl FnMut(Watched) -> ControlFlow<()> + Send + 'static,
    ) -> Result<Self> {
        let orders = Arc::new(Orders(AtomicU8::new(Order::Watch as u8)));
        let wanted: Vec<_> = gpus.iter().map(|gpu| (gpu.index, gpu.uuid.clone())).collect();
        let gate = Arc::new(Gate::new(deliver));
        let progress = Progress::new(None);
        let caller = Arc::clone(&library);
        let (ready, registered) = mpsc::sync_channel(1);
        let thread = thread::Builder::new()
            .name("gpu-health".to_owned())
            .spawn({
                let orders = Arc::clone(&orders);
                let gate = Arc::clone(&gate);
                let progress = Arc::clone(&progress);
                move || match Registered::new(&library, &wanted, &progress) {
                    Ok((registered, problems)) => {
                        if library.workers.finish(&progress, &ready, Ok(problems)) {
                            registered.watch(&library, &orders, &gate);
                        }
                    }
                    Err(error) => {
                        library.workers.finish(&progress, &ready, Err(error));
                    }
                }
            })
            .map_err(Error::Thread)?;
        let registered = caller.workers.wait(caller.call_timeout, &progress, &registered);
        let problems = registered.map_err(Failure::into_error)??;
        Ok(Self {
            orders,
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

    /// Ends the watch when it has delivered what happened before now. For when another has begun that will tell the rest.
    pub(super) fn retire(self) {
        self.orders.give(Order::Retire);
        // Dropping it now only wakes it.
    }
}

impl Drop for HealthWatch {
    fn drop(&mut self) {
        if !self.orders.has(Order::Retire) {
            self.orders.give(Order::Stop);
            self.gate.close();
        }
        self.thread.thread().unpark(); // it may be in a pause
    }
}

/// What it means for a GPU that its events cannot be waited for.
fn kind_of(error: &NvmlError) -> ProblemKind {
    match error {
        NvmlError::GpuLost | NvmlError::ResetRequired | NvmlError::NotFound => ProblemKind::Lost,
        NvmlError::NoPermission => ProblemKind::NoPermission,
        // A GPU or a driver without events, and nothing wrong with it.
        NvmlError::NotSupported | NvmlError::FunctionNotFound | NvmlError::FailedToLoadSymbol(_) => {
            ProblemKind::Incomplete
        }
        _ => ProblemKind::Unreadable,
    }
}

/// An event set and the GPUs that are in it.
struct Registered<'nvml> {
    set: raw::EventSet<'nvml>,
    gpus: Vec<(raw::Handle, GpuUuid)>,
}

impl<'nvml> Registered<'nvml> {
    fn new(library: &'nvml Library, wanted: &[(u32, GpuUuid)], progress: &Progress) -> Result<(Self, Vec<Problem>)> {
        let call = "nvmlEventSetCreate";
        let set = progress
            .call(call, || raw::EventSet::new(&library.nvml))
            .map_err(|source| Error::Call { call, source })?;
        let mut registered = Self { set, gpus: Vec::new() };
        let mut problems = Vec::new();
        for (index, uuid) in wanted {
            let problem = |kind, call: &str, message| Problem {
                index: *index,
                uuid: Some(uuid.clone()),
                pci: None,
                kind,
                call: call.to_owned(),
                message,
            };
            if let Some(stuck) = library.workers.stuck(Some(*index)) {
                problems.push(problem(ProblemKind::Hung, stuck.call, stuck.to_string()));
                continue;
            }
            progress.about(Some(*index));
            if let Err((call, error)) = registered.add(library, uuid, progress) {
                problems.push(problem(kind_of(&error), call, error.to_string()));
            }
        }
        Ok((registered, problems))
    }

    fn add(
        &mut self,
        library: &'nvml Library,
        uuid: &GpuUuid,
        progress: &Progress,
    ) -> Result<(), (&'static str, NvmlError)> {
        let call = "nvmlDeviceGetHandleByUUID";
        let device = progress.call(call, || library.nvml.device_by_uuid(uuid.as_str()));
        let device = device.map_err(|error| (call, error))?;
        let call = "nvmlDeviceGetSupportedEventTypes";
        let supported = progress.call(call, || device.supported_event_types());
        let kinds = supported.map_err(|error| (call, error))?.bits() & HealthEventKind::ALL;
        let call = "nvmlDeviceRegisterEvents";
        let registered = progress.call(call, || self.set.register(&device, kinds));
        registered.map_err(|error| (call, error))?;
        self.gpus.push((raw::Handle::of(&device), uuid.clone()));
        Ok(())
    }

    fn watch(mut self, library: &'nvml Library, orders: &Orders, gate: &Gate<Watched>) {
        let mut pause = FIRST_PAUSE;
        while orders.has(Order::Watch) {
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
                    let told = self.take_lost(library);
                    if told.is_empty() {
                        let call = "nvmlEventSetWait_v2";
                        let flow = gate.deliver(Watched::Interrupted(Error::Call { call, source }));
                        if flow.is_continue() && orders.has(Order::Watch) {
                            thread::park_timeout(pause);
                            pause = LONGEST_PAUSE.min(pause * 2);
                        }
                        flow
                    } else {
                        told.into_iter().try_for_each(|watched| gate.deliver(watched))
                    }
                }
            };
            if flow.is_break() {
                return;
            }
        }
        if orders.has(Order::Retire) {
            self.deliver_rest(gate);
        }
    }

    /// Delivers what has happened so far.
    fn deliver_rest(&self, gate: &Gate<Watched>) {
        while let Ok(event) = self.set.wait(0) {
            let event = self.interpret(event);
            if event.is_some_and(|event| gate.deliver(Watched::Event(event)).is_break()) {
                return;
            }
        }
    }

    /// The GPUs that say they are lost, which are watched no more, and events that came meanwhile. The others go on in a new event
    /// set: one that holds a lost GPU fails at every wait.
    fn take_lost(&mut self, library: &'nvml Library) -> Vec<Watched> {
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
        let mut told = Vec::new();
        if lost.is_empty() {
            return told;
        }
        // Without a new set the wait goes on failing, as an interruption that no GPU explains.
        self.gpus.retain(|(_, uuid)| left.contains(uuid));
        if let Ok(set) = raw::EventSet::new(&library.nvml) {
            let mut others = Self { set, gpus: Vec::new() };
            let unwatched = Progress::new(None); // this thread hangs for itself
            for uuid in &left {
                // One that cannot be watched any more shows at the next interruption, or has no events to show.
                let _ = others.add(library, uuid, &unwatched);
            }
            let old = mem::replace(self, others);
            while let Ok(event) = old.set.wait(0) {
                told.extend(old.interpret(event).map(Watched::Event));
            }
        }
        told.extend(lost.into_iter().map(Watched::Lost));
        told
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
