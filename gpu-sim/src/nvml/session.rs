//! From the first initialisation to the last shutdown.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    thread,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use nvml_wrapper_sys::bindings::nvmlReturn_t;

use super::{
    abi::{ComputeHandle, Device, Handle, InstanceHandle, MigPlace},
    calls::{self, called},
    code::{Answer, Code},
    container,
    events::EventSet,
    locate::{self, Found},
};
use crate::{
    Board, Driver, GpuEntry, NodeFile, board, driver,
    mig::{self, ComputeInstance, GpuInstance, MigProfile, MigTable},
    seed::mig_uuid,
    state::{GpuRecord, Record, State, Watched},
};

pub(super) struct Session {
    /// How many initialisations have not been shut down.
    references: usize,
    /// The process that initialised: one forked from it has to do so itself (measured).
    process: u32,
    pub(super) node: NodeFile,
    pub(super) driver: &'static Driver,
    /// None in a container that got only the library: then nothing ever happens to the node.
    watched: Option<Watched>,
    /// What had happened to the node when the call at hand began.
    pub(super) now: Arc<Record>,
    /// The driver that had been loaded last when the session began.
    loaded: Option<String>,
    /// The GPUs this process may see, in PCI order.
    pub(super) gpus: Vec<Gpu>,
    /// By address.
    pub(super) event_sets: BTreeMap<usize, Arc<EventSet>>,
}

pub(super) struct Gpu {
    pub(super) entry: GpuEntry,
    pub(super) board: &'static Board,
    /// None if the board cannot be partitioned.
    pub(super) table: Option<&'static MigTable>,
    /// Its place in the node file.
    pub(super) slot: usize,
    pub(super) handle: Handle,
    /// NVML's index: the place among the GPUs this process may see.
    pub(super) index: u32,
}

// A handle is an address that is only ever compared.
// SAFETY: `Handle` is never followed, so any thread may hold it.
unsafe impl Send for Gpu {}

static SESSION: Mutex<Option<Session>> = Mutex::new(None);

/// The session, if this process has one.
fn lock() -> MutexGuard<'static, Option<Session>> {
    let mut session = SESSION.lock().unwrap_or_else(PoisonError::into_inner);
    session.take_if(|session| session.process != std::process::id());
    session
}

/// Answers within a session, or that there is none.
pub(super) fn within<T>(answer: impl FnOnce(&mut Session) -> Answer<T>) -> Answer<T> {
    let mut session = lock();
    let session = session.as_mut().ok_or(Code::UNINITIALIZED)?;
    session.look()?;
    answer(session)
}

/// The same for a function that returns nothing else.
pub(super) fn answer<F: FnOnce(&mut Session) -> Answer>(answer: F) -> nvmlReturn_t {
    called::<F>(|| None, || within(answer))
}

/// Answers when the GPU that `find` finds by its place in the node file does: a hung or slow one is waited for, without
/// holding the session, so that other threads go on. A lost or denied one is for `answer` to see. Where nothing is found
/// `answer` is left to say so.
pub(super) fn reach<T>(
    find: impl Fn(&Session) -> Option<usize>,
    answer: impl FnOnce(&mut Session) -> Answer<T>,
) -> Answer<T> {
    let mut delayed = false;
    loop {
        let mut guard = lock();
        let session = guard.as_mut().ok_or(Code::UNINITIALIZED)?;
        session.look()?;
        let pause = find(session).and_then(|slot| session.pause(slot, delayed));
        let Some(pause) = pause else { return answer(session) };
        delayed |= matches!(pause, Pause::Delay(_));
        drop(guard);
        thread::sleep(pause.time());
    }
}

/// Why a GPU does not answer yet.
enum Pause {
    /// It answers late, once.
    Delay(Duration),
    /// It does not answer now; look again soon.
    Hang(Duration),
}

impl Pause {
    /// How often a hung GPU is looked at: somebody may restore it.
    const POLL: Duration = Duration::from_millis(5);

    fn time(&self) -> Duration {
        match self {
            Self::Delay(time) => *time,
            Self::Hang(left) => (*left).min(Self::POLL),
        }
    }
}

fn slot_of(device: Handle) -> Option<usize> {
    match device.device().ok()? {
        Device::Gpu(slot) => Some(slot),
        Device::Mig(place) => Some(place.slot),
    }
}

