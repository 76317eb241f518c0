//! Processes on a device: none runs on a simulated one.

use std::ffi::{c_uint, c_void};

use nvml_wrapper_sys::bindings::nvmlReturn_t;

use super::{
    abi::{Handle, InOut},
    code::Code,
    session::on,
};

fn none(device: Handle, count: InOut<'_, c_uint>) -> nvmlReturn_t {
    on(device, |_, _| {
        *count.ok_or(Code::INVALID_ARGUMENT)? = 0;
        Ok(())
    })
}

/// The versions differ in the structure listed, of which there is none.
macro_rules! process_lists {
    ($(fn $name:ident();)*) => {$(
        #[unsafe(no_mangle)]
        extern "C" fn $name(device: Handle, count: InOut<'_, c_uint>, _processes: *mut c_void) -> nvmlReturn_t {
            none(device, count)
        }
    )*};
}

process_lists! {
    fn nvmlDeviceGetComputeRunningProcesses();
    fn nvmlDeviceGetComputeRunningProcesses_v2();
    fn nvmlDeviceGetComputeRunningProcesses_v3();
    fn nvmlDeviceGetGraphicsRunningProcesses();
    fn nvmlDeviceGetGraphicsRunningProcesses_v2();
    fn nvmlDeviceGetGraphicsRunningProcesses_v3();
    fn nvmlDeviceGetMPSComputeRunningProcesses();
    fn nvmlDeviceGetMPSComputeRunningProcesses_v2();
    fn nvmlDeviceGetMPSComputeRunningProcesses_v3();
}
