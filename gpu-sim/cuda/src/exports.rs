//! The functions that are exported. Every pointer is checked for null; that it points to what the function's documentation
//! says is the caller's to keep.

use std::{
    ffi::{CStr, c_char, c_int, c_uint, c_void},
    mem::MaybeUninit,
    ptr,
};

use crate::{
    attribute,
    code::{self, Answer, Code},
    device::uuid_bytes,
    session::{self, Session, on, within},
};

/// A place for a value, or null.
type Out<'a, T> = Option<&'a mut MaybeUninit<T>>;

fn number(answer: Answer) -> c_int {
    answer.map_or_else(|code| code.0, |()| 0)
}

fn put<T>(out: Out<'_, T>, value: Answer<T>) -> Answer {
    out.ok_or(Code::INVALID_VALUE)?.write(value?);
    Ok(())
}

/// Copies a text, cut to fit, and a zero into a buffer.
fn put_text(buffer: *mut c_char, length: c_int, text: &str) -> Answer {
    let length = usize::try_from(length).map_err(|_| Code::INVALID_VALUE)?;
    if buffer.is_null() || length == 0 {
        return Err(Code::INVALID_VALUE);
    }
    let count = text.len().min(length - 1);
    // SAFETY: the text has at least `count` bytes; the caller's buffer has `length`, which is more; they do not overlap,
    // as the text is ours.
    unsafe { ptr::copy_nonoverlapping(text.as_ptr().cast(), buffer, count) };
    // SAFETY: `count` is less than the buffer's length.
    let end = unsafe { buffer.add(count) };
    // SAFETY: as above.
    unsafe { end.write(0) };
    Ok(())
}