/// Answers for a GPU instance that exists, on a GPU that can be used.
pub(super) fn on_instance<F: FnOnce(Instance<'_>, &Session) -> Answer>(
    instance: InstanceHandle,
    answer: F,
) -> nvmlReturn_t {
    let slot = instance.place().ok().map(|(slot, _)| slot);
    let answer = || reach(|_| slot, |session| answer(session.instance(instance)?, session));
    called::<F>(
        || uuid(|session| Some(session.in_slot(slot?).ok()?.entry.uuid.clone())),
        answer,
    )
}

/// Answers for a compute instance that exists, on a GPU that can be used.
pub(super) fn on_compute<F: FnOnce(MigDevice<'_>, &Session) -> Answer>(
    compute: ComputeHandle,
    answer: F,
) -> nvmlReturn_t {
    let slot = compute.place().ok().map(|place| place.slot);
    let answer = || reach(|_| slot, |session| answer(session.compute(compute)?, session));
    called::<F>(
        || uuid(|session| Some(session.in_slot(slot?).ok()?.entry.uuid.clone())),
        answer,
    )
}

/// Answers for a GPU that exists and is not lost. For a MIG device it is not supported.
pub(super) fn on<F: FnOnce(&Gpu, &Session) -> Answer>(device: Handle, answer: F) -> nvmlReturn_t {
    let answer = |session: &mut Session| {
        let gpu = session.gpu(device)?;
        session.check(gpu)?;
        answer(gpu, session)
    };
    called::<F>(|| uuid_of(device), || reach(|_| slot_of(device), answer))
}

/// Answers for a GPU or MIG device that exists, on a GPU that is not lost.
pub(super) fn on_either<F: FnOnce(Target<'_>, &Session) -> Answer>(device: Handle, answer: F) -> nvmlReturn_t {
    let answer = |session: &mut Session| {
        let target = session.target(device)?;
        session.check(target.whole())?;
        answer(target, session)
    };
    called::<F>(|| uuid_of(device), || reach(|_| slot_of(device), answer))
}

/// A UUID out of the session as it is, for the log of calls.
fn uuid(find: impl FnOnce(&Session) -> Option<String>) -> Option<String> {
    find(lock().as_ref()?)
}

fn uuid_of(device: Handle) -> Option<String> {
    uuid(|session| match session.target(device).ok()? {
        Target::Gpu(gpu) => Some(gpu.entry.uuid.clone()),
        Target::Mig(device) => Some(device.uuid()),
    })
}

