use std::{
    ops::ControlFlow,
    path::PathBuf,
    sync::{
        Arc,
        mpsc::{self, RecvTimeoutError, Sender},
    },
    thread,
    time::{Duration, Instant},
};

use nvml_wrapper::{Nvml, error::NvmlError};

use super::{HealthEvent, HealthWatch, Library, Watched, gate::Gate, guard::Progress, raw, read::MOST_MIG_DEVICES};
use crate::{Change, Error, Gpu, Inventory, MigUuid, Problem, Result};

/// How a [`Watcher`] looks at its node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WatchConfig {
    /// Where the host's `/sys` lies; `/` outside a container.
    pub host_root: PathBuf,
    /// How often the watcher asks which GPUs and MIG devices there are: a handful of calls for each GPU. 5 s by default.
    pub interval: Duration,
    /// How often everything is read anew, also where nothing seems to have happened: for limits, modes and error counts. One
    /// minute by default.
    pub refresh: Duration,
}

/// When a watcher reads for the first time, or at its first look if that is sooner.
const FIRST_READING: Duration = Duration::from_millis(250);

impl Default for WatchConfig {
    fn default() -> Self {
        Self {
            host_root: PathBuf::from("/"),
            interval: Duration::from_secs(5),
            refresh: Duration::from_mins(1),
        }
    }
}

/// What a [`Watcher`] delivers.
#[derive(Debug)]
#[non_exhaustive]
pub enum NodeEvent {
    /// The node is different.
    Changed {
        /// What is; not empty.
        changes: Vec<Change>,
        /// The whole reading that shows it.
        inventory: Arc<Inventory>,
    },
    /// Something happened to a GPU. Where GPUs have come or gone at the same moment it may be delivered twice.
    Health(HealthEvent),
    /// The events of a GPU cannot be waited for. Told at the start, before it returns, and whenever GPUs have come or gone.
    NotWatched(Problem),
    /// Part of the watch does not work: health events cannot be waited for, or the node cannot be read. The rest goes on,
    /// and this part is tried again.
    Interrupted(Error),
}

/// A thread that tells how a node changes: GPUs that come, go and recover, MIG layouts, health events.
///
/// It starts from an inventory that the caller has, so that nothing between that and the first look is missed. Dropping it
/// ends it, as [`stop`](Self::stop) does.
#[derive(Debug)]
pub struct Watcher {
    commands: Sender<Message>,
    gate: Arc<Gate<NodeEvent>>,
}

enum Message {
    Health(Watched),
    Stop,
}

impl Watcher {
    /// Starts to watch the node that `inventory` was read from.
    ///
    /// `deliver` is called on threads of the watcher, one at a time, and ends it by [`ControlFlow::Break`]. While a call about one GPU
    /// hangs, events of the others are delivered, and changes wait for as long as the library lets a call take.
    ///
    /// # Errors
    /// Where no thread can be started. A node without health events, or without GPUs, is watched all the same.
    pub fn start(
        library: Arc<Library>,
        inventory: Inventory,
        config: WatchConfig,
        deliver: impl FnMut(NodeEvent) -> ControlFlow<()> + Send + 'static,
    ) -> Result<Self> {
        let gate = Arc::new(Gate::new(deliver));
        let (commands, messages) = mpsc::channel();
        let mut watch = Watch {
            library,
            config,
            inventory,
            health: None,
            commands: commands.clone(),
            gate: Arc::clone(&gate),
        };
        // What is watched from here on is delivered: before the caller goes on.
        let health = watch.watch_health();
        thread::Builder::new()
            .name("gpu-watch".to_owned())
            .spawn(move || {
                let flow = match health {
                    Ok(()) => ControlFlow::Continue(()),
                    Err(error) => watch.gate.deliver(NodeEvent::Interrupted(error)),
                };
                if flow.is_continue() {
                    watch.run(&messages);
                }
            })
            .map_err(Error::Thread)?;
        Ok(Self { commands, gate })
    }

    /// Ends the watch at once, or when `deliver` returns if it is being called: it is called no more, and dropped.
    pub fn stop(self) {
        drop(self);
    }
}

impl Drop for Watcher {
    fn drop(&mut self) {
        self.gate.close();
        // The thread may have ended by itself.
        let _ = self.commands.send(Message::Stop);
    }
}

/// What the watcher's thread works with.
struct Watch {
    library: Arc<Library>,
    config: WatchConfig,
    /// The last reading.
    inventory: Inventory,
    health: Option<HealthWatch>,
    commands: Sender<Message>,
    gate: Arc<Gate<NodeEvent>>,
}

impl Watch {
    fn run(&mut self, messages: &mpsc::Receiver<Message>) {
        // The caller's reading may be old: all is read anew, once whoever starts has had the driver to itself.
        let mut refreshed = None;
        let mut wait = FIRST_READING.min(self.config.interval);
        loop {
            let read = match messages.recv_timeout(wait) {
                // It is delivered, and may come with more.
                Ok(Message::Health(Watched::Event(_))) => refreshed.is_none() || self.looks_different(),
                Ok(Message::Health(Watched::Interrupted(error))) => {
                    if self.gate.deliver(NodeEvent::Interrupted(error)).is_break() {
                        return;
                    }
                    true
                }
                // The reading says so of the GPU, and what else is different.
                Ok(Message::Health(Watched::Lost(_))) => true,
                Err(RecvTimeoutError::Timeout) => {
                    let is_old = |read: Instant| read.elapsed() >= self.config.refresh;
                    refreshed.is_none_or(is_old) || self.looks_different()
                }
                Ok(Message::Stop) | Err(RecvTimeoutError::Disconnected) => return,
            };
            if read {
                if self.read().is_break() {
                    return;
                }
                refreshed = Some(Instant::now());
                wait = self.config.interval;
            }
        }
    }

