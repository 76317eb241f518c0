//! Which device it is.

use std::ffi::{c_int, c_uint};

use nvml_wrapper_sys::bindings::{nvmlPdi_v1_t, nvmlReturn_t};

use super::{
    abi::{Buffer, Handle, InOut, Out, put, version_of},
    code::Code,
    session::{Target, on, on_either, values},
};
use crate::GpuEntry;

/// Functions that answer a text of a device into a buffer.
macro_rules! texts {
    ($(fn $name:ident($gpu:ident, $session:pat_param) { $text:expr })*) => {$(
        #[unsafe(no_mangle)]
        extern "C" fn $name(device: Handle, text: Buffer, length: c_uint) -> nvmlReturn_t {
            on(device, |$gpu, $session| text.fill(length, $text))
        }
    )*};
}

#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetName(device: Handle, text: Buffer, length: c_uint) -> nvmlReturn_t {
    on_either(device, |target, _| match target {
        Target::Gpu(gpu) => text.fill(length, &gpu.board.product),
        Target::Mig(device) => text.fill(length, &device.name()),
    })
}

#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetUUID(device: Handle, text: Buffer, length: c_uint) -> nvmlReturn_t {
    on_either(device, |target, _| match target {
        Target::Gpu(gpu) => text.fill(length, &gpu.entry.uuid),
        Target::Mig(device) => text.fill(length, &device.uuid()),
    })
}

#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetIndex(device: Handle, index: Out<'_, c_uint>) -> nvmlReturn_t {
    on_either(device, |target, _| match target {
        Target::Gpu(gpu) => put(index, gpu.index),
        Target::Mig(device) => put(index, device.index),
    })
}

texts! {
    fn nvmlDeviceGetSerial(gpu, _) { &gpu.entry.serial }
    fn nvmlDeviceGetVbiosVersion(gpu, _) { &gpu.board.vbios }
    fn nvmlDeviceGetBoardPartNumber(gpu, _) { &gpu.board.part_number }
    fn nvmlDeviceGetInforomImageVersion(gpu, _) { &gpu.board.inforom_image }
}

values! {
    fn nvmlDeviceGetMinorNumber(gpu, _) -> c_uint { gpu.entry.minor }
    fn nvmlDeviceGetNumGpuCores(gpu, _) -> c_uint { gpu.board.cuda_cores }
    fn nvmlDeviceGetModuleId(gpu, _) -> c_uint { gpu.entry.module }
    // Bus and device of the PCI address (measured: 6 for 00:06.0), of the first GPU on the card.
    fn nvmlDeviceGetBoardId(gpu, session) -> c_uint {{
        let same = |other: &&GpuEntry| other.card.is_some() && other.card == gpu.entry.card;
        let first = session.node.gpus.iter().find(same).unwrap_or(&gpu.entry);
        u32::from(first.pci.bus()) << 8 | u32::from(first.pci.device())
    }}
    fn nvmlDeviceGetMultiGpuBoard(gpu, _) -> c_uint { gpu.entry.card.is_some().into() }
}

/// What a MIG device has of its GPU.
#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetBrand(device: Handle, brand: Out<'_, c_uint>) -> nvmlReturn_t {
    on_either(device, |target, _| put(brand, target.whole().board.brand))
}

#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetArchitecture(device: Handle, architecture: Out<'_, c_uint>) -> nvmlReturn_t {
    on_either(device, |target, _| put(architecture, target.whole().board.architecture))
}

#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetCudaComputeCapability(
    device: Handle,
    major: Out<'_, c_int>,
    minor: Out<'_, c_int>,
) -> nvmlReturn_t {
    on_either(device, |target, _| {
        let capability = target.whole().board.compute_capability;
        put(major, capability.0)?;
        put(minor, capability.1)
    })
}

#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetPdi(device: Handle, pdi: InOut<'_, nvmlPdi_v1_t>) -> nvmlReturn_t {
    on(device, |gpu, _| {
        let pdi = pdi.ok_or(Code::INVALID_ARGUMENT)?;
        if pdi.version != version_of::<nvmlPdi_v1_t>(1) {
            return Err(Code::ARGUMENT_VERSION_MISMATCH);
        }
        pdi.value = gpu.entry.pdi;
        Ok(())
    })
}

/// The buffer holds at least `NVML_GSP_FIRMWARE_VERSION_BUF_SIZE`, 64 bytes.
#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetGspFirmwareVersion(device: Handle, version: Buffer) -> nvmlReturn_t {
    on(device, |_, session| version.fill(64, session.driver.version))
}

#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetGspFirmwareMode(
    device: Handle,
    enabled: Out<'_, c_uint>,
    default: Out<'_, c_uint>,
) -> nvmlReturn_t {
    on(device, |_, _| {
        put(enabled, 1)?;
        put(default, 1)
    })
}
