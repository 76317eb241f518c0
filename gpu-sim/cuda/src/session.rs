//! From `cuInit` to the end of the process.

use std::{
    collections::BTreeMap,
    env,
    fs::File,
    io::{Read as _, Seek as _, SeekFrom},
    sync::{Mutex, PoisonError},
};

use crate::{
    code::{Answer, Code},
    device::Device,
    mps::Client,
    nvml::{self, Nvml},
    visible::{Candidate, visible},
};

pub(crate) struct Session {
    pub(crate) nvml: Nvml,
    devices: Vec<Device>,
    mps: Option<Client>,
    contexts: Contexts,
}

/// What contexts there are: each by its number, with its device. A number is never used twice.
#[derive(Debug, Default)]
struct Contexts {
    made: usize,
    alive: BTreeMap<usize, i32>,
    /// Each device's primary context, and how often it is held.
    primary: BTreeMap<i32, (usize, usize)>,
}

static SESSION: Mutex<Option<Session>> = Mutex::new(None);

/// Answers once `cuInit` has succeeded.
pub(crate) fn within<T>(answer: impl FnOnce(&mut Session) -> Answer<T>) -> Answer<T> {
    let mut session = SESSION.lock().unwrap_or_else(PoisonError::into_inner);
    answer(session.as_mut().ok_or(Code::NOT_INITIALIZED)?)
}

/// The same for a device.
pub(crate) fn on<T>(device: i32, answer: impl FnOnce(&Session, &Device) -> Answer<T>) -> Answer<T> {
    within(|session| answer(session, session.device(device)?))
}

impl Session {
    /// Once it has succeeded, it does again.
    pub(crate) fn initialise() -> Answer {
        let mut session = SESSION.lock().unwrap_or_else(PoisonError::into_inner);
        if session.is_none() {
            *session = Some(Self::open()?);
        }
        Ok(())
    }

    fn open() -> Answer<Self> {
        let nvml = Nvml::open()?;
        let all = Device::all(&nvml)?;
        let candidates: Vec<Candidate<'_>> = all
            .iter()
            .map(|device| Candidate {
                uuid: &device.uuid,
                mig: device.mig.is_some(),
            })
            .collect();
        let wanted = env::var_os("CUDA_VISIBLE_DEVICES").map(|wanted| wanted.to_string_lossy().into_owned());
        let seen = visible(&candidates, wanted.as_deref());
        let devices: Vec<Device> = seen.iter().filter_map(|at| all.get(*at).cloned()).collect();
        if devices.is_empty() {
            return Err(Code::NO_DEVICE);
        }
        Ok(Self {
            nvml,
            devices,
            mps: Client::connect(env::var_os("CUDA_MPS_PIPE_DIRECTORY"))?,
            contexts: Contexts::default(),
        })
    }

    pub(crate) fn count(&self) -> Answer<i32> {
        i32::try_from(self.devices.len()).map_err(|_| Code::UNKNOWN)
    }

    pub(crate) fn device(&self, device: i32) -> Answer<&Device> {
        let place = usize::try_from(device).map_err(|_| Code::INVALID_DEVICE)?;
        self.devices.get(place).ok_or(Code::INVALID_DEVICE)
    }

    /// What a client of the Multi-Process Service may use of so many multiprocessors, rounded up.
    pub(crate) fn share_of(&self, multiprocessors: u32) -> u32 {
        let Some(client) = &self.mps else {
            return multiprocessors;
        };
        let share = (f64::from(multiprocessors) * client.percentage / 100.0).ceil();
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "between 0 and the whole number"
        )]
        let share = share as u32;
        share.clamp(1, multiprocessors.max(1))
    }

    pub(crate) fn make_context(&mut self, device: i32) -> Answer<usize> {
        self.device(device)?
            .check_compute_mode(&self.nvml, self.mps.is_some())?;
        let contexts = &mut self.contexts;
        contexts.made = contexts.made.checked_add(1).ok_or(Code::UNKNOWN)?;
        contexts.alive.insert(contexts.made, device);
        Ok(contexts.made)
    }

    /// Removes a context that is not a primary one.
    pub(crate) fn remove_context(&mut self, context: usize) -> Answer {
        let mut primary = self.contexts.primary.values();
        if primary.any(|(other, _)| *other == context) {
            return Err(Code::INVALID_CONTEXT);
        }
        self.contexts
            .alive
            .remove(&context)
            .map(|_| ())
            .ok_or(Code::INVALID_CONTEXT)
    }

    /// A device's primary context: made where nobody holds it.
    pub(crate) fn retain_primary(&mut self, device: i32) -> Answer<usize> {
        if let Some((context, held)) = self.contexts.primary.get_mut(&device) {
            *held = held.saturating_add(1);
            return Ok(*context);
        }
        let context = self.make_context(device)?;
        self.contexts.primary.insert(device, (context, 1));
        Ok(context)
    }

    pub(crate) fn release_primary(&mut self, device: i32) -> Answer {
        self.device(device)?;
        let (context, held) = self.contexts.primary.get_mut(&device).ok_or(Code::INVALID_CONTEXT)?;
        *held = held.saturating_sub(1);
        if *held == 0 {
            let context = *context;
            self.contexts.primary.remove(&device);
            self.contexts.alive.remove(&context);
        }
        Ok(())
    }
}

/// The driver's CUDA version as one number, which needs no device: the node writes it behind its copy of the library, as a
/// last line `gpu-sim cuda 12040`.
pub(crate) fn version() -> Answer<i32> {
    let read = || -> Option<i32> {
        let mut file = File::open(nvml::own_path()?).ok()?;
        let mut bytes = Vec::new();
        file.seek(SeekFrom::End(-64)).ok()?;
        file.read_to_end(&mut bytes).ok()?;
        let text = String::from_utf8_lossy(&bytes).into_owned();
        text.lines().last()?.strip_prefix("gpu-sim cuda ")?.parse().ok()
    };
    read().ok_or(Code::UNKNOWN)
}
