//! What C hands over, as types that check it.
//!
//! NVML's contract is that a pointer is null or valid. References carry just that; where a length belongs to a pointer,
//! or the text ends in a zero, a wrapper keeps the pointer private and so only C can make one.

use std::{
    ffi::{CStr, c_char, c_uint, c_void},
    mem::MaybeUninit,
};

use nvml_wrapper_sys::bindings::nvmlDevice_t;

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

/// A device handle. It points into [`HANDLES`] and is compared, never followed, so a forged one does no harm.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub(super) struct Handle(*const c_void);

/// One handle each this many bytes.
const STRIDE: usize = 16;

/// Gives handles addresses that nothing else has, another copy of this library in the process included.
static HANDLES: [u8; STRIDE * 256] = [0; STRIDE * 256];

impl Handle {
    /// The handle of the GPU in that place of the node file; the same in every session.
    pub(super) fn of(slot: usize) -> Self {
        Self((&raw const HANDLES).cast::<u8>().wrapping_add(slot * STRIDE).cast())
    }

    /// The place, if this can be a handle.
    pub(super) fn slot(self) -> Answer<usize> {
        let distance = self
            .0
            .addr()
            .checked_sub((&raw const HANDLES).addr())
            .ok_or(Code::INVALID_ARGUMENT)?;
        let valid = distance < size_of_val(&HANDLES) && distance.is_multiple_of(STRIDE);
        valid.then_some(distance / STRIDE).ok_or(Code::INVALID_ARGUMENT)
    }

    pub(super) fn raw(self) -> nvmlDevice_t {
        self.0.cast_mut().cast()
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
