//! What C hands over, as types that check it.
//!
//! NVML's contract is that a pointer is null or valid. References carry just that; where a length belongs to a pointer,
//! or the text ends in a zero, a wrapper keeps the pointer private and so only C can make one.

use std::{
    ffi::{CStr, c_char, c_uint, c_void},
    mem::MaybeUninit,
};

use nvml_wrapper_sys::bindings::{nvmlDevice_t, nvmlGpuInstance_t};

use super::code::{Answer, Code};

/// Where an answer goes.
pub(super) type Out<'a, T> = Option<&'a mut MaybeUninit<T>>;

/// A structure whose first fields the caller has filled in. Only for structures of which every bit pattern is a value.
pub(super) type InOut<'a, T> = Option<&'a mut T>;

/// Writes an answer where C wants it.
pub(super) fn put<T>(out: Out<'_, T>, value: T) -> Answer {
    out.ok_or(Code::INVALID_ARGUMENT)?.write(value);
    Ok(())
}

/// The version number that a structure of that type carries: its size, and the version in the top byte.
pub(super) const fn version_of<T>(version: c_uint) -> c_uint {
    #[expect(clippy::cast_possible_truncation, reason = "structures are small")]
    let size = size_of::<T>() as c_uint;
    size | version << 24
}

/// A buffer for text. Its length is a separate argument.
#[repr(transparent)]
pub(super) struct Buffer(*mut c_char);

impl Buffer {
    /// Writes text and the zero behind it, or nothing if they do not fit.
    pub(super) fn fill(self, length: c_uint, text: &str) -> Answer {
        if self.0.is_null() {
            return Err(Code::INVALID_ARGUMENT);
        }
        if text.len() >= length as usize {
            return Err(Code::INSUFFICIENT_SIZE);
        }
        let target = self.0.cast::<u8>();
        // SAFETY: the caller gives a buffer of `length` bytes, the text is shorter, and the two cannot overlap because
        // the text is this library's own.
        unsafe { std::ptr::copy_nonoverlapping(text.as_ptr(), target, text.len()) };
        let end = target.wrapping_add(text.len());
        // SAFETY: there is room for one byte more than the text, as was checked.
        unsafe { end.write(0) };
        Ok(())
    }
}

/// Text from C, ended by a zero.
#[repr(transparent)]
pub(super) struct Text(*const c_char);

impl Text {
    /// The text; what is not UTF-8 cannot be the name of anything here.
    pub(super) fn read(&self) -> Answer<&str> {
        if self.0.is_null() {
            return Err(Code::INVALID_ARGUMENT);
        }
        // SAFETY: it is not null, and the caller gives text that ends in a zero and stays for this call.
        let text = unsafe { CStr::from_ptr(self.0) };
        text.to_str().map_err(|_| Code::INVALID_ARGUMENT)
    }
}

/// A device handle: of a GPU or of a MIG device. It points into [`DEVICES`] and is compared, never followed, so a forged one
/// does no harm.
#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(transparent)]
pub(super) struct Handle(*const c_void);

/// A handle of a GPU instance, in the same way.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub(super) struct InstanceHandle(*const c_void);

/// A handle of a compute instance, in the same way.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub(super) struct ComputeHandle(*const c_void);

/// One handle each this many bytes.
const STRIDE: usize = 16;
const GPUS: usize = 256;
/// The driver numbers this many instances of a GPU, and compute instances of each.
const INSTANCES: usize = 15;
const COMPUTE: usize = 8;

/// They give handles addresses that nothing else has, another copy of this library in the process included: first the
/// GPUs, then the MIG devices. Nothing is ever written there, so they take no memory.
static DEVICES: [u8; STRIDE * GPUS * (1 + INSTANCES * COMPUTE)] = [0; STRIDE * GPUS * (1 + INSTANCES * COMPUTE)];
static GPU_INSTANCES: [u8; STRIDE * GPUS * INSTANCES] = [0; STRIDE * GPUS * INSTANCES];
static COMPUTE_INSTANCES: [u8; STRIDE * GPUS * INSTANCES * COMPUTE] = [0; STRIDE * GPUS * INSTANCES * COMPUTE];

fn address(places: &'static [u8], place: usize) -> *const c_void {
    places.as_ptr().wrapping_add(place * STRIDE).cast()
}

fn place(places: &'static [u8], pointer: *const c_void) -> Answer<usize> {
    let distance = pointer
        .addr()
        .checked_sub(places.as_ptr().addr())
        .ok_or(Code::INVALID_ARGUMENT)?;
    let valid = distance < places.len() && distance.is_multiple_of(STRIDE);
    valid.then_some(distance / STRIDE).ok_or(Code::INVALID_ARGUMENT)
}

/// A MIG device: a compute instance, by the GPU's place in the node file, the GPU instance's id and its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct MigPlace {
    pub(super) slot: usize,
    pub(super) instance: u32,
    pub(super) compute: u32,
}

impl MigPlace {
    fn number(self) -> usize {
        (self.slot * INSTANCES + self.instance as usize) * COMPUTE + self.compute as usize
    }

    fn numbered(number: usize) -> Self {
        let id = |value: usize| u32::try_from(value).unwrap_or(u32::MAX);
        Self {
            slot: number / COMPUTE / INSTANCES,
            instance: id(number / COMPUTE % INSTANCES),
            compute: id(number % COMPUTE),
        }
    }
}