/// Functions that answer one value of a device: `fn name(gpu) -> type { value }`, or `fn name(gpu, session) …`.
macro_rules! values {
    ($($(#[$attribute:meta])* fn $name:ident($gpu:pat_param, $session:pat_param) -> $type:ty { $value:expr })*) => {$(
        $(#[$attribute])*
        #[unsafe(no_mangle)]
        extern "C" fn $name(
            device: $crate::nvml::abi::Handle,
            out: $crate::nvml::abi::Out<'_, $type>,
        ) -> nvml_wrapper_sys::bindings::nvmlReturn_t {
            $crate::nvml::session::on(device, |$gpu, $session| $crate::nvml::abi::put(out, $value))
        }
    )*};
}
pub(super) use values;

impl Session {
    /// One initialisation more. The first one finds the node and reads it.
    pub(super) fn initialise() -> Answer {
        let mut session = lock();
        if let Some(session) = session.as_mut() {
            session.references = session.references.saturating_add(1);
        } else {
            *session = Some(Self::open()?);
        }
        Ok(())
    }

    /// One less. The last one ends the session.
    pub(super) fn shut_down() -> Answer {
        let mut session = lock();
        let open = session.as_mut().ok_or(Code::UNINITIALIZED)?;
        open.references = open.references.saturating_sub(1);
        if open.references == 0 {
            *session = None;
        }
        Ok(())
    }

    fn open() -> Answer<Self> {
        let (node, mut watched, carried) = match locate::locate()? {
            Found::Node(node, state) => {
                // One who may not write cannot mend; the next one does.
                let _ = state.mend(&node);
                (node, Some(Watched::new(state)?), Record::default())
            }
            Found::Snapshot(node, record) => (node, None, record),
        };
        let visible: Box<dyn Fn(&GpuEntry) -> bool> = if watched.is_some() {
            Box::new(|_| true)
        } else {
            container::check_control()?;
            Box::new(container::has_device_node)
        };
        let driver = driver::find(&node.driver).map_err(|_| Code::UNKNOWN)?;
        let now = match &mut watched {
            Some(watched) => watched.now()?,
            None => Arc::new(container::visible(carried, &node)),
        };
        let gpus = gpus(&node, &now, visible)?;
        if let Some(watched) = &watched {
            calls::follow(&watched.state, now.log_calls);
        }
        if let Some(code) = now.init_error {
            return Err(Code(code));
        }
        Ok(Self {
            references: 1,
            process: std::process::id(),
            node,
            driver,
            watched,
            loaded: now.driver.clone(),
            now,
            gpus,
            event_sets: BTreeMap::new(),
        })
    }

    /// Takes in what has happened since the last call. When another driver was loaded meanwhile, this library is not its.
    fn look(&mut self) -> Answer {
        let Some(watched) = &mut self.watched else {
            return Ok(());
        };
        let now = watched.now()?;
        if !Arc::ptr_eq(&now, &self.now) {
            self.gpus = gpus(&self.node, &now, |_| true)?;
            self.now = now;
        }
        calls::follow(&watched.state, self.now.log_calls);
        match &self.now.driver {
            Some(version) if Some(version) != self.loaded.as_ref() && version != self.driver.version => {
                Err(Code::LIB_RM_VERSION_MISMATCH)
            }
            _ => Ok(()),
        }
    }

    pub(super) fn state(&self) -> Option<&State> {
        self.watched.as_ref().map(|watched| &watched.state)
    }

    /// Changes what is true of a GPU, for all who use the node. One who got only the library may not.
    pub(super) fn change<T>(&self, gpu: &Gpu, change: impl FnOnce(&mut GpuRecord) -> Answer<T>) -> Answer<T> {
        let state = self.state().ok_or(Code::NO_PERMISSION)?;
        state.change(&self.node, |record| change(record.gpu_mut(&gpu.entry.uuid)))
    }

    /// What has happened to a GPU.
    pub(super) fn record(&self, gpu: &Gpu) -> &GpuRecord {
        self.now.gpu(&gpu.entry.uuid)
    }

    /// The GPU behind a handle, lost or not; not the one behind a MIG device.
    pub(super) fn gpu(&self, device: Handle) -> Answer<&Gpu> {
        match self.target(device)? {
            Target::Gpu(gpu) => Ok(gpu),
            Target::Mig(_) => Err(Code::NOT_SUPPORTED),
        }
    }

    fn in_slot(&self, slot: usize) -> Answer<&Gpu> {
        self.gpus
            .iter()
            .find(|gpu| gpu.slot == slot)
            .ok_or(Code::INVALID_ARGUMENT)
    }

    /// What a handle stands for, lost or not. The handle of a MIG device is valid as long as the device is there.
    pub(super) fn target(&self, device: Handle) -> Answer<Target<'_>> {
        match device.device()? {
            Device::Gpu(slot) => self.in_slot(slot).map(Target::Gpu),
            Device::Mig(place) => self.mig_device(place).map(Target::Mig),
        }
    }

    fn mig_device(&self, place: MigPlace) -> Answer<MigDevice<'_>> {
        let gpu = self.in_slot(place.slot)?;
        self.mig_devices(gpu)
            .find(|device| device.place() == place)
            .ok_or(Code::INVALID_ARGUMENT)
    }

    /// The MIG devices of a GPU in the order of their indices.
    pub(super) fn mig_devices<'a>(&'a self, gpu: &'a Gpu) -> impl Iterator<Item = MigDevice<'a>> {
        let devices = self.record(gpu).mig.devices();
        (0..).zip(devices).filter_map(move |(index, (instance, compute))| {
            Some(MigDevice {
                gpu,
                profile: gpu.table?.by_constant(instance.profile)?,
                table: gpu.table?,
                instance,
                compute,
                index,
            })
        })
    }

    /// The GPU instance behind a handle, on a GPU that is not lost.
    pub(super) fn instance(&self, handle: InstanceHandle) -> Answer<Instance<'_>> {
        let (slot, id) = handle.place()?;
        let gpu = self.in_slot(slot)?;
        self.check(gpu)?;
        let table = gpu.table.ok_or(Code::INVALID_ARGUMENT)?;
        let state = self.record(gpu).mig.instance(id).ok_or(Code::INVALID_ARGUMENT)?;
        let profile = table.by_constant(state.profile).ok_or(Code::UNKNOWN)?;
        Ok(Instance {
            gpu,
            table,
            profile,
            state,
        })
    }

    /// The MIG device that is the compute instance behind a handle, on a GPU that is not lost.
    pub(super) fn compute(&self, handle: ComputeHandle) -> Answer<MigDevice<'_>> {
        let device = self.mig_device(handle.place()?)?;
        self.check(device.gpu)?;
        Ok(device)
    }

    /// That a GPU is not lost, and that one may ask it.
    pub(super) fn check(&self, gpu: &Gpu) -> Answer {
        let record = self.record(gpu);
        if record.lost {
            Err(Code::GPU_IS_LOST)
        } else if record.denied {
            Err(Code::NO_PERMISSION)
        } else {
            Ok(())
        }
    }

    fn pause(&self, slot: usize, delayed: bool) -> Option<Pause> {
        let record = self.record(self.in_slot(slot).ok()?);
        if record.lost || record.denied {
            return None;
        }
        if record.hung_until_ms > 0 {
            let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
            let left = Duration::from_millis(record.hung_until_ms).saturating_sub(now);
            if !left.is_zero() {
                return Some(Pause::Hang(left));
            }
        }
        (record.delay_ms > 0 && !delayed).then(|| Pause::Delay(Duration::from_millis(record.delay_ms)))
    }
}

