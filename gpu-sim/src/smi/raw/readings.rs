//! Values of a GPU for `-q`. What is not offered, or not by this driver, is none.

use std::ffi::c_uint;

use nvml_wrapper_sys::bindings::{
    nvmlC2cModeInfo_v1_t, nvmlDeviceAddressingMode_v1_t, nvmlGpuFabricInfo_t, nvmlMarginTemperature_v1_t, nvmlPdi_v1_t,
    nvmlRowRemapperHistogramValues_t,
};

use super::{Gpu, call, check, zeroed};

/// Rows that were replaced by spare ones.
#[derive(Debug, Clone, Copy)]
pub(in crate::smi) struct RemappedRows {
    pub(in crate::smi) corrected: c_uint,
    pub(in crate::smi) uncorrected: c_uint,
    pub(in crate::smi) pending: bool,
    pub(in crate::smi) failed: bool,
}

/// The NVLink fabric, where there is one.
#[derive(Debug, Clone, Copy)]
pub(in crate::smi) struct Fabric {
    pub(in crate::smi) state: u8,
    pub(in crate::smi) status: c_uint,
    pub(in crate::smi) clique: c_uint,
    pub(in crate::smi) cluster: [u8; 16],
}

/// The version that a structure carries in its first field.
fn version<T>() -> c_uint {
    c_uint::try_from(size_of::<T>()).unwrap_or(0) | 1 << 24
}

impl Gpu<'_> {
    /// `nvmlDeviceAddressingModeType_t`.
    pub(in crate::smi) fn addressing_mode(self) -> Option<c_uint> {
        let mut mode = nvmlDeviceAddressingMode_v1_t {
            version: version::<nvmlDeviceAddressingMode_v1_t>(),
            value: 0,
        };
        call!(self.lib, nvmlDeviceGetAddressingMode(self.device, &raw mut mode)).ok()?;
        Some(mode.value)
    }

    pub(in crate::smi) fn pdi(self) -> Option<u64> {
        let mut pdi = nvmlPdi_v1_t {
            version: version::<nvmlPdi_v1_t>(),
            value: 0,
        };
        call!(self.lib, nvmlDeviceGetPdi(self.device, &raw mut pdi)).ok()?;
        Some(pdi.value)
    }

    /// Of a MIG device: the GPU instance it is in.
    pub(in crate::smi) fn gpu_instance(self) -> Option<c_uint> {
        let mut id = 0;
        call!(self.lib, nvmlDeviceGetGpuInstanceId(self.device, &raw mut id)).ok()?;
        Some(id)
    }

    /// Of a MIG device: the compute instance that it is.
    pub(in crate::smi) fn compute_instance(self) -> Option<c_uint> {
        let mut id = 0;
        call!(self.lib, nvmlDeviceGetComputeInstanceId(self.device, &raw mut id)).ok()?;
        Some(id)
    }

    pub(in crate::smi) fn module(self) -> Option<c_uint> {
        let mut id = 0;
        call!(self.lib, nvmlDeviceGetModuleId(self.device, &raw mut id)).ok()?;
        Some(id)
    }

    pub(in crate::smi) fn is_linked_to_processor(self) -> Option<bool> {
        let mut info: nvmlC2cModeInfo_v1_t = zeroed();
        call!(self.lib, nvmlDeviceGetC2cModeInfoV(self.device, &raw mut info)).ok()?;
        Some(info.isC2cEnabled != 0)
    }

    pub(in crate::smi) fn is_display_attached(self) -> Option<bool> {
        let mut mode = 0;
        call!(self.lib, nvmlDeviceGetDisplayMode(self.device, &raw mut mode)).ok()?;
        Some(mode != 0)
    }

    pub(in crate::smi) fn jpeg_percent(self) -> Option<c_uint> {
        let (mut percent, mut period_us) = (0, 0);
        let call = call!(
            self.lib,
            nvmlDeviceGetJpgUtilization(self.device, &raw mut percent, &raw mut period_us)
        );
        call.ok().map(|()| percent)
    }

    pub(in crate::smi) fn ofa_percent(self) -> Option<c_uint> {
        let (mut percent, mut period_us) = (0, 0);
        let call = call!(
            self.lib,
            nvmlDeviceGetOfaUtilization(self.device, &raw mut percent, &raw mut period_us)
        );
        call.ok().map(|()| percent)
    }

    /// Degrees until the GPU slows down.
    pub(in crate::smi) fn margin_c(self) -> Option<i32> {
        let mut margin = nvmlMarginTemperature_v1_t {
            version: version::<nvmlMarginTemperature_v1_t>(),
            marginTemperature: 0,
        };
        call!(self.lib, nvmlDeviceGetMarginTemperature(self.device, &raw mut margin)).ok()?;
        Some(margin.marginTemperature)
    }

    pub(in crate::smi) fn remapped_rows(self) -> Option<RemappedRows> {
        let (mut corrected, mut uncorrected, mut pending, mut failed) = (0, 0, 0, 0);
        call!(
            self.lib,
            nvmlDeviceGetRemappedRows(
                self.device,
                &raw mut corrected,
                &raw mut uncorrected,
                &raw mut pending,
                &raw mut failed
            )
        )
        .ok()?;
        Some(RemappedRows {
            corrected,
            uncorrected,
            pending: pending != 0,
            failed: failed != 0,
        })
    }

    pub(in crate::smi) fn row_histogram(self) -> Option<nvmlRowRemapperHistogramValues_t> {
        let mut values = zeroed();
        call!(
            self.lib,
            nvmlDeviceGetRowRemapperHistogram(self.device, &raw mut values)
        )
        .ok()?;
        Some(values)
    }

    pub(in crate::smi) fn fabric(self) -> Option<Fabric> {
        let mut info: nvmlGpuFabricInfo_t = zeroed();
        call!(self.lib, nvmlDeviceGetGpuFabricInfo(self.device, &raw mut info)).ok()?;
        let fabric = Fabric {
            state: info.state,
            status: info.status,
            clique: info.cliqueId,
            cluster: info.clusterUuid,
        };
        Some(fabric).filter(|fabric| fabric.state != 0)
    }
}
