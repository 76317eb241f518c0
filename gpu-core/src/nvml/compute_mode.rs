//! Who may use a GPU at once.

use nvml_wrapper::enum_wrappers::device::ComputeMode as Wrapped;

use super::{
    Library, Refusal,
    control::{CallRefused, refused},
};
use crate::{ComputeMode, GpuUuid};

impl Library {
    /// Sets the compute mode of a GPU and says which it had; one that it has already is not set again. It needs the rights of
    /// root, and the mode lasts until the driver is loaded anew.
    ///
    /// # Errors
    /// Where NVML refuses, and for a mode that this version does not know.
    pub fn set_compute_mode(&self, gpu: &GpuUuid, mode: ComputeMode) -> Result<ComputeMode, CallRefused> {
        const SET: &str = "nvmlDeviceSetComputeMode";
        let device = self.nvml.device_by_uuid(gpu.as_str());
        let mut device = device.map_err(refused("nvmlDeviceGetHandleByUUID"))?;
        let found = device.compute_mode().map_err(refused("nvmlDeviceGetComputeMode"))?;
        let found = ComputeMode::from_nvml(found.as_c());
        if found != mode {
            let wrapped = wrapped(mode).ok_or(CallRefused {
                call: SET,
                refusal: Refusal::InvalidArgument,
            })?;
            device.set_compute_mode(wrapped).map_err(refused(SET))?;
        }
        Ok(found)
    }
}

fn wrapped(mode: ComputeMode) -> Option<Wrapped> {
    match mode {
        ComputeMode::Default => Some(Wrapped::Default),
        ComputeMode::ExclusiveThread => Some(Wrapped::ExclusiveThread),
        ComputeMode::Prohibited => Some(Wrapped::Prohibited),
        ComputeMode::ExclusiveProcess => Some(Wrapped::ExclusiveProcess),
        ComputeMode::Other(_) => None,
    }
}
