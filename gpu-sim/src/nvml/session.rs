//! From the first initialisation to the last shutdown.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use nvml_wrapper_sys::bindings::nvmlReturn_t;

use super::{
    abi::Handle,
    code::{Answer, Code, number},
    container,
    events::EventSet,
    locate::{self, Found},
};
use crate::{Board, Driver, GpuEntry, NodeFile, board, driver, state::State};

pub(super) struct Session {
    /// How many initialisations have not been shut down.
    references: usize,
    /// The process that initialised: one forked from it has to do so itself (measured).
    process: u32,
    pub(super) node: NodeFile,
    pub(super) driver: &'static Driver,
    /// None in a container that got only the library: then nothing ever happens to the node.
    pub(super) state: Option<State>,
    /// The GPUs this process may see, in PCI order.
    pub(super) gpus: Vec<Gpu>,
    /// By address.
    pub(super) event_sets: BTreeMap<usize, Arc<EventSet>>,
}

pub(super) struct Gpu {
    pub(super) entry: GpuEntry,
    pub(super) board: &'static Board,
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
    answer(lock().as_mut().ok_or(Code::UNINITIALIZED)?)
}

/// The same for a function that returns nothing else.
pub(super) fn answer(answer: impl FnOnce(&mut Session) -> Answer) -> nvmlReturn_t {
    number(within(answer))
}

/// Answers for a device that exists and is not lost.
pub(super) fn on(device: Handle, answer: impl FnOnce(&Gpu, &Session) -> Answer) -> nvmlReturn_t {
    number(within(|session| {
        let gpu = session.gpu(device)?;
        session.check(gpu)?;
        answer(gpu, session)
    }))
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
        let (node, state) = match locate::locate()? {
            Found::Node(node, state) => (node, Some(state)),
            Found::Snapshot(node) => (node, None),
        };
        if let Some(code) = state.as_ref().and_then(State::init_error) {
            return Err(Code(code));
        }
        let visible: Box<dyn Fn(&GpuEntry) -> bool> = if state.is_some() {
            Box::new(|_| true)
        } else {
            container::check_control()?;
            Box::new(container::has_device_node)
        };
        let driver = driver::find(&node.driver).map_err(|_| Code::UNKNOWN)?;
        let mut gpus = Vec::new();
        for (slot, entry) in node.gpus.iter().enumerate().filter(|(_, entry)| visible(entry)) {
            let board = board::find(&entry.board).ok_or(Code::UNKNOWN)?;
            let index = u32::try_from(gpus.len()).map_err(|_| Code::UNKNOWN)?;
            gpus.push(Gpu {
                entry: entry.clone(),
                board,
                handle: Handle::of(slot),
                index,
            });
        }
        Ok(Self {
            references: 1,
            process: std::process::id(),
            node,
            driver,
            state,
            gpus,
            event_sets: BTreeMap::new(),
        })
    }

    /// The GPU behind a handle, lost or not.
    pub(super) fn gpu(&self, device: Handle) -> Answer<&Gpu> {
        let slot = device.slot()?;
        self.gpus
            .iter()
            .find(|gpu| gpu.handle.slot() == Ok(slot))
            .ok_or(Code::INVALID_ARGUMENT)
    }

    /// That a GPU is not lost.
    pub(super) fn check(&self, gpu: &Gpu) -> Answer {
        let lost = self.state.as_ref().is_some_and(|state| state.is_lost(&gpu.entry.uuid));
        if lost { Err(Code::GPU_IS_LOST) } else { Ok(()) }
    }
}
