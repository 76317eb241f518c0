//! The calls that the wrapper does not have.

mod mig;
mod private;
mod readings;

use std::ffi::{CStr, c_char, c_uint, c_ulong};

use nvml_wrapper::Device;
use nvml_wrapper_sys::bindings::{NVML_NVLINK_MAX_LINKS, NvmlLib, nvmlDevice_t, nvmlPciInfo_t};

pub(super) use self::mig::Instance;
use super::failure::Failure;

/// Calls a function of the library; a library that lacks it has not found it.
macro_rules! call {
    ($lib:expr, $name:ident ( $($argument:expr),* )) => {
        match &$lib.$name {
            Ok(function) => {
                // SAFETY: the arguments are of the C function's types; handles are what the library handed out, and each
                // pointer is null where that is allowed or points to a value that is there until the call returns.
                check(unsafe { function($($argument),*) })
            }
            Err(_) => check(13),
        }
    };
}
use call;

fn check(code: c_uint) -> Result<(), Failure> {
    if code == 0 { Ok(()) } else { Err(Failure::of_code(code)) }
}

/// The text in a field, up to its zero.
fn text(field: &[c_char]) -> String {
    let bytes: Vec<u8> = field.iter().map(|byte| byte.to_ne_bytes()[0]).collect();
    let text = CStr::from_bytes_until_nul(&bytes);
    text.map(|text| text.to_string_lossy().into_owned()).unwrap_or_default()
}

/// A value that the library fills in.
fn zeroed<T>() -> T {
    // SAFETY: it is used for structures of numbers and pointers alone, for which all zeros are a value.
    unsafe { std::mem::zeroed() }
}

/// A GPU, as the raw calls want it.
#[derive(Clone, Copy)]
pub(super) struct Gpu<'nvml> {
    lib: &'nvml NvmlLib,
    device: nvmlDevice_t,
}

/// An NVLink that is up.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Link {
    pub(super) to_switch: bool,
    /// PCI address of what is at the other end, where it is known.
    pub(super) other_end: Option<String>,
}

impl<'nvml> Gpu<'nvml> {
    pub(super) fn of(device: &Device<'nvml>) -> Self {
        // SAFETY: the handle is used with the library it is from, and no longer than that is loaded.
        let handle = unsafe { device.handle() };
        Self {
            lib: device.nvml().lib(),
            device: handle,
        }
    }

    pub(super) fn set_mig_mode(self, on: bool) -> Result<c_uint, Failure> {
        let mut activation = 0;
        call!(
            self.lib,
            nvmlDeviceSetMigMode(self.device, on.into(), &raw mut activation)
        )?;
        Ok(activation)
    }

    pub(super) fn set_compute_mode(self, mode: c_uint) -> Result<(), Failure> {
        call!(self.lib, nvmlDeviceSetComputeMode(self.device, mode))
    }

    pub(super) fn set_persistence(self, on: bool) -> Result<(), Failure> {
        call!(self.lib, nvmlDeviceSetPersistenceMode(self.device, on.into()))
    }

    /// The links that are up; none where there is no NVLink.
    pub(super) fn links(self) -> Vec<Link> {
        const SWITCH: c_uint = 2;
        let one = |index| {
            let (mut active, mut kind) = (0, 0);
            call!(self.lib, nvmlDeviceGetNvLinkState(self.device, index, &raw mut active)).ok()?;
            if active == 0 {
                return None;
            }
            let known = call!(
                self.lib,
                nvmlDeviceGetNvLinkRemoteDeviceType(self.device, index, &raw mut kind)
            );
            let mut pci: nvmlPciInfo_t = zeroed();
            let found = call!(
                self.lib,
                nvmlDeviceGetNvLinkRemotePciInfo_v2(self.device, index, &raw mut pci)
            );
            Some(Link {
                to_switch: known.is_ok() && kind == SWITCH,
                other_end: found.is_ok().then(|| text(&pci.busId)),
            })
        };
        (0..NVML_NVLINK_MAX_LINKS).filter_map(one).collect()
    }

    /// The NUMA node that its memory traffic is nearest to.
    pub(super) fn numa_node(self) -> Option<u32> {
        const NODE: c_uint = 0;
        let mut nodes: [c_ulong; 16] = [0; 16];
        call!(
            self.lib,
            nvmlDeviceGetMemoryAffinity(self.device, 16, nodes.as_mut_ptr(), NODE)
        )
        .ok()?;
        let at = nodes.iter().position(|word| *word != 0)?;
        Some(u32::try_from(at).ok()? * c_ulong::BITS + nodes[at].trailing_zeros())
    }
}
