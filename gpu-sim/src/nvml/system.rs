//! Initialisation, and what holds for the whole node.
#![expect(
    clippy::redundant_closure,
    reason = "the log names a function by the type of a closure in it"
)]

use std::ffi::{c_char, c_int, c_uint};

use nvml_wrapper_sys::bindings::{nvmlReturn_t, nvmlSystemDriverBranchInfo_v1_t};

use super::{
    abi::{Buffer, InOut, Out, field, put, version_of},
    calls::called_by,
    code::{self, Code},
    session::{Session, answer},
};
use crate::tree;

#[unsafe(no_mangle)]
extern "C" fn nvmlInit() -> nvmlReturn_t {
    called_by(|| Session::initialise())
}

#[unsafe(no_mangle)]
extern "C" fn nvmlInit_v2() -> nvmlReturn_t {
    called_by(|| Session::initialise())
}

/// The flags only make initialisation milder where GPUs are absent or in use, which it is here anyway. Unknown ones are
/// passed over (measured).
#[unsafe(no_mangle)]
extern "C" fn nvmlInitWithFlags(_flags: c_uint) -> nvmlReturn_t {
    called_by(|| Session::initialise())
}

#[unsafe(no_mangle)]
extern "C" fn nvmlShutdown() -> nvmlReturn_t {
    called_by(|| Session::shut_down())
}

#[unsafe(no_mangle)]
extern "C" fn nvmlErrorString(result: nvmlReturn_t) -> *const c_char {
    code::text(result).as_ptr()
}

#[unsafe(no_mangle)]
extern "C" fn nvmlSystemGetDriverVersion(version: Buffer, length: c_uint) -> nvmlReturn_t {
    answer(|session| version.fill(length, session.driver.version))
}

#[unsafe(no_mangle)]
extern "C" fn nvmlSystemGetNVMLVersion(version: Buffer, length: c_uint) -> nvmlReturn_t {
    answer(|session| version.fill(length, &session.driver.nvml_version()))
}

#[unsafe(no_mangle)]
extern "C" fn nvmlSystemGetCudaDriverVersion(version: Out<'_, c_int>) -> nvmlReturn_t {
    answer(|session| put(version, session.driver.cuda_number()))
}

/// The second version asks `libcuda.so.1` and fails without it, the first one then answers what it was built with.
#[unsafe(no_mangle)]
extern "C" fn nvmlSystemGetCudaDriverVersion_v2(version: Out<'_, c_int>) -> nvmlReturn_t {
    answer(|session| {
        let version = version.ok_or(Code::INVALID_ARGUMENT)?;
        if !has_libcuda(session) {
            return Err(Code::LIBRARY_NOT_FOUND);
        }
        put(Some(version), session.driver.cuda_number())
    })
}

/// Whether the node's driver root has it; in a container that got only libraries, whether the loader finds it.
fn has_libcuda(session: &Session) -> bool {
    if let Some(state) = session.state() {
        return state.root().join(tree::library_folder()).join("libcuda.so.1").exists();
    }
    // SAFETY: the name ends in a zero; whoever put the library there means it to be loaded.
    let library = unsafe { libc::dlopen(c"libcuda.so.1".as_ptr(), libc::RTLD_LAZY) };
    if library.is_null() {
        return false;
    }
    // SAFETY: it was opened just now and nothing of it is used.
    unsafe { libc::dlclose(library) };
    true
}

#[unsafe(no_mangle)]
extern "C" fn nvmlSystemGetDriverBranch(
    info: InOut<'_, nvmlSystemDriverBranchInfo_v1_t>,
    length: c_uint,
) -> nvmlReturn_t {
    answer(|session| {
        let info = info.ok_or(Code::INVALID_ARGUMENT)?;
        if info.version != version_of::<nvmlSystemDriverBranchInfo_v1_t>(1) {
            return Err(Code::ARGUMENT_VERSION_MISMATCH);
        }
        let branch = session.driver.build_branch.ok_or(Code::NOT_SUPPORTED)?;
        if branch.len() >= length as usize {
            return Err(Code::INSUFFICIENT_SIZE);
        }
        info.branch = field(branch);
        Ok(())
    })
}