#[unsafe(no_mangle)]
extern "C" fn cuInit(flags: c_uint) -> c_int {
    number(if flags == 0 {
        Session::initialise()
    } else {
        Err(Code::INVALID_VALUE)
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuDriverGetVersion(version: Out<'_, c_int>) -> c_int {
    number(put(version, session::version()))
}

#[unsafe(no_mangle)]
extern "C" fn cuDeviceGetCount(count: Out<'_, c_int>) -> c_int {
    number(within(|session| put(count, session.count())))
}

#[unsafe(no_mangle)]
extern "C" fn cuDeviceGet(device: Out<'_, c_int>, ordinal: c_int) -> c_int {
    number(on(ordinal, |_, _| put(device, Ok(ordinal))))
}

#[unsafe(no_mangle)]
extern "C" fn cuDeviceGetName(name: *mut c_char, length: c_int, device: c_int) -> c_int {
    number(on(device, |session, device| {
        put_text(name, length, &session.nvml.name(device.handle())?)
    }))
}

/// Of a MIG device: the UUID of its GPU.
#[unsafe(no_mangle)]
extern "C" fn cuDeviceGetUuid(uuid: Out<'_, [u8; 16]>, device: c_int) -> c_int {
    number(on(device, |_, device| put(uuid, uuid_bytes(&device.gpu_uuid))))
}

#[unsafe(no_mangle)]
extern "C" fn cuDeviceGetUuid_v2(uuid: Out<'_, [u8; 16]>, device: c_int) -> c_int {
    number(on(device, |_, device| put(uuid, uuid_bytes(&device.uuid))))
}

#[unsafe(no_mangle)]
extern "C" fn cuDeviceTotalMem_v2(bytes: Out<'_, usize>, device: c_int) -> c_int {
    number(on(device, |session, device| {
        let memory = session.nvml.memory(device.handle())?;
        put(bytes, usize::try_from(memory).map_err(|_| Code::UNKNOWN))
    }))
}

#[unsafe(no_mangle)]
extern "C" fn cuDeviceGetAttribute(value: Out<'_, c_int>, attribute: c_int, device: c_int) -> c_int {
    number(on(device, |session, device| {
        put(value, attribute::get(session, device, attribute))
    }))
}

#[unsafe(no_mangle)]
extern "C" fn cuDeviceGetPCIBusId(text: *mut c_char, length: c_int, device: c_int) -> c_int {
    number(on(device, |session, device| {
        let pci = session.nvml.pci(device.gpu)?;
        put_text(
            text,
            length,
            &format!("{:04X}:{:02X}:{:02X}.0", pci.domain, pci.bus, pci.device),
        )
    }))
}

#[unsafe(no_mangle)]
extern "C" fn cuDevicePrimaryCtxRetain(context: Out<'_, *mut c_void>, device: c_int) -> c_int {
    number(within(|session| {
        let context = context.ok_or(Code::INVALID_VALUE)?;
        context.write(ptr::without_provenance_mut(session.retain_primary(device)?));
        Ok(())
    }))
}

#[unsafe(no_mangle)]
extern "C" fn cuDevicePrimaryCtxRelease_v2(device: c_int) -> c_int {
    number(within(|session| session.release_primary(device)))
}

#[unsafe(no_mangle)]
extern "C" fn cuCtxCreate_v2(context: Out<'_, *mut c_void>, _flags: c_uint, device: c_int) -> c_int {
    number(within(|session| {
        let context = context.ok_or(Code::INVALID_VALUE)?;
        context.write(ptr::without_provenance_mut(session.make_context(device)?));
        Ok(())
    }))
}

#[unsafe(no_mangle)]
extern "C" fn cuCtxDestroy_v2(context: *mut c_void) -> c_int {
    number(within(|session| session.remove_context(context.addr())))
}

/// Nothing can be loaded: there is nothing to run it on.
fn no_module() -> c_int {
    number(within(|_| Err(Code::NOT_SUPPORTED)))
}

#[unsafe(no_mangle)]
extern "C" fn cuModuleLoad(_module: *mut c_void, _path: *const c_char) -> c_int {
    no_module()
}

#[unsafe(no_mangle)]
extern "C" fn cuModuleLoadData(_module: *mut c_void, _image: *const c_void) -> c_int {
    no_module()
}

#[unsafe(no_mangle)]
extern "C" fn cuModuleLoadDataEx(
    _module: *mut c_void,
    _image: *const c_void,
    _count: c_uint,
    _options: *mut c_void,
    _values: *mut *mut c_void,
) -> c_int {
    no_module()
}

#[unsafe(no_mangle)]
extern "C" fn cuGetErrorName(code: c_int, text: Out<'_, *const c_char>) -> c_int {
    error_text(code, text, |(name, _)| name)
}

#[unsafe(no_mangle)]
extern "C" fn cuGetErrorString(code: c_int, text: Out<'_, *const c_char>) -> c_int {
    error_text(code, text, |(_, text)| text)
}

type Texts = (&'static CStr, &'static CStr);

/// Null for a code that there is none of.
fn error_text(code: c_int, out: Out<'_, *const c_char>, which: impl FnOnce(Texts) -> &'static CStr) -> c_int {
    let Some(out) = out else {
        return Code::INVALID_VALUE.0;
    };
    let found = code::texts(code).map(which);
    out.write(found.map_or(ptr::null(), CStr::as_ptr));
    number(found.map(|_| ()).ok_or(Code::INVALID_VALUE))
}

/// Up to CUDA 12.0: no word of why a function was not found.
#[unsafe(no_mangle)]
extern "C" fn cuGetProcAddress(
    name: *const c_char,
    function: Out<'_, *mut c_void>,
    version: c_int,
    flags: u64,
) -> c_int {
    cuGetProcAddress_v2(name, function, version, flags, None)
}

/// A function by its name without a version, as of a version of CUDA.
#[unsafe(no_mangle)]
extern "C" fn cuGetProcAddress_v2(
    name: *const c_char,
    function: Out<'_, *mut c_void>,
    version: c_int,
    _flags: u64,
    status: Out<'_, c_int>,
) -> c_int {
    const FOUND: c_int = 0;
    const NOT_FOUND: c_int = 1;
    let Some(function) = function.filter(|_| !name.is_null()) else {
        return Code::INVALID_VALUE.0;
    };
    // SAFETY: it is not null, and the caller says that it is a text ended by a zero.
    let name = unsafe { CStr::from_ptr(name) };
    let found = address(name.to_bytes(), version);
    function.write(found.unwrap_or(ptr::null_mut()));
    if let Some(status) = status {
        status.write(if found.is_some() { FOUND } else { NOT_FOUND });
    }
    number(found.map(|_| ()).ok_or(Code::NOT_FOUND))
}

fn address(name: &[u8], version: c_int) -> Option<*mut c_void> {
    Some(match name {
        b"cuInit" => cuInit as *mut c_void,
        b"cuDriverGetVersion" => cuDriverGetVersion as *mut c_void,
        b"cuDeviceGetCount" => cuDeviceGetCount as *mut c_void,
        b"cuDeviceGet" => cuDeviceGet as *mut c_void,
        b"cuDeviceGetName" => cuDeviceGetName as *mut c_void,
        b"cuDeviceGetUuid" if version >= 11_040 => cuDeviceGetUuid_v2 as *mut c_void,
        b"cuDeviceGetUuid" => cuDeviceGetUuid as *mut c_void,
        b"cuDeviceTotalMem" => cuDeviceTotalMem_v2 as *mut c_void,
        b"cuDeviceGetAttribute" => cuDeviceGetAttribute as *mut c_void,
        b"cuDeviceGetPCIBusId" => cuDeviceGetPCIBusId as *mut c_void,
        b"cuDevicePrimaryCtxRetain" => cuDevicePrimaryCtxRetain as *mut c_void,
        b"cuDevicePrimaryCtxRelease" => cuDevicePrimaryCtxRelease_v2 as *mut c_void,
        b"cuCtxCreate" => cuCtxCreate_v2 as *mut c_void,
        b"cuCtxDestroy" => cuCtxDestroy_v2 as *mut c_void,
        b"cuModuleLoad" => cuModuleLoad as *mut c_void,
        b"cuModuleLoadData" => cuModuleLoadData as *mut c_void,
        b"cuModuleLoadDataEx" => cuModuleLoadDataEx as *mut c_void,
        b"cuGetErrorName" => cuGetErrorName as *mut c_void,
        b"cuGetErrorString" => cuGetErrorString as *mut c_void,
        b"cuGetProcAddress" if version >= 12_000 => cuGetProcAddress_v2 as *mut c_void,
        b"cuGetProcAddress" => cuGetProcAddress as *mut c_void,
        _ => return None,
    })
}
