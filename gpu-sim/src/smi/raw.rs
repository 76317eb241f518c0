//! The NVML calls for MIG and modes that the wrapper does not have.

use std::{
    ffi::{CStr, c_char, c_uint, c_ulong},
    ptr::null_mut,
};

use nvml_wrapper::Device;
use nvml_wrapper_sys::bindings::{
    NVML_NVLINK_MAX_LINKS, NvmlLib, nvmlComputeInstance_t, nvmlComputeInstanceInfo_t, nvmlComputeInstanceProfileInfo_t,
    nvmlDevice_t, nvmlGpuInstance_t, nvmlGpuInstanceInfo_t, nvmlGpuInstancePlacement_t, nvmlGpuInstanceProfileInfo_t,
    nvmlPciInfo_t,
};

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

/// A GPU instance of a GPU.
#[derive(Clone, Copy)]
pub(super) struct Instance<'nvml> {
    lib: &'nvml NvmlLib,
    handle: nvmlGpuInstance_t,
    pub(super) info: nvmlGpuInstanceInfo_t,
}

/// A compute instance of a GPU instance.
#[derive(Clone, Copy)]
pub(super) struct Compute<'nvml> {
    lib: &'nvml NvmlLib,
    handle: nvmlComputeInstance_t,
    pub(super) info: nvmlComputeInstanceInfo_t,
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

    /// What the board offers, smallest first.
    pub(super) fn profiles(self) -> Vec<nvmlGpuInstanceProfileInfo_t> {
        let mut found: Vec<nvmlGpuInstanceProfileInfo_t> = (0..32)
            .filter_map(|constant| {
                let mut info: nvmlGpuInstanceProfileInfo_t = zeroed();
                let out = &raw mut info;
                call!(
                    self.lib,
                    nvmlDeviceGetGpuInstanceProfileInfo(self.device, constant, out)
                )
                .ok()?;
                Some(info)
            })
            .collect();
        found.sort_by_key(|info| (info.sliceCount, info.memorySizeMB)); // stable: by constant among equals
        found
    }

    pub(super) fn placements(self, profile: c_uint) -> Result<Vec<nvmlGpuInstancePlacement_t>, Failure> {
        let mut count = 0;
        let ask = |list, count| {
            call!(
                self.lib,
                nvmlDeviceGetGpuInstancePossiblePlacements_v2(self.device, profile, list, count)
            )
        };
        ask(null_mut(), &raw mut count)?;
        let mut list = vec![zeroed(); count as usize];
        ask(list.as_mut_ptr(), &raw mut count)?;
        list.truncate(count as usize);
        Ok(list)
    }

    pub(super) fn remaining(self, profile: c_uint) -> Result<c_uint, Failure> {
        let mut count = 0;
        call!(
            self.lib,
            nvmlDeviceGetGpuInstanceRemainingCapacity(self.device, profile, &raw mut count)
        )?;
        Ok(count)
    }

    /// All GPU instances, by id.
    pub(super) fn instances(self) -> Result<Vec<Instance<'nvml>>, Failure> {
        let mut found = Vec::new();
        for profile in self.profiles() {
            let mut list = vec![null_mut(); profile.instanceCount as usize];
            let mut count = 0;
            call!(
                self.lib,
                nvmlDeviceGetGpuInstances(self.device, profile.id, list.as_mut_ptr(), &raw mut count)
            )?;
            for handle in list.into_iter().take(count as usize) {
                found.push(self.instance(handle)?);
            }
        }
        found.sort_by_key(|instance| instance.info.id);
        Ok(found)
    }

    pub(super) fn create(
        self,
        profile: c_uint,
        place: Option<nvmlGpuInstancePlacement_t>,
    ) -> Result<Instance<'nvml>, Failure> {
        let mut handle = null_mut();
        let out = &raw mut handle;
        match place {
            None => call!(self.lib, nvmlDeviceCreateGpuInstance(self.device, profile, out)),
            Some(place) => {
                let at = &raw const place;
                call!(
                    self.lib,
                    nvmlDeviceCreateGpuInstanceWithPlacement(self.device, profile, at, out)
                )
            }
        }?;
        self.instance(handle)
    }

    fn instance(self, handle: nvmlGpuInstance_t) -> Result<Instance<'nvml>, Failure> {
        let mut info = zeroed();
        call!(self.lib, nvmlGpuInstanceGetInfo(handle, &raw mut info))?;
        Ok(Instance {
            lib: self.lib,
            handle,
            info,
        })
    }
}

impl<'nvml> Instance<'nvml> {
    /// All compute instances, by id.
    pub(super) fn compute(self) -> Result<Vec<Compute<'nvml>>, Failure> {
        let mut found = Vec::new();
        for profile in 0..16 {
            let mut list = [null_mut(); 8];
            let mut count = 0;
            let out = list.as_mut_ptr();
            let asked = call!(
                self.lib,
                nvmlGpuInstanceGetComputeInstances(self.handle, profile, out, &raw mut count)
            );
            if asked.is_err() {
                continue; // the instance does not offer it
            }
            for &handle in list.iter().take(count as usize) {
                found.push(self.compute_of(handle)?);
            }
        }
        found.sort_by_key(|compute| compute.info.id);
        Ok(found)
    }

    /// What compute instances it offers, smallest first, each with how many more fit.
    pub(super) fn compute_profiles(self) -> Vec<(nvmlComputeInstanceProfileInfo_t, c_uint)> {
        let one = |profile| {
            let mut info: nvmlComputeInstanceProfileInfo_t = zeroed();
            call!(
                self.lib,
                nvmlGpuInstanceGetComputeInstanceProfileInfo(self.handle, profile, 0, &raw mut info)
            )
            .ok()?;
            let mut free = 0;
            call!(
                self.lib,
                nvmlGpuInstanceGetComputeInstanceRemainingCapacity(self.handle, info.id, &raw mut free)
            )
            .ok()?;
            Some((info, free))
        };
        let mut found: Vec<_> = (0..16).filter_map(one).collect();
        found.sort_by_key(|(info, _)| info.sliceCount);
        found
    }

    pub(super) fn create_compute(self, profile: c_uint) -> Result<Compute<'nvml>, Failure> {
        let mut handle = null_mut();
        call!(
            self.lib,
            nvmlGpuInstanceCreateComputeInstance(self.handle, profile, &raw mut handle)
        )?;
        self.compute_of(handle)
    }

    pub(super) fn destroy(self) -> Result<(), Failure> {
        call!(self.lib, nvmlGpuInstanceDestroy(self.handle))
    }

    fn compute_of(self, handle: nvmlComputeInstance_t) -> Result<Compute<'nvml>, Failure> {
        let mut info = zeroed();
        call!(self.lib, nvmlComputeInstanceGetInfo_v2(handle, &raw mut info))?;
        Ok(Compute {
            lib: self.lib,
            handle,
            info,
        })
    }
}

impl Compute<'_> {
    pub(super) fn destroy(self) -> Result<(), Failure> {
        call!(self.lib, nvmlComputeInstanceDestroy(self.handle))
    }
}
