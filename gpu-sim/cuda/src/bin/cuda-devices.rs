//! Prints what CUDA says of this machine: the driver's version, and a line for each device. It loads `libcuda.so.1` as any
//! CUDA program does, the real one or a simulated one.
//!
//! `cuda-devices [--context]`: with the option it also makes a context on each device and, as long as its standard input is
//! open, keeps them. Exit codes: 0 done; 1 failed, with CUDA's name for why on stderr.
#![expect(unsafe_code, reason = "calls CUDA's C ABI")]

use std::{
    ffi::{CStr, c_char, c_int, c_uint, c_void},
    fmt::Write as _,
    io::{self, Read as _, Write as _},
    process::ExitCode,
    ptr,
};

use gpu_sim_cuda as _; // not called: it brings the static unwinder, so that this needs libc alone
use libloading::{Library, Symbol};

fn main() -> ExitCode {
    let keep = std::env::args_os().skip(1).any(|argument| argument == "--context");
    let done = Cuda::load().and_then(|cuda| {
        let text = cuda.describe(keep)?;
        io::stdout()
            .write_all(text.as_bytes())
            .map_err(|error| error.to_string())?;
        io::stdout().flush().map_err(|error| error.to_string())?;
        if keep {
            let _ = io::stdin().read_to_end(&mut Vec::new());
        }
        Ok(())
    });
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            let _ = writeln!(io::stderr(), "cuda-devices: {message}");
            ExitCode::FAILURE
        }
    }
}

struct Cuda(Library);

/// Calls a function of CUDA's, and turns its code into `name: CUDA_ERROR_…`.
macro_rules! call {
    ($cuda:expr, $name:ident: fn($($type:ty),*), $($argument:expr),*) => {{
        let name = concat!(stringify!($name), "\0").as_bytes();
        // SAFETY: the type is that of the function in cuda.h.
        let function = unsafe { $cuda.0.get::<unsafe extern "C" fn($($type),*) -> c_int>(name) };
        let function = function.map_err(|error| error.to_string())?;
        // SAFETY: each pointer points to a value, or to a buffer of the length given, that is there until the call returns.
        let code = unsafe { function($($argument),*) };
        $cuda.check(stringify!($name), code)
    }};
}

impl Cuda {
    fn load() -> Result<Self, String> {
        // SAFETY: the driver's library has no initialiser that minds when it runs.
        let library = unsafe { Library::new("libcuda.so.1") };
        library.map(Self).map_err(|error| error.to_string())
    }

    fn check(&self, what: &str, code: c_int) -> Result<(), String> {
        if code == 0 {
            return Ok(());
        }
        // SAFETY: the type is that of the function in cuda.h.
        let name: Result<Symbol<'_, unsafe extern "C" fn(c_int, *mut *const c_char) -> c_int>, _> =
            unsafe { self.0.get(b"cuGetErrorName\0") };
        let name = name.map_err(|error| error.to_string())?;
        let mut text = ptr::null();
        // SAFETY: the pointer points to a value that is there until the call returns.
        unsafe { name(code, &raw mut text) };
        if text.is_null() {
            return Err(format!("{what}: {code}"));
        }
        // SAFETY: CUDA's texts are ended by a zero and never go.
        let text = unsafe { CStr::from_ptr(text) };
        Err(format!("{what}: {}", text.to_string_lossy()))
    }

    fn describe(&self, contexts: bool) -> Result<String, String> {
        let (mut version, mut count) = (0, 0);
        call!(self, cuDriverGetVersion: fn(*mut c_int), &raw mut version)?;
        call!(self, cuInit: fn(c_uint), 0)?;
        call!(self, cuDeviceGetCount: fn(*mut c_int), &raw mut count)?;
        let mut text = format!("CUDA {}.{}\n", version / 1000, version % 1000 / 10);
        for ordinal in 0..count {
            let mut device = 0;
            call!(self, cuDeviceGet: fn(*mut c_int, c_int), &raw mut device, ordinal)?;
            let mut name: [c_char; 96] = [0; 96];
            call!(self, cuDeviceGetName: fn(*mut c_char, c_int, c_int), name.as_mut_ptr(), 96, device)?;
            let name: String = name
                .iter()
                .take_while(|byte| **byte != 0)
                .map(|byte| char::from(byte.to_ne_bytes()[0]))
                .collect();
            let mut uuid = [0_u8; 16];
            call!(self, cuDeviceGetUuid_v2: fn(*mut [u8; 16], c_int), &raw mut uuid, device)?;
            let mut bytes = 0_usize;
            call!(self, cuDeviceTotalMem_v2: fn(*mut usize, c_int), &raw mut bytes, device)?;
            let attribute = |number| {
                let mut value = 0;
                call!(self, cuDeviceGetAttribute: fn(*mut c_int, c_int, c_int), &raw mut value, number, device)
                    .map(|()| value)
            };
            let (major, minor, multiprocessors) = (attribute(75)?, attribute(76)?, attribute(16)?);
            let hex: String = uuid
                .iter()
                .fold(String::new(), |text, byte| text + &format!("{byte:02x}"));
            let _ = writeln!(
                text,
                "{ordinal}: {name}, {}-{}-{}-{}-{}, {} MiB, {major}.{minor}, {multiprocessors} SM",
                &hex[..8],
                &hex[8..12],
                &hex[12..16],
                &hex[16..20],
                &hex[20..],
                bytes >> 20
            );
            if contexts {
                let mut context: *mut c_void = ptr::null_mut();
                call!(self, cuCtxCreate_v2: fn(*mut *mut c_void, c_uint, c_int), &raw mut context, 0, device)?;
            }
        }
        Ok(text)
    }
}