/// What a device handle stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Device {
    /// The GPU in that place of the node file.
    Gpu(usize),
    Mig(MigPlace),
}

impl Handle {
    /// The handle of the GPU in that place of the node file; the same in every session.
    pub(super) fn of(slot: usize) -> Self {
        Self(address(&DEVICES, slot))
    }

    /// The handle of a MIG device; the same for whatever takes its place.
    pub(super) fn of_mig(device: MigPlace) -> Self {
        Self(address(&DEVICES, GPUS + device.number()))
    }

    /// What it stands for, if it can be a handle.
    pub(super) fn device(self) -> Answer<Device> {
        let place = place(&DEVICES, self.0)?;
        Ok(match place.checked_sub(GPUS) {
            None => Device::Gpu(place),
            Some(number) => Device::Mig(MigPlace::numbered(number)),
        })
    }

    pub(super) fn raw(self) -> nvmlDevice_t {
        self.0.cast_mut().cast()
    }
}

impl InstanceHandle {
    pub(super) fn of(slot: usize, instance: u32) -> Self {
        Self(address(&GPU_INSTANCES, slot * INSTANCES + instance as usize))
    }

    /// The GPU's place in the node file and the instance's id, if it can be a handle.
    pub(super) fn place(self) -> Answer<(usize, u32)> {
        let place = place(&GPU_INSTANCES, self.0)?;
        let id = u32::try_from(place % INSTANCES).map_err(|_| Code::INVALID_ARGUMENT)?;
        Ok((place / INSTANCES, id))
    }

    pub(super) fn raw(self) -> nvmlGpuInstance_t {
        self.0.cast_mut().cast()
    }
}

impl ComputeHandle {
    pub(super) fn of(compute: MigPlace) -> Self {
        Self(address(&COMPUTE_INSTANCES, compute.number()))
    }

    pub(super) fn place(self) -> Answer<MigPlace> {
        place(&COMPUTE_INSTANCES, self.0).map(MigPlace::numbered)
    }
}

/// Structures that the caller has filled in, one after the other; how many is a separate argument.
#[repr(transparent)]
pub(super) struct Array<T>(*mut T);

impl<T> Array<T> {
    /// Changes each of them.
    pub(super) fn update(self, count: usize, mut change: impl FnMut(&mut T)) -> Answer {
        if self.0.is_null() {
            return Err(Code::INVALID_ARGUMENT);
        }
        for at in 0..count {
            let place = self.0.wrapping_add(at);
            // SAFETY: the pointer is not null, and the caller says by the count that so many structures lie there, which are
            // its own until the call returns.
            change(unsafe { &mut *place });
        }
        Ok(())
    }
}

/// A list that C has room for: the pointer, and apart from it a count that says how long it is and is set to how many
/// there are.
#[repr(transparent)]
pub(super) struct List<T>(*mut T);

impl<T> List<T> {
    pub(super) fn is_null(&self) -> bool {
        self.0.is_null()
    }

    /// Writes values one after the other.
    ///
    /// # Safety
    /// The list must have room for as many.
    pub(super) unsafe fn write(self, values: impl IntoIterator<Item = T>) {
        for (at, value) in values.into_iter().enumerate() {
            let target = self.0.wrapping_add(at);
            // SAFETY: the caller vouches for the room.
            unsafe { target.write(value) };
        }
    }

    /// Writes all values if there is room, and how many there are. Without a list only the count is asked for: that
    /// succeeds where `counting` says so, and where there are none.
    pub(super) fn fill(self, count: InOut<'_, c_uint>, values: Vec<T>, counting: bool) -> Answer {
        let count = count.ok_or(Code::INVALID_ARGUMENT)?;
        let room = if self.is_null() { 0 } else { *count };
        *count = u32::try_from(values.len()).map_err(|_| Code::UNKNOWN)?;
        if values.is_empty() || (self.is_null() && counting) {
            return Ok(());
        }
        if room < *count {
            return Err(Code::INSUFFICIENT_SIZE);
        }
        // SAFETY: the caller says by the count how much room there is, and it is enough.
        unsafe { self.write(values) };
        Ok(())
    }
}

/// Text in a field of a structure, cut to fit, with a zero behind it.
pub(super) fn field<const N: usize>(text: &str) -> [c_char; N] {
    let mut field = [0; N];
    for (place, byte) in field.iter_mut().take(N.saturating_sub(1)).zip(text.bytes()) {
        *place = c_char::from_ne_bytes([byte]); // signed or not, by architecture
    }
    field
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_handle_stands_for_what_it_was_made_of_and_a_forged_one_for_nothing() {
        for slot in [0, 1, GPUS - 1] {
            assert_eq!(Handle::of(slot).device(), Ok(Device::Gpu(slot)));
            for (instance, compute) in [(0, 0), (14, 7), (9, 3)] {
                let place = MigPlace {
                    slot,
                    instance,
                    compute,
                };
                assert_eq!(Handle::of_mig(place).device(), Ok(Device::Mig(place)));
                assert_eq!(InstanceHandle::of(slot, instance).place(), Ok((slot, instance)));
                assert_eq!(ComputeHandle::of(place).place(), Ok(place));
            }
        }
        for forged in [
            std::ptr::null(),
            Handle::of(0).0.cast::<u8>().wrapping_add(1).cast(),
            Handle::of(GPUS * (1 + INSTANCES * COMPUTE)).0,
        ] {
            assert_eq!(Handle(forged).device(), Err(Code::INVALID_ARGUMENT));
        }
    }
}
