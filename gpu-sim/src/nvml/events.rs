//! Event sets: what was injected is delivered once to each set that waits for it.

use std::{
    ffi::{c_uint, c_ulonglong, c_void},
    sync::{Arc, Mutex, PoisonError},
    thread,
    time::{Duration, Instant},
};

use nvml_wrapper_sys::bindings::{nvmlDevice_t, nvmlEventData_t, nvmlReturn_t};

use super::{
    abi::{Handle, Out, put},
    calls::called_by,
    code::{Answer, Code},
    session::{Gpu, Session, answer, on, values, within},
};
use crate::state::{Event, State};

/// After what a waiting set looks for events again: first, and at most, since each look costs about 0.1 ms.
const PAUSE: Duration = Duration::from_millis(1);
const LONGEST_PAUSE: Duration = Duration::from_millis(50);

#[derive(Debug, Default)]
pub(super) struct EventSet(Mutex<Waiting>);

#[derive(Debug, Default)]
struct Waiting {
    registrations: Vec<Registration>,
    /// Where in the node's events this set has read to.
    read_to: u64,
}

#[derive(Debug)]
struct Registration {
    uuid: String,
    /// How often the GPU had been taken out: one that comes back is watched by nobody.
    removals: u32,
    kinds: u64,
    /// Earlier events are not for it.
    from: u64,
    device: Device,
}

/// A device handle as C sees it.
#[derive(Debug, Clone, Copy)]
struct Device(nvmlDevice_t);

// SAFETY: a handle is an address that is compared and handed out, never followed.
unsafe impl Send for Device {}

impl EventSet {
    fn register(&self, gpu: &Gpu, kinds: u64, session: &Session) {
        let from = session.state().map_or(0, State::end_of_events);
        let device = Device(gpu.handle.raw());
        let registration = Registration {
            uuid: gpu.entry.uuid.clone(),
            removals: session.record(gpu).removals,
            kinds,
            from,
            device,
        };
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .registrations
            .push(registration);
    }

    /// Whether a GPU whose events it waits for is lost. Those that were taken out are waited for no more.
    fn has_lost(&self, session: &Session) -> bool {
        let mut waiting = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let removals = |registration: &Registration| session.now.gpu(&registration.uuid).removals;
        waiting
            .registrations
            .retain(|registration| removals(registration) == registration.removals);
        let lost = |registration: &Registration| session.now.gpu(&registration.uuid).lost;
        waiting.registrations.iter().any(lost)
    }

    /// The next event that the set waits for, if it is there.
    fn next(&self, state: &State) -> Option<nvmlEventData_t> {
        let mut waiting = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        for (at, next, event) in state.events_from(waiting.read_to) {
            waiting.read_to = next;
            let wanted = |registration: &&Registration| {
                registration.uuid == event.uuid && registration.kinds & event.kind != 0 && registration.from <= at
            };
            if let Some(registration) = waiting.registrations.iter().find(wanted) {
                return Some(data(registration.device, &event));
            }
        }
        None
    }
}

fn data(device: Device, event: &Event) -> nvmlEventData_t {
    nvmlEventData_t {
        device: device.0,
        eventType: event.kind,
        eventData: event.data,
        gpuInstanceId: event.gpu_instance,
        computeInstanceId: event.compute_instance,
    }
}

/// A set's handle: the address of the set, looked up and never followed.
#[derive(Clone, Copy)]
#[repr(transparent)]
struct SetHandle(*const c_void);

impl SetHandle {
    /// The set, the state it reads events from, and whether one of its GPUs is lost.
    fn find(self) -> Answer<(Arc<EventSet>, Option<State>, bool)> {
        within(|session| {
            let set = session.event_sets.get(&self.0.addr()).ok_or(Code::INVALID_ARGUMENT)?;
            Ok((Arc::clone(set), session.state().cloned(), set.has_lost(session)))
        })
    }
}

values! {
    fn nvmlDeviceGetSupportedEventTypes(gpu, _) -> c_ulonglong { gpu.board.event_types }
}

#[unsafe(no_mangle)]
extern "C" fn nvmlEventSetCreate(set: Out<'_, SetHandle>) -> nvmlReturn_t {
    answer(|session| {
        let out = set.ok_or(Code::INVALID_ARGUMENT)?;
        let set = Arc::new(EventSet::default());
        let handle = SetHandle(Arc::as_ptr(&set).cast());
        session.event_sets.insert(handle.0.addr(), set);
        put(Some(out), handle)
    })
}

/// Kinds that the board cannot report are not supported; none at all is fine (both measured).
#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceRegisterEvents(device: Handle, kinds: c_ulonglong, set: SetHandle) -> nvmlReturn_t {
    on(device, |gpu, session| {
        let set = session.event_sets.get(&set.0.addr()).ok_or(Code::INVALID_ARGUMENT)?;
        if kinds & !gpu.board.event_types != 0 {
            return Err(Code::NOT_SUPPORTED);
        }
        set.register(gpu, kinds, session);
        Ok(())
    })
}

/// Waits without holding the session, so that other threads go on. In a container that got only the library nothing ever
/// happens, and every wait ends in a time-out. While a GPU of the set is lost, the wait fails once the events that are there
/// have been delivered (`nvml.h`: ready events are returned at once; `GPU_IS_LOST` for a GPU that fell off the bus).
fn wait(set: SetHandle, out: Out<'_, nvmlEventData_t>, timeout_ms: c_uint) -> Answer {
    let out = out.ok_or(Code::INVALID_ARGUMENT)?;
    let deadline = Instant::now() + Duration::from_millis(timeout_ms.into());
    let mut pause = PAUSE;
    loop {
        // Looked up each time: the set may be freed meanwhile, or the session end.
        let (found, state, lost) = set.find()?;
        if let Some(event) = state.and_then(|state| found.next(&state)) {
            return put(Some(out), event);
        }
        if lost {
            return Err(Code::GPU_IS_LOST);
        }
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(Code::TIMEOUT);
        }
        thread::sleep(left.min(pause));
        pause = LONGEST_PAUSE.min(pause * 2);
    }
}

#[unsafe(no_mangle)]
extern "C" fn nvmlEventSetWait(set: SetHandle, data: Out<'_, nvmlEventData_t>, timeout_ms: c_uint) -> nvmlReturn_t {
    called_by(|| wait(set, data, timeout_ms))
}

#[unsafe(no_mangle)]
extern "C" fn nvmlEventSetWait_v2(set: SetHandle, data: Out<'_, nvmlEventData_t>, timeout_ms: c_uint) -> nvmlReturn_t {
    called_by(|| wait(set, data, timeout_ms))
}

#[unsafe(no_mangle)]
extern "C" fn nvmlEventSetFree(set: SetHandle) -> nvmlReturn_t {
    answer(|session| {
        session
            .event_sets
            .remove(&set.0.addr())
            .map(|_| ())
            .ok_or(Code::INVALID_ARGUMENT)
    })
}