    /// Reads everything and delivers what is different.
    fn read(&mut self) -> ControlFlow<()> {
        let later = match self.library.inventory(&self.config.host_root) {
            Ok(later) => later,
            Err(error) => return self.gate.deliver(NodeEvent::Interrupted(error)),
        };
        let changes = self.inventory.diff(&later);
        let gpus = |inventory: &Inventory| inventory.gpus.iter().map(|gpu| gpu.uuid.clone()).collect::<Vec<_>>();
        let other_gpus = gpus(&self.inventory) != gpus(&later);
        self.inventory = later;
        if !changes.is_empty() {
            let inventory = Arc::new(self.inventory.clone());
            self.gate.deliver(NodeEvent::Changed { changes, inventory })?;
        }
        if (other_gpus || self.health.is_none())
            && let Err(error) = self.watch_health()
            && other_gpus
        {
            self.gate.deliver(NodeEvent::Interrupted(error))?;
        }
        ControlFlow::Continue(())
    }

    /// Waits for the events of the GPUs that there are now. The new watch begins before the old one ends.
    fn watch_health(&mut self) -> Result<()> {
        let (commands, gate) = (self.commands.clone(), Arc::clone(&self.gate));
        let deliver = move |watched| {
            // At once, and not by the watcher's thread: that may be in a call about a GPU that hangs.
            let flow = match &watched {
                Watched::Event(event) => gate.deliver(NodeEvent::Health(event.clone())),
                _ => ControlFlow::Continue(()),
            };
            let message = if flow.is_break() {
                Message::Stop
            } else {
                Message::Health(watched)
            };
            match commands.send(message) {
                Ok(()) => flow,
                Err(_) => ControlFlow::Break(()),
            }
        };
        let watch = HealthWatch::start(Arc::clone(&self.library), &self.inventory.gpus, deliver)?;
        let problems = watch.problems().to_vec();
        // What the old one has seen and not yet told it tells all the same: the new one has seen it too, or began too late.
        if let Some(old) = self.health.replace(watch) {
            old.retire();
        }
        for problem in problems {
            if self.gate.deliver(NodeEvent::NotWatched(problem)).is_break() {
                break; // the gate is closed from here on
            }
        }
        Ok(())
    }

    /// Whether the GPUs and MIG devices that there are, in a handful of calls for each, are other ones than the last reading
    /// has. It is compared with the reading and not with an earlier look, so that what comes and goes cannot slip between.
    fn looks_different(&self) -> bool {
        let Ok(count) = self.library.count() else { return true };
        let found = (0..count).filter_map(|index| {
            let glance = move |nvml: &Nvml, progress: &Progress| glance(nvml, progress, index);
            self.library.guarded_gpu(index, glance).ok()?.ok()
        });
        !found.eq(self.inventory.gpus.iter().map(Glance::of))
    }
}

/// What tells, without reading everything, whether a GPU is another or divided otherwise.
#[derive(Debug, PartialEq, Eq)]
struct Glance {
    uuid: String,
    /// The mode in force and the one to come; `None` where there is none.
    mig_mode: Option<(bool, bool)>,
    /// The UUIDs of the MIG devices, by slot.
    mig_devices: Vec<(u32, MigUuid)>,
}

impl Glance {
    fn of(gpu: &Gpu) -> Self {
        let devices = gpu.mig.iter().flat_map(|mig| &mig.devices);
        Self {
            uuid: gpu.uuid.to_string(),
            mig_mode: gpu.mig.as_ref().map(|mig| (mig.enabled, mig.pending_enabled)),
            mig_devices: devices.map(|device| (device.index, device.uuid.clone())).collect(),
        }
    }
}

/// An error for a GPU that a reading would not have either.
fn glance(nvml: &Nvml, progress: &Progress, index: u32) -> Result<Glance, NvmlError> {
    const ENABLED: u32 = 1; // NVML_DEVICE_MIG_ENABLE
    let device = progress.call("nvmlDeviceGetHandleByIndex_v2", || nvml.device_by_index(index))?;
    let uuid = progress.call("nvmlDeviceGetUUID", || raw::text::uuid(&device))?;
    let mode = match progress.call("nvmlDeviceGetMigMode", || device.mig_mode()) {
        Err(error @ (NvmlError::GpuLost | NvmlError::ResetRequired)) => return Err(error),
        mode => mode.ok(),
    };
    let mut mig_devices = Vec::new();
    if mode.as_ref().is_some_and(|mode| mode.current == ENABLED) {
        let slots = progress.call("nvmlDeviceGetMaxMigDeviceCount", || device.mig_device_count());
        for slot in 0..slots.unwrap_or_default().min(MOST_MIG_DEVICES) {
            let found = progress.call("nvmlDeviceGetMigDeviceHandleByIndex", || {
                device.mig_device_by_index(slot)
            });
            let Ok(found) = found else { continue };
            let uuid = progress.call("nvmlDeviceGetUUID", || raw::text::uuid(&found));
            if let Some(uuid) = uuid.ok().and_then(|uuid| uuid.parse().ok()) {
                mig_devices.push((slot, uuid));
            }
        }
    }
    Ok(Glance {
        uuid,
        mig_mode: mode.map(|mode| (mode.current == ENABLED, mode.pending == ENABLED)),
        mig_devices,
    })
}
