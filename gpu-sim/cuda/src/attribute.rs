//! `cuDeviceGetAttribute`, by the numbers of `CUdevice_attribute`.

use crate::{
    code::{Answer, Code},
    device::Device,
    session::Session,
};

/// Cores of a multiprocessor by compute capability, from the CUDA programming guide.
pub(crate) fn cores_per_multiprocessor(capability: (i32, i32)) -> u32 {
    match capability {
        (..=7, _) | (8, 0) => 64,
        _ => 128,
    }
}

/// The value of an attribute; one that is not simulated is not supported.
pub(crate) fn get(session: &Session, device: &Device, attribute: i32) -> Answer<i32> {
    const GRAPHICS_CLOCK: u32 = 0;
    const MEMORY_CLOCK: u32 = 2;
    let nvml = &session.nvml;
    let kilohertz = |kind| nvml.highest_clock(device.gpu, kind).map(|megahertz| megahertz * 1000);
    let number = |value: u32| i32::try_from(value).map_err(|_| Code::UNKNOWN);
    Ok(match attribute {
        1..=3 => 1024,      // threads of a block, in all and by its first two dimensions
        4 => 64,            // and by its third
        5 => 2_147_483_647, // blocks of a grid, by dimension
        6 | 7 => 65_535,
        10 => 32, // threads of a warp
        13 => number(kilohertz(GRAPHICS_CLOCK)?)?,
        16 => number(session.share_of(device.multiprocessors(nvml)?))?,
        31 | 41 | 83 => 1, // kernels at once, unified addresses, managed memory
        20 => number(nvml.compute_mode(device.gpu)?)?,
        32 => i32::from(nvml.ecc(device.gpu)?),
        33 => number(nvml.pci(device.gpu)?.bus)?,
        34 => number(nvml.pci(device.gpu)?.device)?,
        36 => number(kilohertz(MEMORY_CLOCK)?)?,
        50 => number(nvml.pci(device.gpu)?.domain)?,
        75 => nvml.compute_capability(device.handle())?.0,
        76 => nvml.compute_capability(device.handle())?.1,
        ..=0 => return Err(Code::INVALID_VALUE),
        _ => return Err(Code::NOT_SUPPORTED),
    })
}