/// The GPUs that are on the bus and that this process may see. Who has NVML open sees them come and go (`nvml.h`,
/// `nvmlDeviceDiscoverGpus`: the numbers of GPUs behind one that comes change).
fn gpus(node: &NodeFile, now: &Record, visible: impl Fn(&GpuEntry) -> bool) -> Answer<Vec<Gpu>> {
    let is_there = |entry: &GpuEntry| visible(entry) && !now.gpu(&entry.uuid).unplugged;
    let mut gpus = Vec::new();
    for (slot, entry) in node.gpus.iter().enumerate().filter(|(_, entry)| is_there(entry)) {
        let board = board::find(&entry.board).ok_or(Code::UNKNOWN)?;
        let index = u32::try_from(gpus.len()).map_err(|_| Code::UNKNOWN)?;
        gpus.push(Gpu {
            entry: entry.clone(),
            board,
            table: board.mig.as_deref().and_then(mig::find),
            slot,
            handle: Handle::of(slot),
            index,
        });
    }
    Ok(gpus)
}

/// What a device handle stands for.
#[derive(Clone, Copy)]
pub(super) enum Target<'a> {
    Gpu(&'a Gpu),
    Mig(MigDevice<'a>),
}

impl<'a> Target<'a> {
    /// The GPU itself, or the one that the MIG device is a part of.
    pub(super) fn whole(&self) -> &'a Gpu {
        match self {
            Self::Gpu(gpu) => gpu,
            Self::Mig(device) => device.gpu,
        }
    }
}

impl Target<'_> {
    pub(super) fn handle(&self) -> Handle {
        match self {
            Self::Gpu(gpu) => gpu.handle,
            Self::Mig(device) => Handle::of_mig(device.place()),
        }
    }
}

/// A MIG device: a compute instance of a GPU instance.
#[derive(Clone, Copy)]
pub(super) struct MigDevice<'a> {
    pub(super) gpu: &'a Gpu,
    pub(super) table: &'static MigTable,
    pub(super) profile: &'static MigProfile,
    pub(super) instance: &'a GpuInstance,
    pub(super) compute: &'a ComputeInstance,
    /// NVML's index among the MIG devices of its GPU.
    pub(super) index: u32,
}

impl MigDevice<'_> {
    pub(super) fn place(&self) -> MigPlace {
        MigPlace {
            slot: self.gpu.slot,
            instance: self.instance.id,
            compute: self.compute.id,
        }
    }

    pub(super) fn uuid(&self) -> String {
        mig_uuid(&self.gpu.entry.uuid, self.instance.id, self.compute.id)
    }

    /// Such as `NVIDIA H200 MIG 1g.18gb`.
    pub(super) fn name(&self) -> String {
        let total = self.gpu.board.memory.total_bytes;
        format!(
            "{} MIG {}",
            self.gpu.board.product,
            self.profile.name(self.compute.slices, total)
        )
    }
}

/// A GPU instance.
#[derive(Clone, Copy)]
pub(super) struct Instance<'a> {
    pub(super) gpu: &'a Gpu,
    pub(super) table: &'static MigTable,
    pub(super) profile: &'static MigProfile,
    pub(super) state: &'a GpuInstance,
}
